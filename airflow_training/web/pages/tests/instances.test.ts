import assert from "node:assert/strict";
import { test } from "node:test";

import type { Instance } from "../src/api.ts";
import { instancesWith } from "../src/instances.ts";

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
