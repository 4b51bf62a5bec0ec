import assert from "node:assert/strict";
import { test } from "node:test";

import { cells, largest, levels, MOST_ROWS, strategyWords, unmeasured, type Plan } from "../src/split.ts";

function strategy(values: Record<string, unknown>): Plan["strategy"] {
  return { tp: 1, pp: 1, dp: 1, cp: 1, ep: 1, micro_batch: 2, zero: 0, recompute: "none", virtual_stages: 1, ...values };
}

const axis = (size: number, stride: number) => ({ size, stride, level: "node" });

test("each device is in one cell, where the placement has put it", () => {
  const placement = { axes: { tp: axis(2, 1), cp: axis(1, 2), dp: axis(4, 2), pp: axis(8, 8) } };
  const rows = cells({ strategy: strategy({ tp: 2, pp: 8, dp: 4 }), placement });
  assert.deepEqual(rows[0]![0]!.devices, [0, 1]);
  assert.deepEqual(rows[3]![7]!.devices, [62, 63]);
  const all = rows.flat().flatMap((each) => each.devices);
  assert.deepEqual(all.sort((one, other) => one - other), Array.from({ length: 64 }, (_, device) => device));
});

test("axes are told by what they lie within", () => {
  const axes = { tp: axis(2, 1), dp: axis(4, 2), cp: axis(1, 2), pp: { size: 8, stride: 8, level: "cluster" } };
  assert.deepEqual(levels({ axes }), [["node", ["tensor", "data"]]]);
});

test("of very many replicas some are drawn, and a plan without a placement is drawn too", () => {
  const rows = cells({ strategy: strategy({ dp: 500, cp: 2 }), placement: {} });
  assert.equal(rows.length, MOST_ROWS);
  assert.deepEqual(rows[1]![0]!.devices, [2, 3]);
});

test("a strategy in words leaves out what is not split", () => {
  assert.equal(strategyWords(strategy({ dp: 4, pp: 8, zero: 2 })), "data 4 × pipeline 8, micro-batch 2, ZeRO 2");
  assert.equal(strategyWords(strategy({})), "one device, micro-batch 2");
});

test("small parts are one, and all parts add up", () => {
  const parts = [{ name: "a", value: 1 }, { name: "b", value: 98.2 }, { name: "c", value: 0.5 }, { name: "d", value: 0.3 }];
  const shown = largest(parts);
  assert.deepEqual(shown.map((each) => each.name), ["b", "a", "other"]);
  assert.ok(Math.abs(shown.reduce((sum, each) => sum + each.value, 0) - 100) < 1e-9);
  assert.deepEqual(largest([]), []);
});

test("parts are told in words", () => {
  const parts = [{ name: "pp", value: 2 }, { name: "tp", value: 1 }, { name: "late_part", value: 1 }];
  assert.deepEqual(largest(parts).map((each) => each.name), ["transfers between pipeline stages", "exchanges within layers", "late part"]);
});

test("a plan without measurements says why, and of a run that is over nothing that may come", () => {
  const sized = { applied: { replicas: {}, env: ["DP_SIZE", "TP_SIZE"] } };
  assert.match(unmeasured(sized, { over: false, step: null }), /^Nothing is measured yet/);
  assert.match(unmeasured(sized, { over: true, step: null }), /^Nothing was measured: .* no script reported a step/);
  assert.match(unmeasured(sized, { over: true, step: 2 }), /^Nothing was measured: the run ended before enough steps/);
  for (const over of [true, false]) {
    assert.match(unmeasured({ applied: { replicas: { worker: 2 }, env: [] } }, { over, step: 9 }), /was not given to the scripts/);
  }
});
