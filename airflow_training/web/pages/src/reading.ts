// What instances have read, as the page orders and words it. Pure.
import type { InstanceData } from "./schema.ts";
import { quantity } from "./words.ts";

export type Order = "rank" | "fewest" | "slowest" | "stalled";
export const ORDERS: Record<Order, string> = {
  rank: "By rank",
  fewest: "Fewest samples first",
  slowest: "Slowest first",
  stalled: "Stalled longest first",
};

/** How far from the mean, in per cent; null: nobody can tell. */
export function deviation(samples: number | null, mean: number | undefined): number | null {
  return samples === null || !mean ? null : 100 * (samples / mean - 1);
}

/** `+3.2 %`. */
export function signed(percent: number | null): string {
  if (percent === null) return "";
  const rounded = Math.abs(percent) < 0.05 ? 0 : percent;
  return `${rounded > 0 ? "+" : rounded < 0 ? "−" : "±"}${Math.abs(rounded).toFixed(1)} %`;
}

/** Instances in an order; those that tell nothing come last. */
export function ordered(instances: readonly InstanceData[], order: Order): InstanceData[] {
  if (order === "rank") return [...instances];
  const key = (each: InstanceData): number =>
    order === "fewest"
      ? (each.samples ?? Infinity)
      : order === "slowest"
        ? (each.samples_per_second ?? each.read_per_second ?? Infinity)
        : -each.stall_seconds;
  const value = new Map(instances.map((each) => [each, key(each)]));
  return [...instances].sort((one, other) => {
    const [a, b] = [value.get(one)!, value.get(other)!];
    return a === b ? 0 : a - b;
  });
}

const COMPACT = new Intl.NumberFormat("en", { maximumSignificantDigits: 3, notation: "compact" });

/** `1,280`, `12.3K`: rates and amounts of any size. */
export function compact(value: number | null | undefined): string {
  if (value === null || value === undefined) return "";
  const size = Math.abs(value);
  return size >= 1000 && size < 10_000 ? quantity(Math.round(value)) : COMPACT.format(value);
}

/** How much of a file was read, from 0 to 1; null: its size is not known. */
export function fraction(read: number | null, total: number | null): number | null {
  return read === null || total === null ? null : total > 0 ? Math.min(1, read / total) : 1;
}
