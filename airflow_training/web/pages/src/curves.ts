// What a chart draws of the series that the server sends. Pure.
import type { BandAnswer, SeriesAnswer } from "./api.ts";

export type Axis = "step" | "samples" | "time" | "minutes";
/** From and to, on the axis of a chart. */
export type Range = [number, number];
type Points = [number[], (number | null)[]];

/** The server answers more curves than this as a band. */
export const MOST_CURVES = 64;

/** The names of more lines are folded into a list. */
export const FEW_LINES = 8;

export interface Curve {
  label: string;
  /** `band`: the edge of an area; `raw`: faint, behind its smoothed line. */
  kind: "line" | "raw" | "band";
  points: Points;
  /** Of the points behind a smoothed line: the label of that line, with which they come and go. */
  behind?: string;
  /** Whose colour it has, from 0; without it lines are counted. */
  place?: number;
}

/** Which of the colours each curve has: that of its line, and the first where it belongs to none. */
export function placesOf(curves: readonly Curve[]): number[] {
  const places = new Map<string, number>();
  for (const { kind, label, place } of curves) if (kind === "line") places.set(label, place ?? places.size);
  return curves.map(({ behind, kind, label }) => places.get(kind === "line" ? label : (behind ?? "")) ?? 0);
}

/** The same names, with these or without them. */
export function having(before: ReadonlySet<string>, names: readonly string[], has: boolean): ReadonlySet<string> {
  return has ? new Set([...before, ...names]) : new Set([...before].filter((each) => !names.includes(each)));
}

export function labelOf(series: SeriesAnswer): string {
  return `${series.role}-${series.index}${series.rank === null ? "" : ` rank ${series.rank}`}`;
}

/** Whether x counts what was done, which may be done again, or tells the time. */
export function isCount(axis: Axis): axis is "step" | "samples" {
  return axis === "step" || axis === "samples";
}

type Sampled = SeriesAnswer & { x_samples?: (number | null)[] };

/** What had been counted at each point; nothing where samples are not told. */
function countsOf(series: Sampled, axis: "step" | "samples"): readonly (number | null)[] {
  return axis === "step" ? series.x_step : (series.x_samples ?? []);
}

/** Whether a series can be drawn along samples. */
export function hasSamples(series: SeriesAnswer): boolean {
  return countsOf(series, "samples").some((each) => each !== null);
}

/** The points of a series on one axis, ascending. Of a step that was done again, the newest value counts. */
export function pointsOf(series: SeriesAnswer, axis: Axis, start: number): Points {
  if (!isCount(axis)) {
    const scale = axis === "minutes" ? 60 : 1;
    const origin = axis === "minutes" ? start : 0;
    return [series.x_time.map((at) => (at - origin) / scale), series.y];
  }
  const found = new Map<number, number | null>();
  let last = -Infinity;
  let ascending = true;
  countsOf(series, axis).forEach((step, place) => {
    if (step === null) return;
    if (step <= last) ascending = false;
    last = step;
    found.set(step, series.y[place] ?? null);
  });
  const steps = [...found.keys()];
  if (!ascending) steps.sort((one, other) => one - other);
  return [steps, steps.map((step) => found.get(step) ?? null)];
}

/** From the first to the last x of all; null: there is none. */
export function extentOf(all: readonly Points[]): Range | null {
  const ends = all.filter(([x]) => x.length > 0).map(([x]): Range => [x[0]!, x.at(-1)!]);
  return ends.length === 0 ? null : [Math.min(...ends.map(([first]) => first)), Math.max(...ends.map(([, last]) => last))];
}

/** What a key makes of the stretch that is shown: closer, farther, along; null: all. Undefined: the key means nothing here. */
export function rangeAfter(key: string, shown: Range | null, all: Range): Range | null | undefined {
  const [from, to] = shown ?? all;
  const size = to - from;
  const within = (start: number, width: number): Range | null => {
    if (width >= all[1] - all[0]) return null;
    const first = Math.min(Math.max(start, all[0]), all[1] - width);
    return [first, first + width];
  };
  if (key === "+" || key === "=") return within(from + size / 4, size / 2);
  if (key === "-") return within(from - size / 2, size * 2);
  if (!shown) return undefined;
  if (key === "ArrowLeft") return within(from - size / 4, size);
  if (key === "ArrowRight") return within(from + size / 4, size);
  if (key === "Escape" || key === "Home") return null;
  return undefined;
}

/** A stretch of time, in epoch seconds; undefined: from the first, to the newest. */
export interface TimeWindow {
  start?: number;
  end?: number;
}

/** There is nothing in the other that is not in the one. */
export function covers(one: TimeWindow, other: TimeWindow): boolean {
  return (one.start ?? -Infinity) <= (other.start ?? -Infinity) && (one.end ?? Infinity) >= (other.end ?? Infinity);
}

/**
 * When the steps of a range were done, which is what the server can be asked for: from the point before the first of them to the
 * one after the last. A step that was done again counts each time. Null: no series has any.
 */
export function timeWindow(all: readonly SeriesAnswer[], [from, to]: Range, axis: "step" | "samples" = "step"): TimeWindow | null {
  let start = Infinity;
  let end = -Infinity;
  for (const each of all) {
    let before: [step: number, at: number] | null = null;
    countsOf(each, axis).forEach((step, place) => {
      if (step === null) return;
      const at = each.x_time[place]!;
      const [other, since] = before ?? [step, at];
      // of a line between two points a part is seen
      if (Math.max(step, other) >= from && Math.min(step, other) <= to) {
        start = Math.min(start, since);
        end = Math.max(end, at);
      }
      before = [step, at];
    });
    // the newest point may be followed by more of them
    if (before && before[0] >= from && before[0] <= to) end = Infinity;
  }
  if (start > end) return null;
  return end === Infinity ? { start } : { start, end };
}

/** All series, with those points within a window that were asked for of it: lines go on beyond it, and are smoothed as they were. */
export function spliced(whole: readonly Sampled[], closer: readonly Sampled[], { start = -Infinity, end = Infinity }: TimeWindow): Sampled[] {
  const found = new Map(closer.map((each) => [labelOf(each), each]));
  return whole.map((each) => {
    const within = found.get(labelOf(each));
    if (!within) return each;
    const before = each.x_time.filter((at) => at < start).length;
    const until = each.x_time.filter((at) => at <= end).length;
    const around = <T>(all: readonly T[] = [], inside: readonly T[] = []) => [...all.slice(0, before), ...inside, ...all.slice(until)];
    return {
      ...within,
      x_step: around(each.x_step, within.x_step),
      x_time: around(each.x_time, within.x_time),
      y: around(each.y, within.y),
      x_samples: around(each.x_samples, within.x_samples),
    };
  });
}

/** Which steps, or samples, had been reached at these times (epoch seconds), each once; nothing of a time before any. */
export function reachedAt(times: readonly number[], all: readonly SeriesAnswer[], axis: "step" | "samples" = "step"): number[] {
  if (times.length === 0) return [];
  const sorted = [...times].sort((one, other) => one - other);
  const reached = sorted.map(() => -Infinity);
  for (const each of all) {
    const counts = countsOf(each, axis);
    let most = -Infinity;
    let place = 0;
    sorted.forEach((time, number) => {
      for (; place < counts.length && each.x_time[place]! < time; place += 1) most = Math.max(most, counts[place] ?? -Infinity);
      reached[number] = Math.max(reached[number]!, most);
    });
  }
  return [...new Set(reached)].filter(Number.isFinite);
}

/** Exponential moving average without bias at its start; `weight` 0 changes nothing. Gaps stay gaps. */
export function smooth([x, y]: Points, weight: number): Points {
  let sum = 0;
  let count = 0;
  return [
    x,
    y.map((value) => {
      if (value === null) return null;
      sum = weight * sum + (1 - weight) * value;
      count = weight * count + (1 - weight);
      return sum / count;
    }),
  ];
}

/** The lines smoothed, the points of each behind it. */
export function smoothed(curves: readonly Curve[], weight: number): readonly Curve[] {
  if (weight === 0) return curves;
  return curves.flatMap((each): Curve[] => {
    if (each.kind !== "line") return [each];
    const { label, points } = each;
    return [
      { ...each, kind: "raw", label: `${label}, raw`, behind: label },
      { ...each, points: smooth(points, weight) },
    ];
  });
}

/** One x for all: the union, with undefined where a series has no point. */
export function join(all: readonly Points[]): [number[], (number | null | undefined)[][]] {
  const union = [...new Set(all.flatMap(([x]) => x))].sort((one, other) => one - other);
  const place = new Map(union.map((x, index) => [x, index]));
  return [
    union,
    all.map(([x, y]) => {
      const row = new Array<number | null | undefined>(union.length).fill(undefined);
      x.forEach((each, index) => {
        row[place.get(each)!] = y[index] ?? null;
      });
      return row;
    }),
  ];
}

/** Median, the 5-95 % band, minimum and maximum. */
export function bandCurves(band: BandAnswer, axis: Axis, start: number): Curve[] {
  const x = axis === "minutes" ? band.x.map((at) => (at - start) / 60) : band.x;
  return [
    { label: "minimum", kind: "raw", points: [x, band.minimum] },
    { label: "maximum", kind: "raw", points: [x, band.maximum] },
    { label: "95 %", kind: "band", points: [x, band.high] },
    { label: "5 %", kind: "band", points: [x, band.low] },
    { label: "median", kind: "line", points: [x, band.median] },
  ];
}

/** One line per point, as spreadsheets read it. */
export function csv(all: readonly SeriesAnswer[]): string {
  const lines = ["name,role,index,rank,step,time,value"];
  for (const each of all) {
    each.y.forEach((value, place) => {
      const time = new Date(each.x_time[place]! * 1000).toISOString();
      lines.push([each.name, each.role, each.index, each.rank ?? "", each.x_step[place] ?? "", time, value ?? "NaN"].map(cell).join(","));
    });
  }
  return `${lines.join("\r\n")}\r\n`;
}

function cell(value: string | number): string {
  const text = String(value);
  // a name that a spreadsheet would take for a formula stays text
  const safe = typeof value === "string" && /^[=+@\-\t\r\n＝＋－＠]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** The path of a line through values, evenly spaced; it is broken where there is none. */
export function sparkline(values: readonly (number | null)[], width: number, height: number): string {
  const told = values.filter((each) => each !== null);
  const least = Math.min(...told);
  const size = Math.max(...told) - least;
  const x = (place: number) => (values.length > 1 ? (place / (values.length - 1)) * width : 0);
  const y = (value: number) => (size > 0 ? (1 - (value - least) / size) * height : height / 2);
  return values
    .map((value, place) => {
      if (value === null) return "";
      const begins = place === 0 || values[place - 1] === null;
      return `${begins ? "M" : "L"}${x(place).toFixed(1)} ${y(value).toFixed(1)}`;
    })
    .join("");
}
