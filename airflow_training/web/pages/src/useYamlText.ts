// The text of a form: what is typed into it, what the form changes in it, what it says. Long ones are read and changed beside the page.
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";

import type { YamlEditor } from "./yamlEditor.ts";
import { patched, readYaml, withValue, type Path, type Reading } from "./yamlPatch.ts";
import { YamlThread } from "./yamlThread.ts";

/** Characters from which on reading a text takes longer than a key. */
export const LONG = 30_000;
const QUIET_MS = 300;

interface Edit {
  path: Path;
  value: unknown;
}

export interface YamlText {
  text: string;
  /** As the text before a pause of typing, where it is long. */
  calm: string;
  /** Null until the text was read for the first time. */
  reading: Reading | null;
  /** Of the text when it could be read last, with all edits. */
  values: unknown;
  /** Why the last edit was not made; empty: it was. */
  refused: string;
  /** Told by the editor. */
  change: (text: string) => void;
  edit: (path: Path, value: unknown) => void;
  /** The text with all edits in it. */
  settled: () => Promise<string>;
}

/** `onChange`: told each text. */
export function useYamlText(first: string, editor: { current: YamlEditor | null }, onChange: (text: string) => void): YamlText {
  const [text, setText] = useState(first);
  const [calm, setCalm] = useState(first);
  const [read, setRead] = useState<{ text: string; reading: Reading } | null>(null);
  const [ahead, setAhead] = useState<{ values: unknown } | null>(null);
  const [refused, setRefused] = useState("");
  const newest = useRef(first);
  const told = useRef(onChange);
  told.current = onChange;
  const thread = useRef<YamlThread>(null);
  const edits = useRef<Edit[]>([]);
  const work = useRef<Promise<void> | null>(null);
  const isLong = text.length > LONG;
  useEffect(() => () => thread.current?.close(), []);
  const beside = () => (thread.current ??= new YamlThread());

  const shortReading = useMemo(() => (isLong ? null : readYaml(text)), [isLong, text]);
  useEffect(() => {
    if (!isLong) {
      setAhead(null);
      return undefined;
    }
    let current = true;
    const timer = setTimeout(
      () => {
        setCalm(text);
        void beside()
          .read(text)
          .then((reading) => {
            if (!current) return;
            setRead({ text, reading });
            if (edits.current.length === 0) setAhead(null);
          });
      },
      read === null ? 0 : QUIET_MS,
    );
    return () => {
      current = false;
      clearTimeout(timer);
    };
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [isLong, text]);

  const reading = shortReading ?? read?.reading ?? null;
  const lastRead = useRef<unknown>({});
  if (reading?.values) lastRead.current = reading.values;
  const values = isLong && ahead ? ahead.values : lastRead.current;
  const shown = useRef(values);
  shown.current = values;

  const change = useCallback((next: string) => {
    newest.current = next;
    setText(next);
    told.current(next);
  }, []);
  const edit = useCallback(
    (path: Path, value: unknown) => {
      // the editor tells its change, as if it were typed there
      const put = (next: string) => (editor.current ? editor.current.replace(next) : change(next));
      const drain = async () => {
        for (let next = edits.current[0]; next; next = edits.current[0]) {
          const before = newest.current;
          try {
            const after = await beside().patch(before, next.path, next.value);
            // what was typed meanwhile stays: the edit is made in it
            if (newest.current !== before || edits.current[0] !== next) continue;
            edits.current.shift();
            put(after);
          } catch (error) {
            // of what is not there any more
            if (newest.current !== before || edits.current[0] !== next) continue;
            edits.current.shift();
            setAhead(null);
            setRefused(error instanceof Error ? error.message : String(error));
          }
        }
        work.current = null;
      };
      try {
        setRefused("");
        if (work.current === null && newest.current.length <= LONG) {
          put(patched(newest.current, path, value));
          return;
        }
        shown.current = withValue(shown.current, path, value);
        setAhead({ values: shown.current });
        const last = edits.current[edits.current.length - 1];
        const again = last && value !== undefined && last.value !== undefined && last.path.join("\n") === path.join("\n");
        if (again) edits.current[edits.current.length - 1] = { path, value };
        else edits.current.push({ path, value });
        told.current(newest.current); // the draft is begun before the text follows
        work.current ??= drain();
      } catch (error) {
        setRefused(error instanceof Error ? error.message : String(error));
      }
    },
    [change, editor],
  );
  useLayoutEffect(() => {
    // the page is left while edits wait for the worker: they are made here, before the draft is kept for the last time
    const finish = () => {
      const left = edits.current.splice(0);
      if (left.length === 0) return;
      let next = newest.current;
      for (const each of left) {
        try {
          next = patched(next, each.path, each.value);
        } catch {
          continue; // it would have been refused
        }
      }
      if (editor.current) editor.current.replace(next);
      else change(next);
    };
    addEventListener("pagehide", finish, { capture: true });
    return () => {
      removeEventListener("pagehide", finish, { capture: true });
      finish();
    };
  }, [change, editor]);
  const settled = useCallback(async () => {
    await work.current;
    return newest.current;
  }, []);
  return { text, calm: isLong ? calm : text, reading, values, refused, change, edit, settled };
}
