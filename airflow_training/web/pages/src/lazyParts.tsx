// Stands in for the parts of the pages that are loaded when they are shown.
import { useEffect, useState, type ComponentType } from "react";

import "./lent.ts";
import { Loading, Problem } from "./parts.tsx";
import { tried } from "./tried.ts";

type Later = typeof import("./later.tsx");

/** Where they are beside this file; see build.mjs. */
declare const LATER: string;

const GONE = new Error("This part of the page could not be loaded. If it stays so, load the page again: it may be of another version by now.");
const PAUSES_MS = [500, 2000];

let loaded: Later | null = null;
let loading: Promise<Later> | null = null;
let failures = 0;

async function fetched(): Promise<Later> {
  if (failures === 0) return import("./later.tsx");
  // what has failed under one address stays so in some browsers
  const address = new URL(LATER, import.meta.url);
  address.search = String(failures);
  return import(address.href) as Promise<Later>;
}

/** Once for all who wait; what has failed (an upgrade has taken the file away, or the server is gone) is tried anew by whoever asks next. */
function load(): Promise<Later> {
  loading ??= tried(fetched, PAUSES_MS, () => (failures += 1)).then(
    (later) => (loaded = later),
    (error: unknown) => {
      loading = null;
      throw error;
    },
  );
  return loading;
}

/** Fetch them while nobody waits: a tab that is chosen then shows at once. */
export function preload(): void {
  const fetchIt = () => void load().catch(() => undefined); // who looks at a part tries again, and is told
  if (window.requestIdleCallback) window.requestIdleCallback(fetchIt);
  else setTimeout(fetchIt, 500);
}

function part<Props extends object>(pick: (later: Later) => ComponentType<Props>): ComponentType<Props> {
  return (props) => {
    const [later, setLater] = useState(loaded);
    const [failed, setFailed] = useState(false);
    useEffect(() => {
      if (!later && !failed) load().then(setLater, () => setFailed(true));
    }, [later, failed]);
    if (failed) return <Problem error={GONE} onAgain={() => setFailed(false)} />;
    if (!later) return <Loading />;
    const Part = pick(later);
    return <Part {...props} />;
  };
}

export const Charts = part((later) => later.Charts);
export const Checkpoints = part((later) => later.Checkpoints);
export const Compare = part((later) => later.Compare);
