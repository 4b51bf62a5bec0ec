// Runs beside each other: which they are, how they are called, and where they differ. Pure.
import type { SeriesAnswer, Summary } from "./schema.ts";

export const MOST_RUNS = 8;

export interface RunName {
  dag: string;
  uid: string;
}

/** Of one request for series, as the server allows. */
const MOST_NAMES = 50;

/** Names in parts, each few enough for one request. */
export function partsOf(names: readonly string[]): (readonly string[])[] {
  return Array.from({ length: Math.ceil(names.length / MOST_NAMES) }, (_, part) => names.slice(part * MOST_NAMES, (part + 1) * MOST_NAMES));
}

type Named = Pick<Summary, "job" | "run_id" | "uid">;

/** What tells runs apart: the run's id where all are of one job, the job's name where a run is called so. */
export function labelsOf(runs: readonly Named[]): string[] {
  const oneJob = new Set(runs.map((each) => each.job)).size === 1;
  const plain = runs.map(({ job, run_id }) => (oneJob || run_id === job ? run_id : `${job} ${run_id}`));
  // trainings of one DAG run have one id
  return plain.map((label, place) => (plain.filter((each) => each === label).length > 1 ? `${label} ${runs[place]!.uid.slice(0, 5)}` : label));
}

export interface Told {
  last: number | null;
  least: number;
  greatest: number;
}

/** The newest value and both ends; null: no number was told. */
export function valuesOf({ y }: Pick<SeriesAnswer, "y">): Told | null {
  const numbers = y.filter((each) => each !== null);
  if (numbers.length === 0) return null;
  return { last: y.at(-1) ?? null, least: Math.min(...numbers), greatest: Math.max(...numbers) };
}

interface Configured {
  written: Record<string, string>;
  defaults: readonly { field: string; value: string }[];
}

type Difference = [field: string, values: (string | undefined)[]];

/** Blocks of a document, as `spec.plan`, that some runs have alike and the others lack: one line each. */
function folded(fields: readonly Difference[]): Difference[] {
  const blockOf = (field: string) => /^[^.[]+\.[^.[]+(?=[.[])/.exec(field)?.[0] ?? field;
  const blocks = new Map<string, Difference[]>();
  for (const each of fields) {
    const block = blockOf(each[0]);
    blocks.set(block, [...(blocks.get(block) ?? []), each]);
  }
  return [...blocks].flatMap(([block, inside]) => {
    const lacking = JSON.stringify(inside[0]![1].map((each) => each === undefined));
    const isWhole = inside.every(
      ([, values]) =>
        JSON.stringify(values.map((each) => each === undefined)) === lacking && new Set(values.filter((each) => each !== undefined)).size === 1,
    );
    if (inside.length < 3 || !isWhole) return inside;
    return [[block, inside[0]![1].map((each) => (each === undefined ? undefined : `${inside.length} fields`))]];
  });
}

/** Fields whose values are not the same in all runs, with those values; a run whose document is not known has none. */
export function differences(runs: readonly (Configured | undefined)[]): Difference[] {
  const told = runs.map((each) => each && new Map([...Object.entries(each.written), ...each.defaults.map(({ field, value }) => [field, value] as const)]));
  const known = told.filter((each) => each !== undefined);
  const fields = new Set(known.flatMap((each) => [...each.keys()]));
  return folded(
    [...fields]
      .filter((field) => new Set(known.map((each) => each.get(field))).size > 1)
      .sort((one, other) => one.localeCompare(other, "en", { numeric: true }))
      .map((field) => [field, told.map((each) => each?.get(field))]),
  );
}
