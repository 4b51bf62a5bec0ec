import assert from "node:assert/strict";
import { test } from "node:test";

import { colourAt, extent } from "../src/heat.ts";

test("the extent is that of all values, gaps left out", () => {
  assert.deepEqual(extent([[3, null], [-1, 2]]), [-1, 3]);
  assert.deepEqual(extent([[null], []]), [0, 1]);
});

test("a greater value is brighter, and one value alone is in the middle", () => {
  const light = [0, 1, 2, 3, 4].map((value) => colourAt(value, [0, 4])).map(([red, green, blue]) => 0.3 * red + 0.6 * green + 0.1 * blue);
  assert.deepEqual(light, [...light].sort((one, other) => one - other));
  assert.deepEqual(colourAt(7, [7, 7]), colourAt(2, [0, 4]));
});
