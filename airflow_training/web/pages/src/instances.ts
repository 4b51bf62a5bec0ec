// Which of very many instances somebody looks for, and what is told of each. Pure.
import type { Detail, Instance } from "./api.ts";
import { ordered } from "./metricOrder.ts";
import { seconds } from "./words.ts";

const QUIET = new Set(["running", "succeeded"]);

/** The instances with all words of a text in their name, state, node, address or reason; those that do not run come first. */
export function instancesWith(text: string, instances: readonly Instance[]): Instance[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = instances.filter((each) => {
    const { role, index, state, node, address, reason } = each;
    const told = [`${role}-${index}`, state, node, address, reason].join(" ").toLowerCase();
    return words.every((word) => told.includes(word));
  });
  const quiet = ({ state }: Instance) => Number(QUIET.has(state));
  return found.sort((one, other) => quiet(one) - quiet(other));
}

/** Rows of a long table that are drawn: those in sight and some around them; the rest is empty space above and below. */
export interface RowWindow {
  first: number;
  /** The one behind the last. */
  end: number;
}

/** `top`, `size` and `row` in pixels: how far it is scrolled, how much is in sight, the height of each row. */
export function rowWindow({ count, row, size, top }: { count: number; row: number; size: number; top: number }): RowWindow {
  const around = Math.ceil(size / row);
  const first = Math.min(Math.max(0, Math.floor(top / row) - around), Math.max(0, count - 1));
  // on even rows, so that stripes and what is drawn anew change seldom
  return { first: first - (first % 2), end: Math.min(count, Math.ceil((top + size) / row) + around) };
}

const MOST_METRICS = 3;
/** It has a column of its own. */
const RATE = "samples_per_second";

/** The few metrics that say most of a training: losses first, then scores. */
export function metricColumns(metrics: Detail["metrics"]): string[] {
  const names = new Set(Object.values(metrics).flatMap((each) => Object.keys(each)));
  return ordered([...names].filter((each) => each !== RATE)).slice(0, MOST_METRICS);
}

/** Agents look each ten seconds: who was not heard for so long may be gone, or hang. */
const QUIET_SECONDS = 60;

/** `now`: by the clock of the server, which has dated what it heard. */
export function isSilent(instance: Pick<Instance, "state">, heard: string | undefined, now: number): boolean {
  const at = seconds(heard);
  return instance.state === "running" && at !== null && now / 1000 - at > QUIET_SECONDS;
}

export function rankOf({ role, index }: Pick<Instance, "role" | "index">, roles: Detail["roles"]): number | null {
  const first = roles.find((each) => each.name === role)?.first_rank ?? null;
  return first === null ? null : first + index;
}
