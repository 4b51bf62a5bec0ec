// What is tried of a job's parameters: as it is typed, and what goes to the server. Pure.
import { valueAt, type Path } from "./yamlPatch.ts";

export interface TunedRow {
  name: string;
  kind: "values" | "range" | "log";
  /** As typed: values with commas between them. */
  values: string;
  low: string;
  high: string;
}

export interface TuningDraft {
  rows: readonly TunedRow[];
  /** As typed; empty: every combination. */
  trials: string;
  /** What the trials are compared by, once they have told it. */
  metric: string;
  goal: "max" | "min";
}

export const NO_TUNING: TuningDraft = { rows: [], trials: "", metric: "", goal: "max" };

/** As the server takes it. */
export function tuningRequest({ rows, trials }: TuningDraft): object {
  const count = trials.trim();
  return {
    parameters: rows.map(({ high, kind, low, name, values }) =>
      kind === "values" ? { name, values } : { name, low, high, log: kind === "log" },
    ),
    ...(count === "" ? {} : { trials: /^\d{1,6}$/.test(count) ? Number(count) : 0 }),
  };
}

/** Of what this browser has kept; anything else is nothing. */
export function tuningOf(kept: unknown): TuningDraft {
  const { goal, metric, rows, trials } = (typeof kept === "object" && kept !== null ? kept : {}) as Record<string, unknown>;
  if (!Array.isArray(rows)) return NO_TUNING;
  const text = (value: unknown) => (typeof value === "string" ? value : "");
  return {
    rows: rows.map((each: Record<string, unknown>) => ({
      name: text(each?.["name"]),
      kind: each?.["kind"] === "range" || each?.["kind"] === "log" ? each["kind"] : "values",
      values: text(each?.["values"]),
      low: text(each?.["low"]),
      high: text(each?.["high"]),
    })),
    trials: text(trials),
    metric: text(metric),
    goal: goal === "min" ? "min" : "max",
  };
}

/** Parameters that the document declares. */
export function declaredIn(values: unknown): readonly string[] {
  const params = valueAt(values, ["spec", "dag", "params"]);
  return typeof params === "object" && params !== null && !Array.isArray(params) ? Object.keys(params) : [];
}

/** Fields of the trainer that no parameter sets yet. */
export function freeFields(values: unknown, fields: readonly string[]): readonly string[] {
  if (valueAt(values, ["spec", "trainer"]) === undefined) return [];
  const bound = valueAt(values, ["spec", "trainer", "fromParams"]);
  return fields.filter((each) => typeof bound !== "object" || bound === null || !Object.hasOwn(bound, each));
}

/** What makes a field of the trainer a parameter: its name, and what is written where. `usual`: its value where none is written. */
export function parameterOf(values: unknown, field: string, usual: unknown): { name: string; edits: readonly (readonly [Path, unknown])[]; value: unknown } {
  const taken = declaredIn(values);
  const short = field.slice(field.lastIndexOf(".") + 1);
  let name = short;
  for (let number = 2; taken.includes(name); number += 1) name = `${short}${number}`;
  const value = valueAt(values, ["spec", "trainer", ...field.split(".")]) ?? usual ?? null;
  return {
    name,
    value,
    edits: [
      [["spec", "dag", "params", name], { default: value }],
      [["spec", "trainer", "fromParams", field], name],
    ],
  };
}
