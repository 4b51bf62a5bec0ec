// What the server dates is compared with its own time.
import assert from "node:assert/strict";
import { test } from "node:test";

import { isSilent } from "../src/instances.ts";
import { noteServerTime, serverTime } from "../src/serverClock.ts";

test("a clock here that is off makes nobody silent, and hides nobody's silence", () => {
  const here = Date.parse("2026-01-01T00:10:00Z");
  const running = { state: "running" };
  noteServerTime("2026-01-01T00:02:00Z", here);
  assert.equal(isSilent(running, "2026-01-01T00:01:55Z", serverTime(here)), false);
  // the server answers no more, and time goes on
  assert.equal(isSilent(running, "2026-01-01T00:01:55Z", serverTime(here + 70_000)), true);
  noteServerTime("2026-01-01T00:20:00Z", here);
  assert.equal(isSilent(running, "2026-01-01T00:18:00Z", serverTime(here)), true);
  noteServerTime(undefined, here);
  assert.equal(serverTime(here), Date.parse("2026-01-01T00:20:00Z"));
});
