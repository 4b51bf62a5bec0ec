import assert from "node:assert/strict";
import { test } from "node:test";

import { compact, deviation, fraction, ordered, signed } from "../src/reading.ts";
import type { InstanceData } from "../src/schema.ts";

function instance(index: number, values: Partial<InstanceData>): InstanceData {
  return {
    role: "worker", index, rank: index, node: "", state: "running", step: null, samples: null, samples_per_second: null, read: null,
    read_per_second: null, files_known: 0, files_done: 0, stalled_seconds: null, stall_count: 0, stall_seconds: 0, ...values,
  };
}

test("a deviation has a sign and one digit", () => {
  assert.deepEqual([110, 97.5, 100.01, null].map((each) => signed(deviation(each, 100))), ["+10.0 %", "−2.5 %", "±0.0 %", ""]);
  assert.equal(deviation(0, 0), null);
});

test("instances that tell nothing come last, equal ones in the order of their ranks", () => {
  const all = [
    instance(0, {}),
    instance(1, { samples: 9, samples_per_second: 5 }),
    instance(2, { samples: 4, read_per_second: 2, stall_seconds: 40 }),
    instance(3, { samples: 9, samples_per_second: 5, stall_seconds: 70 }),
  ];
  const indexes = (order: Parameters<typeof ordered>[1]) => ordered(all, order).map((each) => each.index);
  assert.deepEqual(indexes("rank"), [0, 1, 2, 3]);
  assert.deepEqual(indexes("fewest"), [2, 1, 3, 0]);
  assert.deepEqual(indexes("slowest"), [2, 1, 3, 0]);
  assert.deepEqual(indexes("stalled"), [3, 2, 0, 1]);
});

test("amounts are short", () => {
  assert.deepEqual([0, 1280, 3127.8, 12_345, 7.256, 3e9, null].map(compact), ["0", "1,280", "3,128", "12.3K", "7.26", "3B", ""]);
});

test("a file is read to its end at most", () => {
  assert.deepEqual([fraction(5, 10), fraction(20, 10), fraction(0, 0), fraction(3, null), fraction(null, null)], [0.5, 1, 1, null, null]);
});
