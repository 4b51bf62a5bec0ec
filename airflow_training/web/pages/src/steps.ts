// The steps of which there are predictions, as the slider moves over them. Pure.
import type { PredictionFile } from "./schema.ts";

/** Files of one step, or one file that tells no step. */
export interface StepFiles {
  label: string;
  files: PredictionFile[];
}

/** Groups in the order of the slider: what has no step first, by time, then step by step. */
export function stepsOf(newestFirst: readonly PredictionFile[]): StepFiles[] {
  const groups: StepFiles[] = [];
  const known = new Map<number, StepFiles>();
  for (const file of [...newestFirst].reverse()) {
    const group = file.step === null ? undefined : known.get(file.step);
    if (group) {
      group.files.push(file);
      continue;
    }
    const made = { label: file.step === null ? file.name : `Step ${file.step.toLocaleString("en")}`, files: [file] };
    groups.push(made);
    if (file.step !== null) known.set(file.step, made);
  }
  for (const each of groups) each.files.sort((one, other) => one.role.localeCompare(other.role) || one.index - other.index || one.name.localeCompare(other.name));
  return groups;
}

/** What the address says, as the place of a group; the newest where it says nothing that is there. */
export function placeOf(groups: readonly StepFiles[], wanted: string | null): number {
  const found = wanted === null ? -1 : groups.findIndex((each) => keyOf(each) === wanted);
  return found < 0 ? groups.length - 1 : found;
}

/** How the address names a group. */
export function keyOf(group: StepFiles): string {
  const [first] = group.files;
  return first!.step === null ? first!.name : String(first!.step);
}

/** What differs where a group's files are others, or have been written anew. */
export function versionOf(group: StepFiles): string {
  return JSON.stringify(group.files.map((each) => [each.role, each.index, each.name, each.at]));
}
