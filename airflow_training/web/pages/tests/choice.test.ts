import assert from "node:assert/strict";
import { test } from "node:test";

import { asMapIndex, roleOf, trainingsOf } from "../src/choice.ts";

const training = (group_id: string | null, map_index = -1) => ({ group_id, map_index });
const chosen = (trainings: readonly ReturnType<typeof training>[], task: string, mapIndex: number | null = null) =>
  trainingsOf(trainings, task, mapIndex).map((each) => `${each.group_id ?? ""}[${each.map_index}]`);

test("a task belongs to its own group, not to one whose name begins alike", () => {
  const trainings = [training("train"), training("train2")];
  assert.deepEqual(chosen(trainings, "train.plan"), ["train[-1]"]);
  assert.deepEqual(chosen(trainings, "train2.plan"), ["train2[-1]"]);
  assert.deepEqual(chosen(trainings, "train2.worker.run"), ["train2[-1]"]);
  assert.deepEqual(chosen(trainings, "train2"), ["train2[-1]"]);
  assert.deepEqual(chosen(trainings, "training"), []);
});

test("the innermost group is the one, and the top of the DAG the last", () => {
  const trainings = [training(null), training("outer"), training("outer.inner")];
  assert.deepEqual(chosen(trainings, "outer.inner.worker.run"), ["outer.inner[-1]"]);
  assert.deepEqual(chosen(trainings, "outer.other.run"), ["outer[-1]"]);
  assert.deepEqual(chosen(trainings, "plan"), ["[-1]"]);
  assert.deepEqual(chosen([], "plan"), []);
});

test("of a mapped group it is the one of that number", () => {
  const trainings = [training("train", 2), training("train", 1), training("train", 0)];
  assert.deepEqual(chosen(trainings, "train.plan", 1), ["train[1]"]);
  assert.deepEqual(chosen(trainings, "train.plan", 3), [], "it has not been planned yet");
  assert.deepEqual(chosen(trainings, "train.plan"), ["train[2]", "train[1]", "train[0]"], "nobody said which");
});

test("a mapped task of a group that is not mapped", () => {
  assert.deepEqual(chosen([training("train"), training("train2")], "train.role", 1), ["train[-1]"]);
  assert.deepEqual(chosen([training("sweep", 0), training("sweep", 1)], "sweep.role", 1), ["sweep[1]"]);
});

test("a task's role is that of its group, or the one of its number", () => {
  const roles = ["master", "worker"];
  assert.equal(roleOf(roles, "train.worker.run", null), "worker");
  assert.equal(roleOf(roles, "worker.run", null), "worker");
  assert.equal(roleOf(roles, "train.role", 0), "master");
  assert.equal(roleOf(roles, "train.role", 1), "worker");
  assert.equal(roleOf(roles, "train.role", 2), undefined);
  assert.equal(roleOf(roles, "train.role", null), undefined, "all of the mapped task");
  assert.equal(roleOf(roles, "train.plan", 1), undefined);
  assert.equal(roleOf(roles, "worker.train.plan", null), undefined, "a group of that name further out");
  assert.equal(roleOf(roles, "worker", null), undefined);
});

test("a map index as Airflow tells it", () => {
  assert.deepEqual([undefined, "", "-1", -1, "x"].map(asMapIndex), [null, null, null, null, null]);
  assert.deepEqual(["0", "12", 3].map(asMapIndex), [0, 12, 3]);
});
