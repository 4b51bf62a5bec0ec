import assert from "node:assert/strict";
import { test } from "node:test";

import { ordered } from "../src/metricOrder.ts";

const EXPECTED = [
  ["loss", "train_loss"],
  ["aux_loss", "eval/loss", "perplexity", "val_loss"],
  ["accuracy", "eval/f1", "top-5 acc", "val_accuracy"],
  ["learning_rate", "lr"],
  ["samples_per_second", "throughput", "tokens_per_sec", "tokens/s"],
  ["seconds_per_step", "step_time"],
  ["gpu_memory_bytes", "memory"],
  ["grad_norm", "gradient norm"],
  ["consumed_samples", "epoch", "flossing", "loss_scale", "mapping", "temperature", "vaccine"],
];

test("losses come first, then scores, rates and times, memory, gradients and the rest by alphabet", () => {
  assert.deepEqual(ordered(EXPECTED.flat().sort()), EXPECTED.flat());
});

test("what was there is left alone", () => {
  const names = ["b", "a"];
  ordered(names);
  assert.deepEqual(names, ["b", "a"]);
});
