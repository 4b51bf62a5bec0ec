import assert from "node:assert/strict";
import { test } from "node:test";

import {
  ago,
  askedText,
  bytes,
  cellText,
  money,
  cpuText,
  daySpan,
  duration,
  expectedStart,
  failureOf,
  frameworksOf,
  gpuText,
  hours,
  lastDays,
  lostBy,
  memoryText,
  placeOf,
  quantity,
  restartsText,
  tickText,
  titleOf,
  untilTime,
  valueText,
  whatToDo,
  why,
  whyHere,
} from "../src/words.ts";

test("durations have two units at most", () => {
  assert.deepEqual([0, 59.6, 95, 3600, 3725, 90061, -5, null, NaN].map(duration), [
    "0 s", "1 min", "1 min 35 s", "1 h", "1 h 2 min", "1 d 1 h", "0 s", "", "",
  ]);
});

test("sizes are powers of 1,024", () => {
  assert.deepEqual([0, 1023, 1536, 5 * 2 ** 30, null].map(bytes), ["0 B", "1023 B", "1.5 KiB", "5.0 GiB", ""]);
});

test("small and large numbers keep their digits", () => {
  assert.deepEqual([0, 1200, 3371.26, 99_123.5, 0.31234567, 0.00001234, 12345678.9, null].map(quantity), [
    "0", "1,200", "3,371", "99,124", "0.3123", "1.234e-5", "1.235e+7", "–",
  ]);
});

test("a moment is told from now", () => {
  assert.equal(ago("2026-01-01T00:00:00Z", Date.parse("2026-01-01T00:03:00Z")), "3 min ago");
});

test("usage says of how much, where that is known", () => {
  const usage = {
    at: "", cpu_cores: 1.52, cpu_limit: 4, memory_bytes: 3 * 2 ** 30, memory_limit_bytes: null,
    gpus: 2, gpu_busy_percent: 93.4, gpu_memory_bytes: 2 ** 30, gpu_memory_limit_bytes: 2 ** 31, gpu_errors: [],
  };
  const nothing = {
    ...usage, cpu_cores: null, memory_bytes: null, gpus: 0, gpu_busy_percent: null, gpu_memory_bytes: null,
  };
  const texts = (each: typeof nothing | typeof usage) => [cpuText(each), memoryText(each), gpuText(each)];
  assert.deepEqual(texts(usage), ["1.5 of 4 cores", "3.0 GiB", "2: 93 %, 1.0 GiB of 2.0 GiB"]);
  assert.deepEqual(texts(nothing), ["", "", ""]);
  assert.equal(cpuText({ ...usage, cpu_limit: null }), "1.5 cores");
  assert.equal(gpuText({ ...nothing, gpus: 1 }), "1");
});

test("what is lost is said with the age of the last checkpoint", () => {
  const last = { step: 40, at: "2026-01-01T00:00:00Z" };
  const now = Date.parse("2026-01-01T00:03:00Z");
  const progress = { step: 55 } as Parameters<typeof lostBy>[1]["progress"];
  assert.match(lostBy("kill", { last_checkpoint: last, progress }, now), /step 40, 3 min ago.*is lost: it is given no time to save\.$/);
  assert.match(lostBy("stop", { last_checkpoint: last, progress }, now), /is lost unless the script saves/);
  assert.match(lostBy("kill", { last_checkpoint: null, progress }, now), /the work of 55 steps is lost\.$/);
  const many = { step: 2228 } as typeof progress;
  const one = { step: 1 } as typeof progress;
  assert.match(lostBy("stop", { last_checkpoint: null, progress: many }, now), /the work of 2,228 steps is lost unless/);
  assert.match(lostBy("kill", { last_checkpoint: null, progress: one }, now), /the work of 1 step is lost\.$/);
});

test("days are those of here, the last one whole", () => {
  const now = new Date(2024, 2, 1, 23, 59);
  assert.deepEqual(lastDays(1, now), { from: "2024-03-01", to: "2024-03-01" });
  assert.deepEqual(lastDays(7, now), { from: "2024-02-24", to: "2024-03-01" });
  assert.deepEqual(daySpan("2024-02-29", "2024-03-01"), {
    start: new Date(2024, 1, 29).toISOString(),
    end: new Date(2024, 2, 2).toISOString(),
  });
  assert.deepEqual([daySpan("2024-03-02", "2024-03-01"), daySpan("", "2024-03-01"), daySpan("x", "y")], [null, null, null]);
  assert.equal(daySpan("2023-02-28", "2024-03-01"), null);
  assert.notEqual(daySpan("2024-01-01", "2024-12-31"), null);
});

test("hours keep their hundredths while they are few", () => {
  assert.deepEqual([0, 0.004, 1.256, 1234.5].map(hours), ["0", "< 0.01", "1.26", "1,235"]);
});

test("the words come before the one word that names their kind", () => {
  assert.equal(why({ reason: "Error", message: "step 7\nKeyError: 'label'\n\n" }), "KeyError: 'label' (Error)");
  assert.equal(why({ reason: "OOMKilled", message: "worker-0: signal 9 (OOMKilled)" }), "worker-0: signal 9 (OOMKilled)");
  assert.equal(why({ reason: "NodeLost", message: "" }), "NodeLost");
  assert.equal(why({ reason: "", message: "it took too long" }), "it took too long");
  assert.equal(why({ reason: null, message: null }), "");
});

test("what failed is told apart from the limit that ended the run", () => {
  const told = (message: string | null, proof = "") => Object.values(failureOf({ message }, proof));
  const proof = "KeyError: 'a; b'";
  assert.deepEqual(told(`worker-0: exit code 1: ${proof}; backoffLimit 3 is used up`, proof), [
    `worker-0: exit code 1: ${proof}`,
    "backoffLimit 3 is used up",
  ]);
  assert.deepEqual(told(`worker-0: exit code 1: ${proof}`, proof), [`worker-0: exit code 1: ${proof}`, ""]);
  assert.deepEqual(told("worker-0: it was cut …; maxRestarts 0 is used up", "it was cut in two"), [
    "worker-0: it was cut …",
    "maxRestarts 0 is used up",
  ]);
  assert.deepEqual(told("it took longer than 10 min"), ["it took longer than 10 min", ""]);
  assert.deepEqual([...told(""), ...told(null)], ["", "", "", ""]);
});

test("what can be done is said once", () => {
  assert.equal(whatToDo("Correct the named option.", ["no such option: --lr"]), "Correct the named option.");
  assert.equal(whatToDo("Set HF_TOKEN.", ["it is gated: set HF_TOKEN to go on"]), "");
  assert.equal(whatToDo("", []), "");
  assert.equal(
    whatToDo("Read the traceback: train.py:38: raise ValueError('no rate')", ["master-0: ValueError: no rate"]),
    "Read the traceback: train.py:38",
  );
  assert.equal(whatToDo("Read the traceback: train.py:38: x = 1 / 0", []), "Read the traceback: train.py:38: x = 1 / 0");
});

test("a run that is not over says why, not once more where it is", () => {
  const message = "2 jobs are before it";
  assert.equal(whyHere({ state: "Pending", reason: "Received", message: "" }), "");
  assert.equal(whyHere({ state: "Queued", reason: "Queued", message }), message);
  assert.equal(whyHere({ state: "Starting", reason: "Unschedulable", message: "no node has 8 GPUs" }), "no node has 8 GPUs (Unschedulable)");
});

test("how long earlier runs waited is no promise", () => {
  const waits = { median_seconds: 180, shortest_seconds: 60, longest_seconds: 540, runs: 5 };
  assert.equal(expectedStart(waits), "earlier runs waited 3 min (median of 5 runs, 1 min to 9 min; no promise)");
  assert.equal(expectedStart({ ...waits, runs: 1 }), "earlier runs waited 3 min (one run; no promise)");
});

test("an end has a time of day, and another day its date", () => {
  const now = new Date(2026, 0, 31, 9, 1).getTime();
  assert.equal(untilTime(now + 5_400_000, now), "in 1 h 30 min, 10:31");
  assert.equal(untilTime(now + 86_400_000, now), "in 1 d, 2026-02-01 09:01");
  assert.equal(untilTime(now - 1000, now), "in 0 s, 09:00");
});

test("restarts are used of those allowed", () => {
  const texts = [[0, 0], [2, 3], [0, 3], [0, null], [4, null]] as const;
  assert.deepEqual(texts.map(([used, allowed]) => restartsText({ used, allowed })), [
    "none allowed", "2 of 3 used", "0 of 3 used", "none", "4",
  ]);
});

test("the tab of the browser tells how far a run is", () => {
  const of = (phrase: Parameters<typeof titleOf>[0]["summary"]["phrase"], fraction: number | null) =>
    titleOf({ summary: { job: "digits", phrase }, progress: { fraction } });
  assert.equal(of("running", 0.129), "running 12 % - digits");
  assert.equal(of("running", null), "running - digits");
  assert.equal(of("failed", 0.5), "failed - digits");
});

test("what was asked says who asked", () => {
  const asked = { action: "scale", role: "worker", replicas: 3, by: "ann", at: "" } as const;
  assert.equal(askedText(asked), "scale worker to 3 asked by ann");
  assert.equal(askedText({ ...asked, action: "pause", by: "" }), "pause asked");
});

test("sizes have units, and where there is little room numbers are short", () => {
  assert.equal(valueText("system/memory_bytes", 12_361_728), "11.8 MiB");
  assert.equal(valueText("bytes_per_second", -3), "-3");
  assert.equal(valueText("loss", 0.5), "0.5");
  assert.equal(valueText("kilobytes", 2048), "2,048");
  assert.equal(tickText("loss", 12_400_000), "12.4M");
  assert.equal(tickText("loss", 200), "200");
  assert.equal(tickText("lr", 1.234e-9), "1.234e-9");
});

test("money has two places, and four where it would be nothing", () => {
  assert.equal(money("1234.5000"), "1,234.50");
  assert.equal(money("0.0000"), "0.00");
  assert.equal(money("0.0042"), "0.0042");
  assert.equal(money(0.05), "0.05");
});

test("a fraction of a table has six digits, and what is no fraction stays", () => {
  assert.equal(cellText("0.123456789012"), "0.123457");
  assert.equal(cellText("-1234567.891"), "-1234568");
  for (const each of ["0.5", "12345678901234567890", "1.25", "2026-11-26", "=1.00001+2", "part-0.12345", ""]) assert.equal(cellText(each), each);
  for (const each of ["007.1234", "-00.123456789", "9007199254740993.123", "12345678901234567890.125", "1e5", "1.23456e5", "NaN", "true", "1.2.3456"]) assert.equal(cellText(each), each);
  assert.equal(cellText(null), "");
});

test("a training is named by its place in the DAG, and the frameworks of its job come first", () => {
  assert.equal(placeOf({ group_id: "each", map_index: 1 }), "each[1]");
  assert.equal(placeOf({ group_id: null, map_index: -1 }), "");
  assert.deepEqual(frameworksOf("pytorch", ["keras", "torch"]), { used: ["torch"], others: ["keras"] });
  assert.deepEqual(frameworksOf("custom", ["torch"]), { used: [], others: ["torch"] });
});
