import assert from "node:assert/strict";
import { test } from "node:test";

import { pageAlone } from "../src/runPage.ts";

test("the page of a run alone shows what its tab showed", () => {
  const run = { dag: "team/digits", uid: "abc" };
  assert.equal(pageAlone(run), "/plugin/trainings?run=team%2Fdigits/abc");
  const query = new URLSearchParams({ training: "abc", tab: "logs", instance: "worker-0", offset: "12" });
  assert.equal(pageAlone(run, query), "/plugin/trainings?run=team%2Fdigits/abc&tab=logs&instance=worker-0&offset=12");
});
