import assert from "node:assert/strict";
import test from "node:test";

import { absentFiles } from "../src/dataFiles.ts";

const files = ["a.csv", "2026/b.csv", "2026/may/c.csv"].map((name) => ({ name }));

test("a file is there by its name, and a folder by what is in it", () => {
  assert.deepEqual(absentFiles(["a.csv", "./a.csv", "2026", "2026/may/", "2026/b.csv"], files), []);
});

test("what the address has not is told once", () => {
  assert.deepEqual(absentFiles(["train-0.csv", "b.csv", "202", "train-0.csv", ""], files), ["train-0.csv", "b.csv", "202"]);
  assert.deepEqual(absentFiles(["a.csv"], []), ["a.csv"]);
});

test("what a list of the address cannot tell is not said to be absent", () => {
  assert.deepEqual(absentFiles([".", "./", "/srv/a.csv", "s3://b/a.csv", "{{ params.day }}.csv", ".hidden.csv", "x/.y/z.csv", "/"], files), []);
});
