// Which of very many checkpoints are shown.
import assert from "node:assert/strict";
import { test } from "node:test";

import { countOf, firstRows, thatExist } from "../src/checkpointRows.ts";
import type { CheckpointLineage } from "../src/schema.ts";

const lineage = (number: number, checkpoints: number) => ({ number, checkpoints: Array.from({ length: checkpoints }, (_, step) => ({ step })) }) as unknown as CheckpointLineage;
const counts = (lineages: readonly CheckpointLineage[]) => firstRows(lineages, 100).map((each) => [each.number, each.checkpoints.length]);

test("the first rows of all trainings together are shown", () => {
  assert.deepEqual(counts([lineage(0, 1001)]), [[0, 100]]);
  assert.deepEqual(counts([lineage(2, 60), lineage(1, 60), lineage(0, 60)]), [[2, 60], [1, 40]]);
  assert.deepEqual(counts([lineage(1, 60), lineage(0, 40)]), [[1, 60], [0, 40]]);
});

test("a training that saved nothing takes a row too", () => {
  assert.equal(counts(Array.from({ length: 500 }, (_, number) => lineage(number, 0))).length, 100);
  assert.deepEqual(counts([lineage(1, 0), lineage(0, 100)]), [[1, 0], [0, 99]]);
});

test("what is removed is left out, and its training stays", () => {
  const saved = [{ number: 1, checkpoints: [{ step: 30, kept: true }, { step: 20, kept: false }] }, { number: 0, checkpoints: [{ step: 10, kept: false }] }];
  const there = thatExist(saved as unknown as CheckpointLineage[]);
  assert.deepEqual(there.map(({ checkpoints }) => checkpoints.map(({ step }) => step)), [[30], []]);
  assert.equal(countOf(there), 1);
});
