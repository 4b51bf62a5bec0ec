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
