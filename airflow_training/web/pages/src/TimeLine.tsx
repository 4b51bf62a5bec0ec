// A row per instance: its attempts and waits as bars, checkpoints and restarts of the whole job as lines over all rows.
import { Box, Flex, Text, useBreakpointValue } from "@chakra-ui/react";
import { memo, useMemo, useState, type KeyboardEvent } from "react";

import type { Detail, EventAnswer } from "./api.ts";
import { useNow } from "./parts.tsx";
import { drawnUntil, ticksOf, timeLine, type Bar, type Line } from "./timeline.ts";
import { duration, quantity, seconds } from "./words.ts";

/** A browser takes seconds for thousands of rows. */
const MOST_ROWS = 100;
const NAMES = { base: "5rem", md: "8rem" };
const OVER_BARS = { base: "calc(5rem + 0.5rem)", md: "calc(8rem + 0.5rem)" };
const LEGEND: readonly Pick<Bar, "colour" | "kind" | "text">[] = [
  { kind: "ran", colour: "green", text: "attempt" },
  { kind: "ran", colour: "red", text: "attempt that failed" },
  { kind: "restarted", colour: "orange", text: "another one followed" },
  { kind: "waited", colour: "gray", text: "waited" },
  { kind: "paused", colour: "purple", text: "the run was paused" },
];

/** Stripes where nothing ran. */
function filling({ colour, kind }: Pick<Bar, "colour" | "kind">) {
  if (kind !== "waited" && kind !== "paused") return { bg: colour === "gray" ? "fg.subtle" : `${colour}.solid` };
  const line = `var(--chakra-colors-${kind === "waited" ? "fg-subtle" : `${colour}-solid`})`;
  return { bgImage: `repeating-linear-gradient(135deg, ${line} 0 1px, transparent 1px 6px)`, borderColor: `${colour}.muted`, borderWidth: "1px" };
}

type Drawn = ReturnType<typeof timeLine>;

/** Of very many, those that were restarted come first: nothing happened to the others. */
function shownOf(lines: readonly Line[]): readonly Line[] {
  if (lines.length <= MOST_ROWS) return lines;
  const attempts = (line: Line) => line.bars.filter((each) => each.kind === "ran" || each.kind === "restarted").length;
  return [...lines].sort((one, other) => attempts(other) - attempts(one)).slice(0, MOST_ROWS);
}

export function TimeLine({ detail, events }: { detail: Detail; events: readonly EventAnswer[] }) {
  const now = useNow(detail.held) / 1000;
  const until = drawnUntil(seconds(detail.summary.submitted_at) ?? now, now);
  const [told, setTold] = useState("");
  const drawn = useMemo(() => timeLine(detail, events, until), [detail, events, until]);
  return (
    <>
      <Picture drawn={drawn} onTell={setTold} />
      <Text aria-live="polite" color={told ? undefined : "fg.muted"} fontSize="sm" my={1} overflowWrap="anywhere">
        {told || "Click a bar, or go from bar to bar with the arrow keys, to see what it is."}
      </Text>
      <Legend drawn={drawn} />
    </>
  );
}

/** Apart from what is told of a bar, for which it is not drawn anew. */
const Picture = memo(function Picture({ drawn, onTell }: { drawn: Drawn; onTell: (text: string) => void }) {
  const ticks = useBreakpointValue({ base: 4, md: 6 }) ?? 6;
  const { from, lines, marks, to } = drawn;
  const place = (at: number) => (100 * (at - from)) / (to - from);
  const shown = shownOf(lines);
  const begins = shown.findIndex((each) => each.bars.length > 0);
  const tells = (text: string, first: boolean) => ({
    "aria-label": text,
    as: "button" as const,
    cursor: "default",
    onClick: () => onTell(text),
    onFocus: () => onTell(text),
    tabIndex: first ? 0 : -1,
    title: text,
  });
  return (
    <Box aria-label="Time line, by arrow keys from bar to bar" borderRadius="md" borderWidth="1px" onKeyDown={walk} p={2} role="group">
      <Box maxH="50vh" overflowX="hidden" overflowY="auto">
        <Box position="relative">
          {shown.map(({ bars: own, name }, row) => (
            <Flex align="center" data-line={row} gap={2} h="1.5rem" key={name}>
              <Text flex="0 0 auto" fontSize="xs" title={name} truncate w={NAMES}>
                {name}
              </Text>
              <Box flex="1" h="1rem" position="relative">
                {own.map((each, number) => (
                  <Box
                    {...tells(each.text, row === begins && number === 0)}
                    {...filling(each)}
                    borderRadius="sm"
                    h="100%"
                    key={number}
                    left={`${place(each.from)}%`}
                    minW="3px"
                    position="absolute"
                    width={`calc(${place(each.to) - place(each.from)}% - 1px)`}
                  />
                ))}
              </Box>
            </Flex>
          ))}
          <Box bottom={0} data-line={shown.length} left={OVER_BARS} pointerEvents="none" position="absolute" right={0} top={0}>
            {marks.map((each, number) => (
              <Box
                {...tells(each.text, begins < 0 && number === 0)}
                borderLeftWidth="2px"
                borderColor={each.kind === "restart" ? "orange.solid" : "purple.solid"}
                borderStyle={each.kind === "restart" ? "dashed" : "solid"}
                h="100%"
                key={number}
                left={`${place(each.at)}%`}
                pointerEvents="auto"
                position="absolute"
                w="5px"
              />
            ))}
          </Box>
        </Box>
      </Box>
      <Box aria-hidden color="fg.muted" fontSize="xs" fontVariantNumeric="tabular-nums" h="1.25rem" ms={OVER_BARS} position="relative">
        {ticksOf(from, to, ticks)
          .filter(({ at }) => place(at) > 4 && place(at) < 96)
          .map(({ at, text }) => (
            <Text
              _before={{ bg: "border.emphasized", content: '""', h: "4px", left: "50%", position: "absolute", top: "-2px", w: "1px" }}
              key={at}
              left={`${place(at)}%`}
              position="absolute"
              pt="3px"
              transform="translateX(-50%)"
              whiteSpace="nowrap"
            >
              {text}
            </Text>
          ))}
      </Box>
    </Box>
  );
});

const Legend = memo(function Legend({ drawn: { from, lines, marks, to } }: { drawn: Drawn }) {
  const bars = shownOf(lines).flatMap((each) => each.bars);
  return (
    <Flex color="fg.muted" columnGap={4} flexWrap="wrap" fontSize="xs">
      {LEGEND.filter(({ colour, kind }) => bars.some((each) => each.kind === kind && each.colour === colour)).map((each) => (
        <Sample key={each.text} text={each.text}>
          <Box {...filling(each)} borderRadius="sm" h="0.7rem" w="1.2rem" />
        </Sample>
      ))}
      {marks.some((each) => each.kind === "checkpoint") && (
        <Sample text="checkpoint">
          <Box borderColor="purple.solid" borderLeftWidth="2px" h="0.9rem" />
        </Sample>
      )}
      {marks.some((each) => each.kind === "restart") && (
        <Sample text="all of the job was started again">
          <Box borderColor="orange.solid" borderLeftWidth="2px" borderStyle="dashed" h="0.9rem" />
        </Sample>
      )}
      <Text ms="auto">
        {duration(to - from)} in all
        {lines.length > MOST_ROWS && `; ${MOST_ROWS} of ${quantity(lines.length)} instances, the most restarted first`}
      </Text>
    </Flex>
  );
});

function Sample({ children, text }: { children: React.ReactNode; text: string }) {
  return (
    <Flex align="center" gap={1}>
      {children}
      {text}
    </Flex>
  );
}

/** Arrows lead along a row, and from row to row that has bars; the lines over all rows come after the last. */
function walk(event: KeyboardEvent<HTMLElement>) {
  const here = event.target as HTMLElement;
  const row = here.closest("[data-line]");
  if (!row) return;
  const buttons = [...event.currentTarget.querySelectorAll<HTMLElement>("button")];
  const at = buttons.indexOf(here);
  const rows = [...event.currentTarget.querySelectorAll("[data-line]")].filter((each) => each.querySelector("button"));
  const rowAt = (step: number) => rows[rows.indexOf(row) + step]?.querySelector<HTMLElement>("button");
  const next: Record<string, HTMLElement | null | undefined> = {
    ArrowRight: buttons[at + 1],
    ArrowLeft: buttons[at - 1],
    ArrowDown: rowAt(1),
    ArrowUp: rowAt(-1),
    Home: buttons[0],
    End: buttons.at(-1),
  };
  const found = next[event.key];
  if (!found) return;
  event.preventDefault();
  found.focus();
}
