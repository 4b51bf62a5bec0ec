// What somebody typed and has not sent, kept in this browser under their name until it is sent. Pure but for the storage that it is given.

import { tuningOf, type TuningDraft } from "./tuning.ts";

export interface Draft {
  id: string;
  /** Of its last change, in ms since 1970. */
  at: number;
  text: string;
  /** What it began with, in words. */
  from: string;
  /** The run that it came from: `<dag>/<uid>`; empty: none. */
  origin: string;
  tuning: TuningDraft;
}

export type Storage = Pick<globalThis.Storage, "getItem" | "setItem" | "removeItem" | "key" | "length">;

const placeOf = (user: string, id: string) => `training new ${JSON.stringify(user)} ${id}`;

/** Each is kept alone: two tabs of a browser never write over each other. */
export function keep(storage: Storage, user: string, draft: Draft): boolean {
  try {
    storage.setItem(placeOf(user, draft.id), JSON.stringify(draft));
    return true;
  } catch {
    return false; // full, or the browser keeps nothing
  }
}

export function forget(storage: Storage, user: string, id: string): void {
  try {
    storage.removeItem(placeOf(user, id));
  } catch {
    // it is not there then either
  }
}

/** All of a user, the newest first. */
export function kept(storage: Storage, user: string): Draft[] {
  const found: Draft[] = [];
  try {
    for (let number = 0; number < storage.length; number += 1) {
      const place = storage.key(number);
      if (!place?.startsWith(placeOf(user, ""))) continue;
      const draft = draftOf(storage.getItem(place));
      if (draft) found.push(draft);
    }
  } catch {
    return found;
  }
  return found.sort((one, other) => other.at - one.at);
}

function draftOf(text: string | null): Draft | null {
  try {
    const { id, at, text: typed, from, origin, tuning } = JSON.parse(text ?? "") as Record<string, unknown>;
    if (typeof id !== "string" || typeof at !== "number" || typeof typed !== "string") return null;
    return { id, at, text: typed, from: String(from ?? ""), origin: String(origin ?? ""), tuning: tuningOf(tuning) };
  } catch {
    return null;
  }
}
