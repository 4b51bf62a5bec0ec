// What has failed is done again, a few times.
import assert from "node:assert/strict";
import { test } from "node:test";

import { tried } from "../src/tried.ts";

function failing(times: number) {
  const calls: number[] = [];
  const attempt = async () => {
    calls.push(calls.length + 1);
    if (calls.length <= times) throw new Error(`failure ${calls.length}`);
    return "loaded";
  };
  return { attempt, calls };
}

test("the first attempt that has an answer gives it", async () => {
  const { attempt, calls } = failing(2);
  let failures = 0;
  assert.equal(await tried(attempt, [0, 0], () => (failures += 1)), "loaded");
  assert.deepEqual([calls.length, failures], [3, 2]);
});

test("who fails each time fails as the last attempt did, and may be tried anew", async () => {
  const { attempt } = failing(3);
  await assert.rejects(tried(attempt, [0, 0]), /failure 3/);
  assert.equal(await tried(attempt, []), "loaded");
});
