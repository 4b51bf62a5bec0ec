// Which of very many checkpoints are shown. Pure.
import type { CheckpointLineage } from "./schema.ts";

/** The first rows of all trainings together; one that saved nothing takes a row too, and one without any of its rows is left out. */
export function firstRows(lineages: readonly CheckpointLineage[], most: number): CheckpointLineage[] {
  const found: CheckpointLineage[] = [];
  let left = most;
  for (const each of lineages) {
    if (left <= 0) break;
    found.push(each.checkpoints.length <= left ? each : { ...each, checkpoints: each.checkpoints.slice(0, left) });
    left -= Math.max(1, each.checkpoints.length);
  }
  return found;
}

/** Without those that are removed, or left behind when training went back. */
export function thatExist(lineages: readonly CheckpointLineage[]): CheckpointLineage[] {
  return lineages.map((each) => ({ ...each, checkpoints: each.checkpoints.filter(({ kept }) => kept) }));
}

export function countOf(lineages: readonly CheckpointLineage[]): number {
  return lineages.reduce((sum, each) => sum + each.checkpoints.length, 0);
}
