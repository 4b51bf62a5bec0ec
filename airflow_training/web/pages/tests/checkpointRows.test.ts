// Which of very many checkpoints are shown.
import assert from "node:assert/strict";
import { test } from "node:test";

import { firstRows } from "../src/checkpointRows.ts";
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
