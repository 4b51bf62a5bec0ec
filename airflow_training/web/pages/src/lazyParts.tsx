// Stands in for the parts of the pages that are loaded when they are shown.
import { lazy, Suspense, type ComponentType } from "react";

import "./lent.ts";
import { Loading, Problem } from "./parts.tsx";

type Later = typeof import("./later.tsx");

const GONE = new Error("This part of the page could not be loaded. Load the page again: it may be of another version by now.");

async function load(): Promise<Later | null> {
  try {
    return await import("./later.tsx");
  } catch {
    return null; // an upgrade has taken the file away, or the server is gone
  }
}

/** Fetch them while nobody waits: a tab that is chosen then shows at once. */
export function preload(): void {
  if (window.requestIdleCallback) window.requestIdleCallback(() => void load());
  else setTimeout(() => void load(), 500);
}

function part<Props extends object>(pick: (later: Later) => ComponentType<Props>): ComponentType<Props> {
  const Part = lazy(async () => {
    const later = await load();
    return { default: later ? pick(later) : () => <Problem error={GONE} /> };
  });
  return (props) => (
    <Suspense fallback={<Loading />}>
      <Part {...props} />
    </Suspense>
  );
}

export const Charts = part((later) => later.Charts);
export const Checkpoints = part((later) => later.Checkpoints);
export const Compare = part((later) => later.Compare);
