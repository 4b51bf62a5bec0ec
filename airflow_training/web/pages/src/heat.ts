// Colours of a heat map: of values, or of how far each is from what is usual at its place. Pure.

export type Colour = readonly [number, number, number];
export type Row = readonly (number | null)[];

/** From dark violet to yellow, ever brighter: its order is seen without colours too. */
const STOPS: readonly Colour[] = [
  [55, 15, 95],
  [60, 75, 150],
  [35, 130, 140],
  [90, 190, 95],
  [250, 230, 60],
];
/** From less by way of the same to more; what is usual is near the colour of the panel, so that the rest stands out. */
const AROUND: Record<"light" | "dark", readonly Colour[]> = {
  light: [
    [0, 84, 147],
    [110, 170, 214],
    [240, 240, 240],
    [240, 150, 80],
    [176, 58, 0],
  ],
  dark: [
    [130, 205, 255],
    [40, 110, 170],
    [44, 44, 48],
    [180, 84, 20],
    [255, 176, 96],
  ],
};
/** The rest is drawn as that: one value far off would make all others look the same. */
const SHOWN = 0.99;

/** Least and greatest of all values; of none, 0 and 1. */
export function extent(rows: readonly Row[]): [number, number] {
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

/** As far on both sides as nearly all values are; 1 where all are the same. */
export function reach(rows: readonly Row[]): [number, number] {
  const sizes = rows.flatMap((row) => row.filter((each) => each !== null).map(Math.abs));
  sizes.sort((one, other) => one - other);
  const most = sizes[Math.ceil(SHOWN * sizes.length) - 1] || sizes.at(-1) || 1;
  return [-most, most];
}

export function colourAt(value: number, range: readonly [number, number]): Colour {
  return mixed(STOPS, value, range);
}

export function colourAround(value: number, range: readonly [number, number], theme: "light" | "dark"): Colour {
  const most = Math.max(Math.abs(range[0]), Math.abs(range[1]));
  const share = Math.min(Math.abs(value) / most, 1);
  // below the line, so that the noise that is everywhere is quiet
  return mixed(AROUND[theme], Math.sign(value) * share ** 1.5, [-1, 1]);
}

function mixed(stops: readonly Colour[], value: number, [low, high]: readonly [number, number]): Colour {
  const share = high > low ? (value - low) / (high - low) : 0.5;
  const place = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const left = Math.min(Math.floor(place), stops.length - 2);
  const mix = (channel: 0 | 1 | 2) => Math.round(stops[left]![channel] + (place - left) * (stops[left + 1]![channel] - stops[left]![channel]));
  return [mix(0), mix(1), mix(2)];
}

/** The cell beside another one that a key leads to; null: the key leads nowhere. */
export function cellAfter(key: string, [row, column]: readonly [number, number], rows: number, columns: number): [number, number] | null {
  const steps: Record<string, readonly [number, number]> = {
    ArrowUp: [-1, 0],
    ArrowDown: [1, 0],
    ArrowLeft: [0, -1],
    ArrowRight: [0, 1],
    Home: [0, -columns],
    End: [0, columns],
    PageUp: [-rows, 0],
    PageDown: [rows, 0],
  };
  const step = steps[key];
  if (!step) return null;
  const within = (value: number, count: number) => Math.min(Math.max(value, 0), count - 1);
  return [within(row + step[0], rows), within(column + step[1], columns)];
}
