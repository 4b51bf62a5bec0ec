// Which of very many instances somebody looks for. Pure.
import type { Instance } from "./api.ts";

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
