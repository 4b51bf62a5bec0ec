// Colours of a heat map. Pure.

/** From dark violet to yellow, ever brighter: its order is seen without colours too. */
const STOPS = [
  [55, 15, 95],
  [60, 75, 150],
  [35, 130, 140],
  [90, 190, 95],
  [250, 230, 60],
] as const;

/** Least and greatest of all values; of none, 0 and 1. */
export function extent(rows: readonly (readonly (number | null)[])[]): [number, number] {
  let low = Infinity;
  let high = -Infinity;
  for (const row of rows) {
    for (const value of row) {
      if (value === null) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  }
  return low <= high ? [low, high] : [0, 1];
}

export function colourAt(value: number, [low, high]: readonly [number, number]): [number, number, number] {
  const share = high > low ? (value - low) / (high - low) : 0.5;
  const place = Math.min(Math.max(share, 0), 1) * (STOPS.length - 1);
  const left = Math.min(Math.floor(place), STOPS.length - 2);
  const mix = (channel: 0 | 1 | 2) =>
    Math.round(STOPS[left]![channel] + (place - left) * (STOPS[left + 1]![channel] - STOPS[left]![channel]));
  return [mix(0), mix(1), mix(2)];
}
