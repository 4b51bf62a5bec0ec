// Where roles stand, and what leads to what.
import assert from "node:assert/strict";
import { test } from "node:test";

import { roleGraph } from "../src/roleGraph.ts";

const role = (name: string, ...after: string[]) => ({ name, depends_on: after.map((each) => ({ role: each, status: "Running" })) });

test("a role stands to the right of what it waits for, and an arrow leads to it", () => {
  const { arrows, boxes, height, width } = roleGraph([role("late", "worker", "ps"), role("ps"), role("worker", "ps"), role("other")] as never);
  const places = Object.fromEntries(boxes.map((each) => [each.role.name, [each.x, each.y]]));
  assert.deepEqual(places, { ps: [0, 0], other: [0, 80], worker: [356, 0], late: [712, 0] });
  assert.deepEqual(arrows.map(({ from, status, to }) => `${from} ${status} ${to}`), ["ps Running worker", "worker Running late", "ps Running late"]);
  assert.deepEqual([width, height], [936, 154], "a lane for the arrow that would pass behind a box");
});

test("a role alone has no arrow", () => {
  const { arrows, boxes } = roleGraph([role("worker")] as never);
  assert.equal(arrows.length, 0);
  assert.equal(boxes.length, 1);
});
