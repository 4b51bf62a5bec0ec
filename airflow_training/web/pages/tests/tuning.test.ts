// What is typed into Auto-tune goes to the server as it was typed, and nothing of it is lost.
import assert from "node:assert/strict";
import { test } from "node:test";

import { goalOf } from "../src/metricOrder.ts";
import { declaredIn, freeFields, NO_TUNING, parameterOf, tuningOf, tuningRequest, type TuningDraft } from "../src/tuning.ts";

const TUNING: TuningDraft = {
  rows: [
    { name: "lr", kind: "log", values: "", low: "1e-4", high: "1.0" },
    { name: "layers", kind: "values", values: "1, 2", low: "", high: "" },
  ],
  trials: "12",
  metric: "accuracy",
  goal: "max",
};

test("ends of ranges stay as they were typed", () => {
  assert.deepEqual(tuningRequest(TUNING), {
    parameters: [
      { name: "lr", low: "1e-4", high: "1.0", log: true },
      { name: "layers", values: "1, 2" },
    ],
    trials: 12,
  });
  assert.deepEqual(tuningRequest({ ...TUNING, rows: [], trials: " " }), { parameters: [] });
  assert.deepEqual(tuningRequest({ ...TUNING, rows: [], trials: "many" }), { parameters: [], trials: 0 }, "the server says what is wrong");
});

test("a browser gives back what it has kept, and nothing else", () => {
  assert.deepEqual(tuningOf(JSON.parse(JSON.stringify(TUNING))), TUNING);
  for (const other of [undefined, null, 3, [], { rows: 3 }]) assert.deepEqual(tuningOf(other), NO_TUNING);
  assert.deepEqual(tuningOf({ rows: [null, { name: 3, kind: "x" }] }).rows, [
    { name: "", kind: "values", values: "", low: "", high: "" },
    { name: "", kind: "values", values: "", low: "", high: "" },
  ]);
});

test("a field of the trainer becomes a parameter once", () => {
  const values = {
    spec: {
      trainer: { epochs: 3, optimizer: { learningRate: 0.1 }, fromParams: { epochs: "epochs" } },
      dag: { params: { epochs: { default: 3 }, learningRate: { default: 1 } } },
    },
  };
  assert.deepEqual(declaredIn(values), ["epochs", "learningRate"]);
  assert.deepEqual(freeFields(values, ["epochs", "optimizer.learningRate"]), ["optimizer.learningRate"]);
  assert.deepEqual(freeFields({ spec: {} }, ["epochs"]), []);
  assert.deepEqual(parameterOf(values, "optimizer.learningRate", 0.001), {
    name: "learningRate2",
    value: 0.1,
    edits: [
      [["spec", "dag", "params", "learningRate2"], { default: 0.1 }],
      [["spec", "trainer", "fromParams", "optimizer.learningRate"], "learningRate2"],
    ],
  });
  assert.equal(parameterOf(values, "batchSize", 32).value, 32);
});

test("less of a loss is better, more of a score", () => {
  for (const name of ["loss", "test_loss", "val/loss", "perplexity", "rmse"]) assert.equal(goalOf(name), "min", name);
  for (const name of ["accuracy", "ndcg", "glossary_score", ""]) assert.equal(goalOf(name), "max", name);
});
