import assert from "node:assert/strict";
import { test } from "node:test";

import { differences, labelsOf, partsOf, valuesOf } from "../src/compared.ts";

const run = (job: string, run_id: string, uid = "abcdefgh") => ({ job, run_id, uid });

test("a run is called by what tells it from the others", () => {
  assert.deepEqual(labelsOf([run("digits", "monday"), run("digits", "tuesday")]), ["monday", "tuesday"]);
  assert.deepEqual(labelsOf([run("done", "done"), run("broken", "broken")]), ["done", "broken"]);
  assert.deepEqual(labelsOf([run("digits", "monday"), run("letters", "letters")]), ["digits monday", "letters"]);
  assert.deepEqual(labelsOf([run("a", "same", "11111x"), run("a", "same", "22222x"), run("a", "other")]), ["same 11111", "same 22222", "other"]);
});

test("the newest value and both ends are told, gaps left out", () => {
  assert.deepEqual(valuesOf({ y: [3, null, -1, 2] }), { last: 2, least: -1, greatest: 3 });
  assert.deepEqual(valuesOf({ y: [1, null] }), { last: null, least: 1, greatest: 1 });
  assert.equal(valuesOf({ y: [null] }), null);
});

test("fields differ where a value or its absence does, and what a run was given counts before its document", () => {
  const one = { written: { "spec.command": "[python, a.py]", "spec.lr": "1" }, defaults: [{ field: "spec.roles[10].replicas", value: "2" }] };
  const other = {
    written: { "spec.command": "[python, a.py]", "spec.lr": "1", "spec.env.A": "x" },
    defaults: [
      { field: "spec.roles[10].replicas", value: "3" },
      { field: "spec.roles[9].replicas", value: "1" },
      { field: "spec.lr", value: "2" },
    ],
  };
  assert.deepEqual(differences([one, undefined, other]), [
    ["spec.env.A", [undefined, undefined, "x"]],
    ["spec.lr", ["1", undefined, "2"]],
    ["spec.roles[9].replicas", [undefined, undefined, "1"]],
    ["spec.roles[10].replicas", ["2", undefined, "3"]],
  ]);
  assert.deepEqual(differences([one, one]), []);
});

test("a block that only some runs have is one line", () => {
  const plan = { "spec.plan.pp": "3", "spec.plan.nodes[0].count": "1", "spec.plan.batch": "48" };
  const planned = (written: Record<string, string>) => ({ written, defaults: [] });
  assert.deepEqual(differences([planned(plan), planned({}), planned(plan)]), [["spec.plan", ["3 fields", undefined, "3 fields"]]]);
  assert.equal(differences([planned(plan), planned({}), planned({ ...plan, "spec.plan.pp": "4" })]).length, 3);
});

test("names are asked for fifty at a time", () => {
  const names = Array.from({ length: 101 }, (_, number) => `metric-${number}`);
  const parts = partsOf(names);
  assert.deepEqual(parts.map((each) => each.length), [50, 50, 1]);
  assert.deepEqual(parts.flat(), names);
  assert.deepEqual(partsOf([]), []);
});
