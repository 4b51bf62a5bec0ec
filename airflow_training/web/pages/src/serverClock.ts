// The time as the server has it: what it dates is compared with that, not with a clock here that may be minutes off.

/** Milliseconds by which the server's clock is ahead of this one. */
let ahead = 0;

/** An answer of the server has come, in which it says what time it is. */
export function noteServerTime(observed: string | null | undefined, now = Date.now()): void {
  const at = Date.parse(observed ?? "");
  if (Number.isFinite(at)) ahead = at - now;
}

export function serverTime(now: number): number {
  return now + ahead;
}
