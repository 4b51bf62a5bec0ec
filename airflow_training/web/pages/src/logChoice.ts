// Which logs are looked at: one instance's, or those of some together. Pure.
import type { Instance } from "./api.ts";

/** So many logs are shown together at most, as the server does. */
export const MOST_TOGETHER = 128;

type Named = Pick<Instance, "role" | "index" | "attempt">;

/** What is asked of the server for the logs of several instances. */
export interface Together {
  role?: string;
  first?: number;
  count?: number;
}

export type LogChoice = { one: Named; known: boolean } | { together: Together };

export const nameOf = (each: { role: string; index: number }) => `${each.role}-${each.index}`;

/** Several logs as the address names them, and as people do. */
export function togetherOptions(instances: readonly Named[]): [value: string, text: string][] {
  const found: [string, string][] = [];
  const roles = new Map<string, number[]>();
  for (const { role, index } of instances) roles.set(role, [...(roles.get(role) ?? []), index]);
  if (instances.length > 1 && instances.length <= MOST_TOGETHER) found.push(["all", "All, by time"]);
  for (const [role, indexes] of roles) {
    if (indexes.length <= MOST_TOGETHER) {
      if (roles.size > 1 && indexes.length > 1) found.push([`all:${role}`, `All of ${role}, by time`]);
      continue;
    }
    const last = Math.max(...indexes);
    for (let first = 0; first <= last; first += MOST_TOGETHER) {
      const end = Math.min(last, first + MOST_TOGETHER - 1);
      found.push([`all:${role}:${first}`, `${role} ${first} to ${end}, by time`]);
    }
  }
  return found;
}

/** What an address asks for, else the first instance; null where there is none. `role`: what is shown first is of it. */
export function chosenLog(
  asked: string | null,
  attempt: number | null,
  instances: readonly Named[],
  role?: string,
): LogChoice | null {
  const [all, ofRole, first] = (asked ?? "").split(":");
  if (all === "all" && !ofRole && instances.length > 1) return { together: {} };
  if (all === "all" && ofRole) {
    return { together: { role: ofRole, ...(first === undefined ? {} : { first: Number(first) || 0, count: MOST_TOGETHER }) } };
  }
  const found = instances.find((each) => nameOf(each) === asked);
  if (found) return { one: found, known: true };
  // one that was given up since still has its logs: another one's would be a wrong answer
  const gone = /^(.+)-(\d+)$/.exec(asked ?? "");
  if (gone) return { one: { role: gone[1]!, index: Number(gone[2]), attempt: attempt ?? 0 }, known: false };
  const shown = instances.find((each) => each.role === role) ?? instances[0];
  return shown ? { one: shown, known: true } : null;
}
