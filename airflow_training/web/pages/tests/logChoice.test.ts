import assert from "node:assert/strict";
import { test } from "node:test";

import { chosenLog, MOST_TOGETHER, togetherOptions } from "../src/logChoice.ts";

const some = (role: string, count: number) => Array.from({ length: count }, (_, index) => ({ role, index, attempt: 1 }));
const few = [...some("master", 1), ...some("worker", 3)];

test("all logs are offered together, and those of each role with several", () => {
  assert.deepEqual(togetherOptions(few), [
    ["all", "All, by time"],
    ["all:worker", "All of worker, by time"],
  ]);
  assert.deepEqual(togetherOptions(some("worker", 2)), [["all", "All, by time"]]);
  assert.deepEqual(togetherOptions(some("worker", 1)), []);
});

test("very many are offered as many at a time as are shown", () => {
  assert.deepEqual(togetherOptions([...some("master", 2), ...some("worker", 300)]), [
    ["all:master", "All of master, by time"],
    ["all:worker:0", "worker 0 to 127, by time"],
    ["all:worker:128", "worker 128 to 255, by time"],
    ["all:worker:256", "worker 256 to 299, by time"],
  ]);
});

test("an address names one instance or some together", () => {
  assert.deepEqual(chosenLog("all", null, few), { together: {} });
  assert.deepEqual(chosenLog("all:worker", null, few), { together: { role: "worker" } });
  assert.deepEqual(chosenLog("all:worker:128", null, few), { together: { role: "worker", first: 128, count: MOST_TOGETHER } });
  assert.deepEqual(chosenLog("worker-2", null, few), { one: few[3], known: true });
  assert.deepEqual(chosenLog(null, null, few), { one: few[0], known: true });
  assert.equal(chosenLog(null, null, []), null);
});

test("a role says only whose log comes first: what is asked for is found among all", () => {
  assert.deepEqual(chosenLog(null, null, few, "worker"), { one: few[1], known: true });
  assert.deepEqual(chosenLog("master-0", null, few, "worker"), { one: few[0], known: true });
});

test("an instance that is gone is not another one", () => {
  assert.deepEqual(chosenLog("worker-7", 2, few), { one: { role: "worker", index: 7, attempt: 2 }, known: false });
  assert.deepEqual(chosenLog("junk", null, few), { one: few[0], known: true });
});
