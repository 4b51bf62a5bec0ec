// Stands in for the parts of the pages that are loaded when they are shown.
import { useEffect, useState, type ComponentType } from "react";

import "./lent.ts";
import { Loading, Problem } from "./parts.tsx";
import { tried } from "./tried.ts";

type Later = typeof import("./later.tsx");
type Form = typeof import("./formParts.tsx");

/** Where they are beside this file; see build.mjs. */
declare const LATER: string;
declare const NEW_TRAINING: string;

const GONE = new Error("This part of the page could not be loaded. If it stays so, load the page again: it may be of another version by now.");
const PAUSES_MS = [500, 2000];

/** A file of parts. */
class Chunk<Parts> {
  loaded: Parts | null = null;
  private loading: Promise<Parts> | null = null;
  private failures = 0;
  private readonly first: () => Promise<Parts>;
  private readonly file: string;

  constructor(first: () => Promise<Parts>, file: string) {
    this.first = first;
    this.file = file;
  }

  private async fetched(): Promise<Parts> {
    if (this.failures === 0) return this.first();
    // what has failed under one address stays so in some browsers
    const address = new URL(this.file, import.meta.url);
    address.search = String(this.failures);
    return import(address.href) as Promise<Parts>;
  }

  /** Once for all who wait; what has failed (an upgrade has taken the file away, or the server is gone) is tried anew by whoever asks next. */
  load(): Promise<Parts> {
    this.loading ??= tried(() => this.fetched(), PAUSES_MS, () => (this.failures += 1)).then(
      (parts) => (this.loaded = parts),
      (error: unknown) => {
        this.loading = null;
        throw error;
      },
    );
    return this.loading;
  }

  part<Props extends object>(pick: (parts: Parts) => ComponentType<Props>): ComponentType<Props> {
    return (props) => {
      const [parts, setParts] = useState(this.loaded);
      const [failed, setFailed] = useState(false);
      useEffect(() => {
        if (!parts && !failed) this.load().then(setParts, () => setFailed(true));
      }, [parts, failed]);
      if (failed) return <Problem error={GONE} onAgain={() => setFailed(false)} />;
      if (!parts) return <Loading />;
      const Part = pick(parts);
      return <Part {...props} />;
    };
  }
}

const later = new Chunk<Later>(() => import("./later.tsx"), LATER);
const form = new Chunk<Form>(() => import("./formParts.tsx"), NEW_TRAINING);

/** Fetch them while nobody waits: a tab that is chosen then shows at once. */
export function preload(): void {
  const fetchIt = () => void later.load().catch(() => undefined); // who looks at a part tries again, and is told
  if (window.requestIdleCallback) window.requestIdleCallback(fetchIt);
  else setTimeout(fetchIt, 500);
}

export const Charts = later.part((parts) => parts.Charts);
export const Checkpoints = later.part((parts) => parts.Checkpoints);
export const Compare = later.part((parts) => parts.Compare);
export const Tuning = later.part((parts) => parts.Tuning);
export const NewTraining = form.part((parts) => parts.NewTraining);
