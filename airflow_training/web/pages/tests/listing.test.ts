// Which runs a list shows, and in which order.
import assert from "node:assert/strict";
import { test } from "node:test";

import type { Summary } from "../src/api.ts";
import { comparing, named, nextOrder, orderOf, sorted, STATE_GROUPS, statesOf } from "../src/listing.ts";

test("every state of a run belongs to one group", () => {
  const all = Object.values(STATE_GROUPS).flatMap((each) => each.states);
  assert.deepEqual([...all].sort(), ["Failed", "Paused", "Pending", "Queued", "Restarting", "Running", "Starting", "Stopped", "Succeeded"]);
});

test("a group of the address is its states, any other word is itself", () => {
  assert.deepEqual(statesOf("waiting"), ["Pending", "Queued", "Starting", "Restarting", "Paused"]);
  assert.deepEqual(statesOf("Failed"), ["Failed"]);
  assert.deepEqual(statesOf("Paused"), ["Paused"]);
  assert.deepEqual(statesOf(""), []);
});

test("runs are named by DAG and uid", () => {
  assert.deepEqual(named("digits/abc,~/def,nonsense"), [{ dag: "digits", uid: "abc" }, { dag: "~", uid: "def" }]);
});

test("a run that is named twice is one", () => {
  assert.deepEqual(named("~/a,digits/b,~/a"), [{ dag: "~", uid: "a" }, { dag: "digits", uid: "b" }]);
});

test("what the list shows stays chosen while runs are compared, and after", () => {
  const list = new URLSearchParams("text=digits&state=failed&sort=-loss");
  const compared = comparing(list, ["~/a", "~/b"]);
  assert.equal(compared.get("compare"), "~/a,~/b");
  assert.equal(compared.get("sort"), "-loss");
  assert.equal(String(comparing(compared, [])), String(list));
});

test("a head sorts up, down, and not at all", () => {
  assert.equal(nextOrder("loss", ""), "loss");
  assert.equal(nextOrder("loss", "loss"), "-loss");
  assert.equal(nextOrder("loss", "-loss"), "");
  assert.equal(nextOrder("loss", "-job"), "loss");
  assert.equal(orderOf("colour"), null);
});

test("what is unknown comes last either way, and equal ones stay as they were", () => {
  const run = (uid: string, job: string) => ({ uid, job, phrase: "running", progress: null, submitted_at: "" }) as unknown as Summary;
  const runs = [run("a", "B"), run("b", "a"), run("c", "b")];
  const losses: Record<string, (number | null)[]> = { a: [3, 2, null], c: [1] };
  const known = ({ uid }: Summary) => ({ losses: losses[uid], took: null });
  const order = (text: string) => sorted(runs, orderOf(text), known).map(({ uid }) => uid).join("");
  assert.equal(order("loss"), "cab");
  assert.equal(order("-loss"), "acb");
  assert.equal(order("job"), "bac");
  assert.equal(order("-took"), "abc");
  assert.equal(order(""), "abc");
});
