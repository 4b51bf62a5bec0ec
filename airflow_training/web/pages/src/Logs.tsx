// The log of one attempt of an instance: any place of it at once, the end as it grows.
import { Box, Button, Checkbox, Flex, Input, Text } from "@chakra-ui/react";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { useSearchParams } from "react-router-dom";
import type { VListHandle } from "virtua";

import { address, get, ofTraining, type Detail, type LinePlace, type LogPage, type NextError } from "./api.ts";
import { extend, linesOf, looksLikeError, type Line } from "./lines.ts";
import { LineText } from "./LineText.tsx";
import { LogList, ROW_PIXELS } from "./LogList.tsx";
import { MergedLog } from "./MergedLog.tsx";
import { Choice, Loading } from "./parts.tsx";
import { Search } from "./Search.tsx";

const ALL = "all";
const SEVERITIES = [
  ["info", "All lines"],
  ["warning", "Warnings and errors"],
  ["error", "Errors"],
] as const;
const BLOCK_BYTES = 1 << 18;
const FOLLOW_MS = 1000;

const nameOf = (each: { role: string; index: number }) => `${each.role}-${each.index}`;

/** `role`: the page is about this role alone. */
export function Logs({ detail, role }: { detail: Detail; role?: string }) {
  const [query, setQuery] = useSearchParams();
  const severity = query.get("severity") ?? "info";
  const [jumps, setJumps] = useState(0);
  const instances = detail.status.instances.filter((each) => !role || each.role === role);
  const asked = query.get("instance");
  const all = asked === ALL && instances.length > 1;
  const chosen = instances.find((each) => nameOf(each) === asked) ?? instances[0];
  if (!chosen) return <Text color="fg.muted">No instance was created yet, so nothing was written.</Text>;
  const attempt = Math.min(Number(query.get("attempt") ?? chosen.attempt), chosen.attempt);
  const set = (values: Record<string, string | null>) =>
    setQuery((before) => {
      const next = new URLSearchParams(before);
      next.delete("offset");
      for (const [name, value] of Object.entries(values)) {
        if (value === null) next.delete(name);
        else next.set(name, value);
      }
      next.set("tab", "logs");
      return next;
    }, { replace: true });
  const source = { role: chosen.role, index: chosen.index, attempt };
  const path = ofTraining(detail.summary.dag, detail.summary.uid, "/log");
  const linked = query.get("offset");
  const show = (place: Source & { offset: number }) => {
    set({ instance: nameOf(place), attempt: String(place.attempt), offset: String(place.offset), severity: null });
    setJumps((before) => before + 1);
  };
  return (
    <Box>
      <Flex align="center" flexWrap="wrap" gap={3} mb={3}>
        <Choice
          label="Instance"
          onChange={(instance) => set({ instance, attempt: null })}
          options={[
            ...(instances.length > 1 ? [[ALL, "All, by time"] as const] : []),
            ...instances.map((each) => [nameOf(each), nameOf(each)] as const),
          ]}
          value={all ? ALL : nameOf(chosen)}
          w="12rem"
        />
        {!all && severity === "info" && (
          <>
            <Choice
              label="Attempt"
              onChange={(value) => set({ attempt: value })}
              options={Array.from({ length: chosen.attempt + 1 }, (_, number) => [String(number), `attempt ${number}`])}
              value={String(attempt)}
              w="9rem"
            />
            <Button asChild size="sm" variant="outline">
              <a download href={address(`${path}/download`, source)}>
                Download
              </a>
            </Button>
          </>
        )}
        <Choice
          label="Severity"
          onChange={(value) => set({ severity: value === "info" ? null : value })}
          options={SEVERITIES}
          value={severity}
          w="12rem"
        />
      </Flex>
      <Search
        onHit={show}
        path={path}
      />
      {all || severity !== "info" ? (
        <MergedLog
          key={`${all ? role : nameOf(chosen)} ${severity}`}
          onLine={show}
          path={path}
          severity={severity}
          source={all ? { role } : { role: chosen.role, index: chosen.index }}
        />
      ) : (
        <Log
          key={`${chosen.role}-${chosen.index}-${attempt}-${jumps}`}
          linked={linked === null ? null : Number(linked)}
          onLink={(offset) => set({ instance: `${chosen.role}-${chosen.index}`, attempt: String(attempt), offset: String(offset) })}
          onJump={(offset) => show({ ...source, offset })}
          path={path}
          source={source}
        />
      )}
    </Box>
  );
}

type Source = { role: string; index: number; attempt: number };

function Log({
  linked,
  onJump,
  onLink,
  path,
  source,
}: {
  linked: number | null;
  /** Show the line there, wherever it is. */
  onJump: (offset: number) => void;
  onLink: (offset: number) => void;
  path: string;
  source: Source;
}) {
  const [blocks, setBlocks] = useState<LogPage[] | null>(null);
  const [follow, setFollow] = useState(linked === null);
  const [problem, setProblem] = useState<string | null>(null);
  const [text, setText] = useState("");
  const [place, setPlace] = useState(-1);
  const list = useRef<VListHandle>(null);
  const busy = useRef(false);
  const read = useCallback(
    (offset: number, size = BLOCK_BYTES) => get<LogPage>(path, { ...source, offset, size }),
    // the component is made anew for another source
    [path],
  );
  const lines = useMemo(() => linesOf(blocks ?? []), [blocks]);
  const first = blocks?.[0]?.start ?? 0;
  const end = blocks?.at(-1)?.end ?? 0;
  const over = blocks?.at(-1)?.eof ?? false;
  // more is written than is read block by block: who follows goes to the end at once
  const behind = follow && end - (blocks?.at(-1)?.start ?? 0) >= BLOCK_BYTES && (blocks?.length ?? 0) > 1;

  const load = useCallback(
    async (offset: number, size?: number, fresh = false) => {
      if (busy.current) return;
      busy.current = true;
      try {
        const block = await read(offset, size);
        setProblem(null);
        setBlocks((before) => (fresh || !before ? [block] : extend(before, block)));
      } catch (error) {
        setProblem(error instanceof Error ? error.message : String(error));
      } finally {
        busy.current = false;
      }
    },
    [read],
  );

  useEffect(() => {
    // a linked line is shown with some of what came before it
    void load(linked === null ? -BLOCK_BYTES : Math.max(0, linked - BLOCK_BYTES / 4), undefined, true);
    // only where the page begins: a click on a line changes the address, not the place
  }, [load]);

  useEffect(() => {
    if (over || !blocks) return undefined;
    const next = () => void (behind ? load(-BLOCK_BYTES, undefined, true) : load(end));
    const timer = setTimeout(next, follow ? FOLLOW_MS : 5 * FOLLOW_MS);
    return () => clearTimeout(timer);
  }, [behind, blocks, over, end, follow, load]);

  const begun = useRef(false);
  useEffect(() => {
    if (lines.length === 0) return;
    if (!begun.current && linked !== null) {
      const found = lines.findLastIndex((line) => line.offset <= linked);
      setPlace(found);
      list.current?.scrollToIndex(found, { align: "center" });
    } else if (follow) list.current?.scrollToIndex(lines.length - 1, { align: "end" });
    begun.current = true;
  }, [lines, follow]);

  const go = (found: number) => {
    if (found < 0) return;
    setFollow(false);
    setPlace(found);
    list.current?.scrollToIndex(found, { align: "center" });
  };
  const search = (from: number) => {
    const wanted = text.toLowerCase();
    const found = lines.findIndex((line, number) => number >= from && line.text.toLowerCase().includes(wanted));
    go(found < 0 ? lines.findIndex((line) => line.text.toLowerCase().includes(wanted)) : found);
  };

  const [said, setSaid] = useState("");
  const [seeking, setSeeking] = useState(false);
  const left = useRef(new AbortController());
  useEffect(() => {
    const mine = new AbortController();
    left.current = mine;
    return () => mine.abort();
  }, []);
  /** Ask for a place, again and again while the server has looked at a part only. */
  const seek = async (ask: (signal: AbortSignal) => Promise<number | string | null>) => {
    const { signal } = left.current;
    setSeeking(true);
    try {
      for (let found: number | string | null = null; found === null && !signal.aborted; ) {
        found = await ask(signal);
        if (typeof found === "number") onJump(found);
        else if (found !== null) setSaid(found);
      }
    } catch (error) {
      if (!signal.aborted) setProblem(error instanceof Error ? error.message : String(error));
    }
    setSeeking(false);
  };
  const findError = () => {
    let from = place < 0 ? first : (lines[place + 1]?.offset ?? end);
    return seek(async (signal) => {
      setSaid(`looking at byte ${from.toLocaleString("en")}`);
      const found = await get<NextError>(`${path}/next-error`, { ...source, offset: from }, signal);
      from = found.searched;
      return found.offset ?? (found.ends ? "no error after this line" : null);
    });
  };
  const findLine = (number: number) =>
    seek(async (signal) => {
      const found = await get<LinePlace>(`${path}/line`, { ...source, number }, signal);
      setSaid(`counted ${found.lines.toLocaleString("en")} lines`);
      return found.offset ?? (found.ends ? `the log has ${found.lines.toLocaleString("en")} lines` : null);
    });

  if (!blocks) return problem ? <Text color="red.fg">{problem}</Text> : <Loading />;
  return (
    <Box>
      <Flex align="center" flexWrap="wrap" gap={2} mb={2}>
        <Button onClick={() => void load(0, undefined, true).then(() => (setFollow(false), list.current?.scrollToIndex(0)))} size="xs" variant="outline">
          Beginning
        </Button>
        <Button onClick={() => void load(-BLOCK_BYTES, undefined, true).then(() => setFollow(true))} size="xs" variant="outline">
          End
        </Button>
        <Button disabled={seeking} onClick={() => void findError()} size="xs" variant="outline">
          Next error
        </Button>
        <form
          onSubmit={(event) => {
            event.preventDefault();
            const number = Number(new FormData(event.currentTarget).get("line"));
            if (number > 0) void findLine(number);
          }}
        >
          <Input aria-label="Go to line" disabled={seeking} min={1} name="line" placeholder="Go to line" size="xs" type="number" w="7rem" />
        </form>
        <form
          onSubmit={(event) => {
            event.preventDefault();
            if (text) search(place + 1);
          }}
        >
          <Input
            aria-label="Find in what is loaded"
            onChange={(event) => setText(event.currentTarget.value)}
            placeholder="Find in what is loaded"
            size="xs"
            value={text}
            w="14rem"
          />
        </form>
        <Checkbox.Root checked={follow} onCheckedChange={(event) => setFollow(event.checked === true)} size="sm">
          <Checkbox.HiddenInput />
          <Checkbox.Control />
          <Checkbox.Label>Follow</Checkbox.Label>
        </Checkbox.Root>
        <Text color="fg.muted" fontSize="xs">
          bytes {first.toLocaleString("en")} to {end.toLocaleString("en")}
          {over ? ", complete" : ", still being written"}
        </Text>
        <Text aria-live="polite" color="fg.muted" fontSize="xs">
          {said}
        </Text>
        {problem && (
          <Text color="orange.fg" fontSize="xs">
            {problem}
          </Text>
        )}
      </Flex>
      {lines.length === 0 ? (
        <Text color="fg.muted">Nothing was written {over ? "" : "yet"}.</Text>
      ) : (
        <LogList
          follow={follow}
          list={list}
          onEnd={() => !over && void load(end)}
          onLeave={() => setFollow(false)}
          onStart={() => first > 0 && void load(Math.max(0, first - BLOCK_BYTES), Math.min(BLOCK_BYTES, first))}
        >
            {lines.map((line, number) => (
              <Row key={line.offset} line={line} marked={number === place} onLink={onLink} />
          ))}
        </LogList>
      )}
    </Box>
  );
}

function Row({ line, marked, onLink }: { line: Line; marked: boolean; onLink: (offset: number) => void }) {
  return (
    <Flex
      _hover={{ bg: "bg.emphasized" }}
      bg={marked ? "bg.warning" : undefined}
      color={looksLikeError(line.text) ? "red.fg" : undefined}
      minH={`${ROW_PIXELS}px`}
      px={2}
    >
      <Box
        aria-label={`Link to the line at byte ${line.offset}`}
        as="button"
        color="fg.muted"
        flex="0 0 7em"
        fontVariantNumeric="tabular-nums"
        onClick={() => onLink(line.offset)}
        pr={3}
        textAlign="right"
        userSelect="none"
      >
        {line.offset}
      </Box>
      <LineText text={line.text} />
    </Flex>
  );
}
