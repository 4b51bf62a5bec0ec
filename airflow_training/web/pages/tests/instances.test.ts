import assert from "node:assert/strict";
import { test } from "node:test";

import type { Instance } from "../src/api.ts";
import { instancesWith, isSilent, metricColumns, rankOf, rowWindow } from "../src/instances.ts";

const instance = (index: number, state: string, node = "", reason = "") => ({ role: "worker", index, state, node, address: "", reason }) as Instance;
const found = (text: string, instances: readonly Instance[]) => instancesWith(text, instances).map(({ index }) => index);

test("what does not run comes first, else the order stays", () => {
  const instances = [instance(0, "running"), instance(1, "pending"), instance(2, "succeeded"), instance(3, "failed")];
  assert.deepEqual(found("", instances), [1, 3, 0, 2]);
});

test("every word is looked for in the name, the state, the node and the reason", () => {
  const instances = [instance(1, "running", "node-a"), instance(11, "failed", "node-b", "OOMKilled"), instance(2, "failed", "node-a")];
  assert.deepEqual(found("worker-1", instances), [11, 1]);
  assert.deepEqual(found("FAILED  node-a", instances), [2]);
  assert.deepEqual(found("oomkilled", instances), [11]);
  assert.deepEqual(found("nowhere", instances), []);
});

test("of many metrics the losses and scores are columns, not what has one of its own", () => {
  const metrics = { "worker-0": { zeta: 1, samples_per_second: 1 }, "worker-1": { accuracy: 1, loss: null, alpha: 1 } };
  assert.deepEqual(metricColumns(metrics), ["loss", "accuracy", "alpha"]);
});

test("who runs and was not heard for a minute is silent", () => {
  const now = Date.parse("2026-01-01T00:02:00Z");
  assert.equal(isSilent({ state: "running" }, "2026-01-01T00:00:59Z", now), true);
  assert.equal(isSilent({ state: "running" }, "2026-01-01T00:01:01Z", now), false);
  assert.equal(isSilent({ state: "succeeded" }, "2026-01-01T00:00:00Z", now), false);
  assert.equal(isSilent({ state: "running" }, undefined, now), false);
});

test("ranks count on from the first of the role", () => {
  const roles = [{ name: "worker", first_rank: 1 }, { name: "ps", first_rank: null }] as never;
  assert.equal(rankOf({ role: "worker", index: 2 }, roles), 3);
  assert.equal(rankOf({ role: "ps", index: 0 }, roles), null);
});

test("of a long table what is in sight is drawn, and as much above and below", () => {
  const row = 50;
  assert.deepEqual(rowWindow({ count: 5000, row, size: 500, top: 0 }), { first: 0, end: 20 });
  assert.deepEqual(rowWindow({ count: 5000, row, size: 500, top: 100_000 }), { first: 1990, end: 2020 });
  assert.deepEqual(rowWindow({ count: 5000, row, size: 500, top: 249_500 }), { first: 4980, end: 5000 });
  // fewer are found than were scrolled past
  assert.deepEqual(rowWindow({ count: 3, row, size: 500, top: 100_000 }), { first: 2, end: 3 });
  assert.deepEqual(rowWindow({ count: 0, row, size: 500, top: 0 }), { first: 0, end: 0 });
});
