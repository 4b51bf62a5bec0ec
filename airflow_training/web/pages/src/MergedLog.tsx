// The lines of several logs by time, or only the serious ones: pages of them, as far as somebody looks.
import { Box, Button, Checkbox, Flex, Text } from "@chakra-ui/react";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import type { VListHandle } from "virtua";

import { get, type LinePage, type LogLine } from "./api.ts";
import { joinPages } from "./lines.ts";
import { LineText } from "./LineText.tsx";
import { LogList, ROW_PIXELS } from "./LogList.tsx";
import { Loading } from "./parts.tsx";

const FOLLOW_MS = 1000;
const ENOUGH_LINES = 100;
const COLOURS = { error: "red.fg", warning: "orange.fg", info: undefined };

/** `source`: the instance, or nothing for all of them. */
export function MergedLog({
  onLine,
  path,
  severity,
  source,
}: {
  onLine: (line: LogLine) => void;
  path: string;
  severity: string;
  source: { role?: string; index?: number };
}) {
  const [pages, setPages] = useState<LinePage[] | null>(null);
  const [follow, setFollow] = useState(true);
  const [problem, setProblem] = useState<string | null>(null);
  const busy = useRef(false);
  const list = useRef<VListHandle>(null);
  const { role, index } = source;
  const load = useCallback(
    async (place: { after?: string; before?: string }) => {
      if (busy.current) return;
      busy.current = true;
      try {
        const page = await get<LinePage>(`${path}/lines`, { role, index, severity, ...place });
        setProblem(null);
        const fresh = !place.before && (!place.after || place.after === "begin");
        setPages((before) => (fresh || !before ? [page] : joinPages(before, page, place.before ? "before" : "after")));
      } catch (error) {
        setProblem(error instanceof Error ? error.message : String(error));
      } finally {
        busy.current = false;
      }
    },
    // the component is made anew for another source
    [path, role, index, severity],
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
  return (
    <Box>
      <Flex align="center" flexWrap="wrap" gap={2} mb={2}>
        <Button
          onClick={() => {
            setFollow(false);
            void load({ after: "begin" }).then(() => list.current?.scrollToIndex(0));
          }}
          size="xs"
          variant="outline"
        >
          Beginning
        </Button>
        <Button onClick={() => void load({}).then(() => setFollow(true))} size="xs" variant="outline">
          End
        </Button>
        <Checkbox.Root checked={follow} onCheckedChange={(event) => setFollow(event.checked === true)} size="sm">
          <Checkbox.HiddenInput />
          <Checkbox.Control />
          <Checkbox.Label>Follow</Checkbox.Label>
        </Checkbox.Root>
        <Text aria-live="polite" color={problem ? "red.fg" : "fg.muted"} fontSize="xs">
          {problem ?? (few ? "looking further back" : `${lines.length} lines are loaded`)}
        </Text>
      </Flex>
      {lines.length === 0 ? (
        <Text color="fg.muted">{few ? "Nothing so far." : severity === "info" ? "Nothing was written yet." : "No such line."}</Text>
      ) : (
        <LogList
          follow={follow}
          list={list}
          onEnd={() => !last?.eof && last && void load({ after: last.after })}
          onLeave={() => setFollow(false)}
          onStart={() => first && !first.begins && void load({ before: first.before })}
        >
            {lines.map((line) => (
              <Flex
                _hover={{ bg: "bg.emphasized" }}
                color={COLOURS[line.severity]}
                key={`${line.role}-${line.index}.${line.attempt}:${line.offset}`}
                minH={`${ROW_PIXELS}px`}
                px={2}
              >
                <Box
                  aria-label={`Open ${line.role}-${line.index} at byte ${line.offset}`}
                  as="button"
                  color="fg.muted"
                  flex="0 0 auto"
                  fontVariantNumeric="tabular-nums"
                  minW="9em"
                  onClick={() => onLine(line)}
                  pr={3}
                  textAlign="left"
                  title={line.time === null ? undefined : new Date(1000 * line.time).toISOString()}
                  userSelect="none"
                >
                  {line.role}-{line.index}
                </Box>
                <LineText text={line.text} />
              </Flex>
          ))}
        </LogList>
      )}
      <Text color="fg.muted" fontSize="xs" mt={2}>
        Newest attempts. A line without a time stands with the one before it; one before the first time, where its attempt began.
      </Text>
    </Box>
  );
}
