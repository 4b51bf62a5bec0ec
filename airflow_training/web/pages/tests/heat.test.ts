import assert from "node:assert/strict";
import { test } from "node:test";

import { cellAfter, colourAround, colourAt, extent, reach } from "../src/heat.ts";

test("the extent is that of all values, gaps left out", () => {
  assert.deepEqual(extent([[3, null], [-1, 2]]), [-1, 3]);
  assert.deepEqual(extent([[null], []]), [0, 1]);
});

test("a greater value is brighter, and one value alone is in the middle", () => {
  const light = [0, 1, 2, 3, 4].map((value) => colourAt(value, [0, 4])).map(([red, green, blue]) => 0.3 * red + 0.6 * green + 0.1 * blue);
  assert.deepEqual(light, [...light].sort((one, other) => one - other));
  assert.deepEqual(colourAt(7, [7, 7]), colourAt(2, [0, 4]));
});

test("one value that is far off does not make the others look the same", () => {
  const row = Array.from({ length: 200 }, (_, place) => (place % 2 ? 1 : -1));
  row[7] = 1000;
  assert.deepEqual(reach([row]), [-1, 1]);
  assert.deepEqual(reach([[0, 0, null]]), [-1, 1]);
  assert.deepEqual(reach([[0, 0, 0, 3]]), [-3, 3]);
});

test("more and less than usual have different colours, and what is usual is near the panel", () => {
  const light = ([red, green, blue]: readonly number[]) => 0.3 * red! + 0.6 * green! + 0.1 * blue!;
  for (const [theme, usual] of [["light", true], ["dark", false]] as const) {
    const [less, same, more] = [-9, 0, 1].map((value) => colourAround(value, [-1, 1], theme));
    assert.notDeepEqual(less, more);
    assert.equal(light(same!) > light(less!), usual);
    assert.equal(light(same!) > light(more!), usual);
  }
});

test("arrows lead to the cell beside, and not over the edge", () => {
  assert.deepEqual(cellAfter("ArrowDown", [0, 0], 2, 3), [1, 0]);
  assert.deepEqual(cellAfter("ArrowDown", [1, 0], 2, 3), [1, 0]);
  assert.deepEqual(cellAfter("End", [1, 0], 2, 3), [1, 2]);
  assert.deepEqual(cellAfter("PageUp", [1, 1], 2, 3), [0, 1]);
  assert.equal(cellAfter("Tab", [0, 0], 2, 3), null);
});
