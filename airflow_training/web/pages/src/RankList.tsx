// The names of many lines of a chart, folded: which are shown, and in which colour each is drawn.
import { Box, Button, Flex, Input, Text } from "@chakra-ui/react";
import { useState } from "react";

import { having, placesOf, type Curve } from "./curves.ts";
import { strokeOf, usePalette } from "./palette.ts";

export function RankList({
  hidden,
  lines,
  onHidden,
}: {
  hidden: ReadonlySet<string>;
  lines: readonly Curve[];
  onHidden: (hidden: ReadonlySet<string>) => void;
}) {
  const [open, setOpen] = useState(false);
  const [text, setText] = useState("");
  const palette = usePalette();
  const places = placesOf(lines);
  const labels = lines.map((each) => each.label);
  const shown = labels.filter((each) => !hidden.has(each)).length;
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const isFound = (label: string) => words.every((word) => label.toLowerCase().includes(word));
  const found = labels.filter(isFound);
  const put = (changed: readonly string[], show: boolean) => onHidden(having(hidden, changed, !show));
  return (
    <Box as="details" fontSize="xs" mt={1} onToggle={(event) => setOpen(event.currentTarget.hasAttribute("open"))}>
      <Box as="summary" color="fg.muted" cursor="pointer">
        {labels.length} ranks{shown < labels.length && `, ${shown} shown`}
      </Box>
      {open && (
        <Box mt={2}>
          <Flex align="center" flexWrap="wrap" gap={2} mb={2}>
            <Input
              aria-label="Find ranks"
              onChange={(event) => setText(event.currentTarget.value)}
              placeholder="Find ranks"
              size="xs"
              value={text}
              w="12rem"
            />
            <Button onClick={() => put(found, true)} size="2xs" variant="outline">
              All
            </Button>
            <Button onClick={() => put(found, false)} size="2xs" variant="outline">
              None
            </Button>
            {found.length === 0 && <Text color="fg.muted">No rank is called so.</Text>}
          </Flex>
          <Box display="grid" gap={1} gridTemplateColumns="repeat(auto-fill, minmax(13rem, 1fr))" maxH="12rem" overflowY="auto" tabIndex={0}>
            {lines.map(({ label }, number) => {
              if (!isFound(label)) return null;
              const { colour, dash } = strokeOf(palette, places[number]!);
              return (
                <Flex align="center" gap={1} key={label}>
                  <Flex align="center" as="label" cursor="pointer" flex={1} gap={2} minW={0}>
                    <input checked={!hidden.has(label)} onChange={(event) => put([label], event.currentTarget.checked)} type="checkbox" />
                    <svg aria-hidden height="4" style={{ flexShrink: 0 }} width="24">
                      <line stroke={colour} strokeDasharray={dash.join(" ")} strokeWidth="3" x2="24" y1="2" y2="2" />
                    </svg>
                    <Text truncate>{label}</Text>
                  </Flex>
                  <Button aria-label={`Only ${label}`} color="fg.muted" onClick={() => onHidden(new Set(labels.filter((each) => each !== label)))} size="2xs" variant="ghost">
                    Only
                  </Button>
                </Flex>
              );
            })}
          </Box>
        </Box>
      )}
    </Box>
  );
}
