// What the time line draws.
import assert from "node:assert/strict";
import { test } from "node:test";

import { drawnUntil, ticksOf, timeLine } from "../src/timeline.ts";

const at = (second: number) => new Date(1000 * (1_700_000_000 + second)).toISOString();
const attempt = (role: string, index: number, number: number, from: number, to: number | null) => ({
  role, index, attempt: number, job_attempt: 0, epoch: 0, started_at: at(from), finished_at: to === null ? null : at(to),
});
const role = (name: string, ...after: [string, string][]) => ({ name, depends_on: after.map(([role, status]) => ({ role, status })) });

function run({ attempts = [], events = [], instances = [], started = 0 as number | null, finished = null as number | null, roles = [role("worker")], checkpoints = [] }: Record<string, any>) {
  const detail = {
    attempts,
    checkpoints,
    held: true,
    roles,
    status: { started_at: started === null ? null : at(started), finished_at: finished === null ? null : at(finished), instances },
    summary: { submitted_at: at(0) },
  };
  const found = timeLine(detail as never, events.map(([second, reason, message = ""]: [number, string, string?]) => ({ at: at(second), reason, message })), 1_700_000_000 + 100);
  const shape = (text: string) => found.lines.find((each) => each.name === text)!.bars.map((each) => [each.kind, each.from - 1_700_000_000, each.to - 1_700_000_000]);
  return { found, shape };
}

test("an instance waits for the roles before it, then runs", () => {
  const { found, shape } = run({
    attempts: [attempt("worker", 0, 0, 30, null)],
    instances: [{ role: "worker", index: 0, state: "running", reason: "", message: "" }],
    roles: [role("master"), role("worker", ["master", "Running"])],
  });
  assert.deepEqual(shape("worker-0"), [["waited", 0, 30], ["ran", 30, 100]]);
  assert.match(found.lines[0]!.bars[0]!.text, /^worker-0 waited for master: Running, /);
  assert.match(found.lines[0]!.bars[1]!.text, /^worker-0, attempt 0: .* to now, 1 min 10 s$/);
});

test("the time in the queue stands apart, with its words", () => {
  const { found, shape } = run({ attempts: [attempt("worker", 0, 0, 50, 60)], events: [[0, "Queued", "2 jobs are before it"]], started: 40, finished: 60 });
  assert.deepEqual(shape("worker-0"), [["waited", 0, 40], ["waited", 40, 50], ["ran", 50, 60]]);
  assert.match(found.lines[0]!.bars[0]!.text, /^Queued: 2 jobs are before it, /);
});

test("an attempt that another one followed, and the wait between them", () => {
  const { shape } = run({ attempts: [attempt("worker", 0, 0, 0, 20), attempt("worker", 0, 1, 30, null)] });
  assert.deepEqual(shape("worker-0"), [["restarted", 0, 20], ["waited", 20, 30], ["ran", 30, 100]]);
});

test("what has not begun says why it waits", () => {
  const { found, shape } = run({ instances: [{ role: "worker", index: 1, state: "pending", reason: "Unschedulable", message: "no node has 8 GPUs" }], started: 10 });
  assert.deepEqual(shape("worker-1"), [["waited", 0, 100]]);
  assert.match(found.lines[0]!.bars[0]!.text, /waits: no node has 8 GPUs \(Unschedulable\)/);
});

test("a pause is over all rows, and no wait of an instance", () => {
  const pauses = { attempts: [attempt("worker", 0, 0, 0, 20), attempt("worker", 0, 1, 50, null)], events: [[20, "Paused"], [50, "Resumed"]] };
  assert.deepEqual(run(pauses).shape("worker-0"), [["restarted", 0, 20], ["paused", 20, 50], ["ran", 50, 100]]);
  const goesOn = { ...pauses, attempts: [attempt("worker", 0, 0, 0, 20)], events: [[20, "Paused"]], instances: [{ role: "worker", index: 0, state: "pending", reason: "Paused", message: "" }] };
  assert.deepEqual(run(goesOn).shape("worker-0"), [["ran", 0, 20], ["paused", 20, 100]]);
});

test("restarts of the whole job and checkpoints are marks", () => {
  const { found } = run({ attempts: [attempt("worker", 0, 0, 0, null)], events: [[70, "JobRestarted", "worker-0 failed"]], checkpoints: [{ at: at(60), step: 1200 }] });
  assert.deepEqual(found.marks.map((each) => each.kind), ["checkpoint", "restart"]);
  assert.match(found.marks[0]!.text, /^Checkpoint of step 1,200, /);
  assert.match(found.marks[1]!.text, /worker-0 failed$/);
});

test("of thousands of checkpoints at most two hundred are marks, each told by its newest, and no restart is lost", () => {
  const checkpoints = Array.from({ length: 5001 }, (_, step) => ({ at: at(step / 50.01), step })).reverse();
  const { found } = run({ attempts: [attempt("worker", 0, 0, 0, null)], checkpoints, events: [[50, "JobRestarted", "worker-0 failed"]] });
  assert.equal(found.marks.length, 200);
  assert.match(found.marks.at(-1)!.text, /^Checkpoint of step 5,000, .* \(and 2\d more close by\)$/);
  assert.match(found.marks.find((each) => each.kind === "restart")!.text, /worker-0 failed \(and 2\d more close by\)$/);
});

test("a step that each instance saves for itself is one mark, a step that is saved anew another", () => {
  const saved = [[90, 10], [60, 20], [31, 10], [30, 10], [29, 10]].map(([second, step]) => ({ at: at(second!), step }));
  const { found } = run({ attempts: [attempt("worker", 0, 0, 0, null)], checkpoints: saved });
  assert.deepEqual(found.marks.map((each) => each.at - 1_700_000_000), [31, 60, 90]);
});

test("a long line is drawn anew when a pixel has passed, not each second", () => {
  const from = 1_700_000_000;
  const hour = Array.from({ length: 600 }, (_, second) => drawnUntil(from, from + 20_000 + second));
  assert.ok(new Set(hour).size <= 45, `${new Set(hour).size} times`);
  hour.forEach((until, second) => assert.ok(until >= from + 20_000 + second && until - (from + 20_000 + second) <= 21));
  assert.equal(drawnUntil(from, from + 100), from + 100);
});

test("ticks are round times, at most so many", () => {
  const from = 1_700_000_000 + 7;
  for (const [span, most, step] of [[50, 6, 10], [50, 3, 30], [3600, 6, 600], [40 * 3600, 6, 12 * 3600], [20 * 86_400, 6, 4 * 86_400]] as const) {
    const ticks = ticksOf(from, from + span, most);
    assert.ok(ticks.length <= most + 1 && ticks.length >= 1, `${span}: ${ticks.length}`);
    ticks.slice(1).forEach((each, number) => assert.equal(each.at - ticks[number]!.at, step));
  }
  assert.match(ticksOf(from, from + 50, 6)[0]!.text, /^\d\d:\d\d:\d0$/);
  assert.match(ticksOf(from, from + 3600, 6)[0]!.text, /^\d\d:\d0$/);
  assert.match(ticksOf(from, from + 20 * 86_400, 6)[0]!.text, /^\d\d-\d\d$/);
});
