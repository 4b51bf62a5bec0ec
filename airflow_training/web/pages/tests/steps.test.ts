import assert from "node:assert/strict";
import { test } from "node:test";

import type { PredictionFile } from "../src/schema.ts";
import { keyOf, placeOf, stepsOf, versionOf } from "../src/steps.ts";

function file(name: string, step: number | null, index = 0): PredictionFile {
  return { role: "worker", index, name, kind: "table", step, at: null, bytes: 1 };
}

const NEWEST_FIRST = [file("step-1000.csv", 1000, 1), file("step-1000.csv", 1000), file("step-9.csv", 9), file("new.png", null), file("old.png", null)];

test("the slider goes from what tells no step to the newest step", () => {
  const groups = stepsOf(NEWEST_FIRST);
  assert.deepEqual(groups.map((each) => each.label), ["old.png", "new.png", "Step 9", "Step 1,000"]);
  assert.deepEqual(groups.at(-1)!.files.map((each) => each.index), [0, 1]);
});

test("an address leads to its step, and one that leads nowhere to the newest", () => {
  const groups = stepsOf(NEWEST_FIRST);
  assert.deepEqual(groups.map(keyOf), ["old.png", "new.png", "9", "1000"]);
  assert.deepEqual(["9", "new.png", "7", null].map((wanted) => placeOf(groups, wanted)), [2, 1, 3, 3]);
  assert.equal(placeOf([], null), -1);
});

test("a file that is written anew makes another version of its step", () => {
  const [group] = stepsOf([file("now.csv", null)]);
  const anew = { ...group!, files: [{ ...group!.files[0]!, at: "2026-01-01T00:00:00Z" }] };
  assert.equal(versionOf(group!), versionOf(stepsOf([file("now.csv", null)])[0]!));
  assert.notEqual(versionOf(group!), versionOf(anew));
});
