// Which runs a list shows, and in which order. Pure.
import type { Summary } from "./api.ts";
import type { RunName } from "./compared.ts";

/** What one looks for, in the words of the badges -> the states of a run. */
export const STATE_GROUPS: Readonly<Record<string, { label: string; states: readonly string[] }>> = {
  running: { label: "Running", states: ["Running"] },
  waiting: { label: "Waiting", states: ["Pending", "Queued", "Starting", "Restarting", "Paused"] },
  succeeded: { label: "Succeeded", states: ["Succeeded"] },
  failed: { label: "Failed", states: ["Failed"] },
  stopped: { label: "Stopped", states: ["Stopped"] },
};

/** Of the address; links may also name a single state. */
export function statesOf(name: string): readonly string[] {
  return name === "" ? [] : (STATE_GROUPS[name.toLowerCase()]?.states ?? [name]);
}

/** `digits/abc,~/def`: DAG and uid of each run, each once; neither holds a slash or a comma. */
export function named(text: string): RunName[] {
  return [...new Set(text.split(","))]
    .filter((each) => each.includes("/"))
    .map((each) => {
      const place = each.indexOf("/");
      return { dag: each.slice(0, place), uid: each.slice(place + 1) };
    });
}

export function nameOf(each: Pick<Summary, "dag" | "uid">): string {
  return `${each.dag}/${each.uid}`;
}

/** The address with these runs beside each other, or with the list where there are none; what the list shows stays chosen. */
export function comparing(before: URLSearchParams, names: readonly string[]): URLSearchParams {
  const next = new URLSearchParams(before);
  if (names.length > 0) next.set("compare", names.join(","));
  else next.delete("compare");
  return next;
}

export const ORDERS = ["job", "state", "progress", "loss", "submitted", "took"] as const;
export type Order = (typeof ORDERS)[number];

/** `loss`, or `-loss` for the greatest first; null: as the server gives them, the newest first. */
export function orderOf(text: string): { by: Order; down: boolean } | null {
  const by = ORDERS.find((each) => each === text.replace(/^-/, ""));
  return by === undefined ? null : { by, down: text.startsWith("-") };
}

/** What the head of a column leads to: up, down, and as it was. */
export function nextOrder(by: Order, text: string): string {
  const now = orderOf(text);
  return now?.by !== by ? by : now.down ? "" : `-${by}`;
}

/** What a run is sorted by; null: nothing is known, and it comes last either way. */
type Known = { losses: readonly (number | null)[] | undefined; took: number | null };

function keyOf(each: Summary, by: Order, { losses, took }: Known): number | string | null {
  if (by === "job") return each.job.toLowerCase();
  if (by === "state") return each.phrase;
  if (by === "progress") return each.progress?.fraction ?? null;
  if (by === "loss") return losses?.findLast((value) => value !== null) ?? null;
  return by === "took" ? took : Date.parse(each.submitted_at);
}

/** Runs in an order; those that are equal in it stay as they were. */
export function sorted(runs: readonly Summary[], order: ReturnType<typeof orderOf>, known: (each: Summary) => Known): readonly Summary[] {
  if (!order) return runs;
  const keyed = runs.map((each) => ({ each, key: keyOf(each, order.by, known(each)) }));
  const sign = order.down ? -1 : 1;
  keyed.sort(({ key: one }, { key: other }) => {
    if (one === null || other === null) return Number(one === null) - Number(other === null);
    return one < other ? -sign : one > other ? sign : 0;
  });
  return keyed.map(({ each }) => each);
}
