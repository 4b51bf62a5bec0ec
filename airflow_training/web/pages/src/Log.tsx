// The log of one attempt of an instance: any place of it at once, the end as it grows.
import { Button, Input, Text } from "@chakra-ui/react";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import type { VListHandle } from "virtua";

import { get, type LinePlace, type LogPage, type NextError } from "./api.ts";
import { blockOf, errorFrom, extend, fromWholeLine, linesOf, type Block, type Line, type Place } from "./lines.ts";
import { LogKeys, LogTools, type LogKey } from "./LogKeys.tsx";
import { LogList, LogRow } from "./LogList.tsx";
import { Loading } from "./parts.tsx";

const BLOCK_BYTES = 1 << 18;
const FOLLOW_MS = 1000;

export interface Source {
  role: string;
  index: number;
  attempt: number;
}

export function Log({
  held,
  linked,
  onPlace,
  path,
  source,
  tools,
  wrap,
}: {
  /** Somebody drives the run: more may be written. */
  held: boolean;
  linked: Place | null;
  /** Somebody looks at this line: gives its address. */
  onPlace: (place: Place) => string;
  path: string;
  source: Source;
  /** How the buttons are displayed. */
  tools: { base: string; md: string };
  wrap: boolean;
}) {
  const [blocks, setBlocks] = useState<Block[] | null>(null);
  const [fresh, setFresh] = useState(0);
  const [follow, setFollow] = useState(linked === null);
  const [problem, setProblem] = useState<string | null>(null);
  const [said, setSaid] = useState("");
  const [seeking, setSeeking] = useState(false);
  const [text, setText] = useState("");
  const [mark, setMark] = useState<number | null>(linked?.offset ?? null);
  const list = useRef<VListHandle>(null);
  const find = useRef<HTMLInputElement>(null);
  const busy = useRef(false);
  const reading = useRef(0);
  /** Where to go when what was read is shown. */
  const wanted = useRef<number | null>(null);
  const lines = useMemo(() => linesOf(blocks ?? []), [blocks]);
  const first = blocks?.[0]?.start ?? 0;
  const last = blocks?.at(-1);
  const end = last?.end ?? 0;
  const over = last?.eof ?? false;
  // more is written than is read block by block: who follows goes to the end at once
  const behind = follow && end - (last?.start ?? 0) >= BLOCK_BYTES && (blocks?.length ?? 0) > 1;

  const read = useCallback(
    async (asked: Record<string, string | number>, use: (page: LogPage) => void, anew = false) => {
      if (busy.current && !anew) return;
      if (anew) reading.current += 1;
      const mine = reading.current;
      busy.current = true;
      try {
        const page = await get<LogPage>(path, { ...source, size: BLOCK_BYTES, ...asked });
        if (mine !== reading.current) return;
        setProblem(null);
        use(page);
        if (anew) setFresh(mine);
      } catch (error) {
        if (mine === reading.current) setProblem(error instanceof Error ? error.message : String(error));
      } finally {
        if (mine === reading.current) busy.current = false;
      }
    },
    // the component is made anew for another source
    [path],
  );
  const readEnd = useCallback(
    () => read({ offset: -BLOCK_BYTES }, (page) => setBlocks([blockOf(page, null)]), true),
    [read],
  );
  const readAt = useCallback(
    (place: Place) => {
      const offset = Math.max(0, place.offset - BLOCK_BYTES / 4); // with some of what came before it
      const show = (page: LogPage) => {
        wanted.current = place.offset;
        setBlocks([blockOf(fromWholeLine(page), place)]);
      };
      return read({ offset }, show, true);
    },
    [read],
  );
  const readOn = () =>
    read({ offset: end, ...(last?.inside ? { inside: "true" } : {}) }, (page) =>
      setBlocks((before) => extend(before ?? [], blockOf(page, null))),
    );
  const readBack = () =>
    read({ offset: Math.max(0, first - BLOCK_BYTES), size: Math.min(BLOCK_BYTES, first) }, (page) =>
      setBlocks((before) => extend(before ?? [], blockOf(fromWholeLine(page), null))),
    );

  useEffect(() => {
    void (linked === null ? readEnd() : readAt(linked));
    // only where the page begins: a click on a line changes the address, not the place
  }, [readAt, readEnd]);

  useEffect(() => {
    if (over || !blocks) return undefined;
    const timer = setTimeout(() => void (behind ? readEnd() : readOn()), follow ? FOLLOW_MS : 5 * FOLLOW_MS);
    return () => clearTimeout(timer);
  }, [behind, blocks, over, follow, read]);

  useEffect(() => {
    if (lines.length === 0) return;
    if (wanted.current !== null) {
      const found = lines.findLastIndex((line) => line.offset <= wanted.current!);
      wanted.current = null;
      setMark(lines[found]?.offset ?? null);
      list.current?.scrollToIndex(Math.max(0, found), { align: "center" });
    } else if (follow) list.current?.scrollToIndex(lines.length - 1, { align: "end" });
  }, [lines, follow]);

  const placeOf = ({ offset, number }: Line): Place => ({ offset, line: number });
  const go = (found: number) => {
    const line = lines[found];
    if (!line) return;
    setFollow(false);
    setMark(line.offset);
    setSaid("");
    onPlace(placeOf(line));
    list.current?.scrollToIndex(found, { align: "center" });
  };
  const jump = (place: Place) => {
    setFollow(false);
    setSaid("");
    onPlace(place);
    return readAt(place);
  };
  const marked = mark === null ? -1 : lines.findIndex((line) => line.offset === mark);
  const goToBeginning = () => {
    setFollow(false);
    setMark(null);
    void read({ offset: 0 }, (page) => setBlocks([blockOf(page, null)]), true);
  };
  const goToEnd = () => {
    setMark(null);
    setFollow(true);
    void readEnd();
  };
  const search = () => {
    const has = (line: Line) => line.text.toLowerCase().includes(text.toLowerCase());
    const found = lines.findIndex((line, number) => number > marked && has(line));
    const any = found < 0 ? lines.findIndex(has) : found;
    if (any < 0) setSaid("not in what is loaded");
    else go(any);
  };

  const left = useRef(new AbortController());
  useEffect(() => {
    const mine = new AbortController();
    left.current = mine;
    return () => mine.abort();
  }, []);
  /** Ask for a place, again and again while the server has looked at a part only. */
  const seek = async (ask: (signal: AbortSignal) => Promise<Place | string | null>) => {
    const { signal } = left.current;
    setSeeking(true);
    try {
      for (let found: Place | string | null = null; found === null && !signal.aborted; ) {
        found = await ask(signal);
        if (typeof found === "string") setSaid(found);
        else if (found !== null) await jump(found);
      }
    } catch (error) {
      if (!signal.aborted) setProblem(error instanceof Error ? error.message : String(error));
    }
    setSeeking(false);
  };
  const findError = (step: 1 | -1) => {
    if (seeking) return undefined;
    const near = errorFrom(
      lines.map((line) => line.error),
      marked < 0 && step < 0 ? lines.length : marked,
      step,
    );
    if (near >= 0) {
      go(near);
      return undefined;
    }
    let from = step > 0 ? end : first;
    return seek(async (signal) => {
      setSaid(`looking at byte ${from.toLocaleString("en")}`);
      const asked = step > 0 ? { offset: from } : { before: from };
      const found = await get<NextError>(`${path}/next-error`, { ...source, ...asked }, signal);
      from = found.searched;
      if (found.offset !== null) return { offset: found.offset, line: null };
      return found.ends ? `no error ${step > 0 ? "after" : "before"} this line` : null;
    });
  };
  const findLine = (number: number) => {
    const near = lines.findIndex((line) => line.number === number);
    if (near >= 0) {
      go(near);
      return undefined;
    }
    return seek(async (signal) => {
      const found = await get<LinePlace>(`${path}/line`, { ...source, number }, signal);
      setSaid(`counted ${found.lines.toLocaleString("en")} lines`);
      if (found.offset !== null) return { offset: found.offset, line: number };
      return found.ends ? `the log has ${found.lines.toLocaleString("en")} lines` : null;
    });
  };
  const link = async (line: Line) => {
    setMark(line.offset);
    const address = onPlace(placeOf(line));
    try {
      await navigator.clipboard.writeText(address);
      setSaid("link copied");
    } catch {
      setSaid("the address of the page leads to this line"); // without https there is no clipboard
    }
  };

  if (!blocks) return problem ? <Text color="red.fg">{problem}</Text> : <Loading />;
  const keys: LogKey[] = [
    ["n", "next error", () => void findError(1)],
    ["N", "previous error", () => void findError(-1)],
    ["/", "find", () => find.current?.focus()],
    ["g", "beginning", goToBeginning],
    ["G", "end", goToEnd],
  ];
  const counted = lines[0] !== undefined && lines.at(-1)!.number !== null && lines[0].number !== null;
  const width = `${Math.max(4, String(counted ? lines.at(-1)!.number : end).length)}ch`;
  return (
    <LogKeys keys={keys}>
      <LogTools
        display={tools}
        follow={follow}
        keys={keys}
        onBeginning={goToBeginning}
        onEnd={goToEnd}
        onFollow={setFollow}
        over={over}
      >
        <Button disabled={seeking} onClick={() => void findError(-1)} size="xs" variant="outline">
          Previous error
        </Button>
        <Button disabled={seeking} onClick={() => void findError(1)} size="xs" variant="outline">
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
            if (text) search();
          }}
        >
          <Input
            aria-label="Find in what is loaded"
            onChange={(event) => setText(event.currentTarget.value)}
            placeholder="Find in what is loaded"
            ref={find}
            size="xs"
            value={text}
            w="12rem"
          />
        </form>
      </LogTools>
      {lines.length === 0 ? (
        <Text color="fg.muted">Nothing was written{over || !held ? "" : " yet"}.</Text>
      ) : (
        <LogList
          follow={follow}
          fresh={fresh}
          heading={
            <>
              <Text minW={width} textAlign="right">
                {counted ? "Line" : "Byte"}
              </Text>
              <Text>
                bytes {first.toLocaleString("en")} to {end.toLocaleString("en")}
                {over ? ", complete" : held ? ", still being written" : ""}
              </Text>
              <Text aria-live="polite">{said}</Text>
              {problem && <Text color="orange.fg">{problem}</Text>}
            </>
          }
          list={list}
          onEnd={() => !over && void readOn()}
          onLeave={() => setFollow(false)}
          onStart={() => first > 0 && void readBack()}
        >
          {lines.map((line) => (
            <LogRow
              action={counted ? `Link to line ${line.number}` : `Link to the line at byte ${line.offset}`}
              color={line.error ? "red.fg" : undefined}
              gutter={counted ? line.number : line.offset}
              key={line.offset}
              marked={line.offset === mark}
              onGutter={() => void link(line)}
              text={line.text}
              width={width}
              wrap={wrap}
            />
          ))}
        </LogList>
      )}
    </LogKeys>
  );
}
