// What was asked for and has no answer for a while: a request is sent again for some seconds before it counts as failed.
import { useSyncExternalStore } from "react";

const SLOW_MS = 3000;

let waiting = 0;
const listeners = new Set<() => void>();

function change(by: number) {
  waiting += by;
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void) {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

/** Give what it gives; counts as slow from three seconds on. */
export async function watched<Answer>(answer: Promise<Answer>): Promise<Answer> {
  let slow = false;
  const timer = setTimeout(() => {
    slow = true;
    change(1);
  }, SLOW_MS);
  try {
    return await answer;
  } finally {
    clearTimeout(timer);
    if (slow) change(-1);
  }
}

/** Whether the user waits for such an answer. */
export function useSlow(): boolean {
  return useSyncExternalStore(subscribe, () => waiting > 0);
}
