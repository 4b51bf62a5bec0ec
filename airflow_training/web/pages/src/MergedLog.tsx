// The lines of several logs by time, or only the serious ones: pages of them, as far as somebody looks.
import { Box, Flex, Text } from "@chakra-ui/react";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import type { VListHandle } from "virtua";

import { get, type LinePage, type LogLine } from "./api.ts";
import { errorFrom, joinPages, timeOfDay } from "./lines.ts";
import { nameOf, type Together } from "./logChoice.ts";
import { LogKeys, LogTools, type LogKey } from "./LogKeys.tsx";
import { LogList, LogRow } from "./LogList.tsx";
import { Loading } from "./parts.tsx";

const FOLLOW_MS = 1000;
const ENOUGH_LINES = 100;
const COLOURS = { error: "red.fg", warning: "orange.fg", info: undefined };

const keyOf = (line: LogLine) => `${nameOf(line)}.${line.attempt}:${line.offset}`;

/** `source`: the instance, or those of some together. `tools`: how the buttons are displayed. */
export function MergedLog({
  onLine,
  path,
  severity,
  source,
  tools,
  wrap,
}: {
  onLine: (line: LogLine) => void;
  path: string;
  severity: string;
  source: Together & { index?: number };
  tools: { base: string; md: string };
  wrap: boolean;
}) {
  const [pages, setPages] = useState<LinePage[] | null>(null);
  const [follow, setFollow] = useState(true);
  const [fresh, setFresh] = useState(0);
  const [mark, setMark] = useState<string | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const busy = useRef(false);
  const list = useRef<VListHandle>(null);
  const { role, index, first: from, count } = source;
  const load = useCallback(
    async (place: { after?: string; before?: string }) => {
      if (busy.current) return;
      busy.current = true;
      try {
        const page = await get<LinePage>(`${path}/lines`, { role, index, first: from, count, severity, ...place });
        setProblem(null);
        const anew = !place.before && (!place.after || place.after === "begin");
        if (anew) setFresh((before) => before + 1);
        setPages((before) => (anew || !before ? [page] : joinPages(before, page, place.before ? "before" : "after")));
      } catch (error) {
        setProblem(error instanceof Error ? error.message : String(error));
      } finally {
        busy.current = false;
      }
    },
    // the component is made anew for another source
    [path, role, index, from, count, severity],
  );
  useEffect(() => void load({}), [load]);

  const lines = useMemo(() => (pages ?? []).flatMap((page) => page.lines), [pages]);
  const first = pages?.[0];
  const last = pages?.at(-1);
  const few = lines.length < ENOUGH_LINES && first !== undefined && !first.begins && follow;
  useEffect(() => {
    if (!last || !first || problem) return undefined;
    if (few) {
      const timer = setTimeout(() => void load({ before: first.before }), 0);
      return () => clearTimeout(timer);
    }
    if (last.eof) return undefined;
    const timer = setTimeout(() => void load({ after: last.after }), follow ? FOLLOW_MS : 5 * FOLLOW_MS);
    return () => clearTimeout(timer);
  }, [few, first, last, follow, load, problem]);
  useEffect(() => {
    if (follow && lines.length > 0) list.current?.scrollToIndex(lines.length - 1, { align: "end" });
  }, [lines, follow]);

  if (!pages) return problem ? <Text color="red.fg">{problem}</Text> : <Loading />;
  const goToBeginning = () => {
    setFollow(false);
    void load({ after: "begin" });
  };
  const goToEnd = () => void load({}).then(() => setFollow(true));
  const findError = (step: 1 | -1) => {
    const marked = lines.findIndex((line) => keyOf(line) === mark);
    const found = errorFrom(
      lines.map((line) => line.severity === "error"),
      marked < 0 && step < 0 ? lines.length : marked,
      step,
    );
    if (found < 0) return;
    setFollow(false);
    setMark(keyOf(lines[found]!));
    list.current?.scrollToIndex(found, { align: "center" });
  };
  const keys: LogKey[] = [
    ["n", "next error of what is loaded", () => findError(1)],
    ["N", "previous error", () => findError(-1)],
    ["g", "beginning", goToBeginning],
    ["G", "end", goToEnd],
  ];
  const names = lines.reduce((most, line) => Math.max(most, nameOf(line).length), 4);
  const width = { base: `${names}ch`, sm: `${names + 14}ch` };
  return (
    <LogKeys keys={keys}>
      <LogTools
        display={tools}
        follow={follow}
        keys={keys}
        onBeginning={goToBeginning}
        onEnd={goToEnd}
        onFollow={setFollow}
        over={last?.eof ?? false}
      />
      {lines.length === 0 ? (
        <Text color="fg.muted">{few ? "Nothing so far." : severity === "info" ? "Nothing was written yet." : "No such line."}</Text>
      ) : (
        <LogList
          follow={follow}
          fresh={fresh}
          heading={
            <>
              <Text>
                <Box as="span" display={{ base: "none", sm: "inline" }}>
                  Time and{" "}
                </Box>
                instance
              </Text>
              <Text aria-live="polite" color={problem ? "red.fg" : undefined}>
                {problem ?? (few ? "looking further back" : `${lines.length} ${lines.length === 1 ? "line is" : "lines are"} loaded`)}
              </Text>
            </>
          }
          list={list}
          onEnd={() => !last?.eof && last && void load({ after: last.after })}
          onLeave={() => setFollow(false)}
          onStart={() => first && !first.begins && void load({ before: first.before })}
        >
          {lines.map((line) => (
            <LogRow
              action={`Open ${nameOf(line)} at byte ${line.offset}`}
              color={COLOURS[line.severity]}
              gutter={
                <Flex justify="space-between">
                  <Box as="span" display={{ base: "none", sm: "inline" }}>
                    {timeOfDay(line.time)}
                  </Box>
                  <Box as="span">{nameOf(line)}</Box>
                </Flex>
              }
              key={keyOf(line)}
              marked={keyOf(line) === mark}
              onGutter={() => onLine(line)}
              text={line.text}
              title={line.time === null ? undefined : new Date(1000 * line.time).toISOString()}
              width={width}
              wrap={wrap}
            />
          ))}
        </LogList>
      )}
      <Text color="fg.muted" fontSize="xs" mt={2}>
        Newest attempts. A line without a time stands with the one before it; one before the first time, where its attempt began.
      </Text>
    </LogKeys>
  );
}
