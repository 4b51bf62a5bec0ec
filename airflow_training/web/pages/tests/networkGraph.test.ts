// What is drawn of a network: its document as far as it says something, and what the server has inferred.
import assert from "node:assert/strict";
import { test } from "node:test";

import { neighbour, networkGraph, ofNet } from "../src/networkGraph.ts";
import { placed } from "../src/networkLayout.ts";
import type { NetworkCheckAnswer } from "../src/schema.ts";

const DOCUMENT = {
  metadata: { name: "lenet" },
  spec: {
    layers: [
      { name: "image", type: "Input", params: { shape: [1, 28, 28] } },
      { name: "label", type: "Input", params: { shape: [] } },
      { name: "conv", type: "Conv2d", inputs: ["image"], params: { out_channels: 6 } },
      { name: "drop", type: "Dropout", phase: ["train"] },
      { name: "body", repeat: 3, layers: [{ name: "dense", type: "Linear" }, { name: "act", type: "ReLU" }] },
      { name: "loss", type: "CrossEntropyLoss", inputs: ["body", "label"], phase: ["train"] },
    ],
  },
};
const edges = (graph: ReturnType<typeof networkGraph>) => graph.arrows.map(({ from, to }) => `${from} ${to}`.replaceAll("spec.layers", ""));

test("a document alone is drawn, a repeated block once", () => {
  const graph = networkGraph(DOCUMENT, null);
  assert.deepEqual(
    graph.boxes.map(({ name, nets, times }) => [name, times, nets.join(" ")]),
    [
      ["image", 1, "train test"],
      ["label", 1, "train test"],
      ["conv", 1, "train test"],
      ["drop", 1, "train"],
      ["dense", 3, "train test"],
      ["act", 3, "train test"],
      ["loss", 1, "train"],
    ],
  );
  assert.deepEqual(edges(graph), ["[0] [2]", "[2] [3]", "[3] [4].layers[0]", "[4].layers[0] [4].layers[1]", "[4].layers[1] [5]", "[1] [5]"]);
});

const layer = (field: string, name: string, train: string[] | null, test: string[] | null, gives: number[]) => ({
  field: `spec.layers${field}`,
  name,
  type: "",
  kind: "layer",
  takes: [],
  inputs: { ...(train ? { train } : {}), ...(test ? { test } : {}) },
  gives,
  parameters: 10,
  flops: 0,
  nets: [...(train ? ["train" as const] : []), ...(test ? ["test" as const] : [])],
});
const ANSWER = {
  problems: [],
  network: {
    name: "lenet",
    parameters: 0,
    flops: 0,
    layers: [
      layer("[0]", "image", [], [], [1, 28, 28]),
      layer("[2]", "conv", ["image"], ["image"], [6, 24, 24]),
      layer("[3]", "drop", ["conv"], null, [6, 24, 24]),
      layer("[4].layers[0]", "body_0_dense", ["drop"], ["conv"], [8]),
      layer("[4].layers[1]", "body_0_act", ["body_0_dense"], ["body_0_dense"], [8]),
      layer("[4].layers[0]", "body_1_dense", ["body_0_act"], ["body_0_act"], [4]),
      layer("[4].layers[1]", "body_1_act", ["body_1_dense"], ["body_1_dense"], [4]),
    ],
  },
} satisfies NetworkCheckAnswer;

test("shapes and both nets are those of the server", () => {
  const graph = networkGraph(DOCUMENT, ANSWER);
  const dense = graph.boxes.find(({ name }) => name === "dense")!;
  assert.deepEqual([dense.gives, dense.parameters, dense.times], ["8 … 4", 20, 3]);
  const found = (net: "both" | "train" | "test") => edges(ofNet(graph, net));
  assert.deepEqual(found("train"), ["[0] [2]", "[2] [3]", "[3] [4].layers[0]", "[4].layers[0] [4].layers[1]"]);
  assert.deepEqual(found("test"), ["[0] [2]", "[2] [4].layers[0]", "[4].layers[0] [4].layers[1]"]);
  assert.equal(found("both").length, 5);
  assert.equal(graph.arrows.find(({ to }) => to === "spec.layers[2]")!.shape, "1 × 28 × 28");
  assert.ok(!ofNet(graph, "test").boxes.some(({ name }) => name === "drop"));
});

test("a mistake stands at its layer, that of a block at its first", () => {
  const told = (field: string) =>
    networkGraph(DOCUMENT, { network: null, problems: [{ field, message: "is wrong", line: null, allowed: [], hint: "" }] })
      .boxes.filter(({ mistakes }) => mistakes.length > 0)
      .map(({ name }) => name);
  assert.deepEqual(told("spec.layers[2].params.kernel_size"), ["conv"]);
  assert.deepEqual(told("spec.layers[4].layers[1].type"), ["act"]);
  assert.deepEqual(told("spec.layers[4].repeat"), ["dense"]);
  assert.deepEqual(told("metadata.name"), []);
});

test("whatever stands in a document is no error", () => {
  for (const document of [null, 3, { spec: null }, { spec: { layers: 3 } }, { spec: { layers: [null, 3, {}, { inputs: [{}], layers: [[]] }] } }])
    assert.ok(networkGraph(document, null).boxes.length <= 1);
});

test("arrow keys go along the arrows", () => {
  const { arrows } = networkGraph(DOCUMENT, ANSWER);
  assert.equal(neighbour(arrows, "spec.layers[2]", "ArrowUp"), "spec.layers[0]");
  assert.equal(neighbour(arrows, "spec.layers[2]", "ArrowRight"), "spec.layers[3]", "both lead to the block");
  assert.equal(neighbour(arrows, "spec.layers[0]", "ArrowRight"), null);
  assert.equal(neighbour(arrows, "spec.layers[3]", "ArrowDown"), "spec.layers[4].layers[0]");
  assert.equal(neighbour(arrows, "spec.layers[0]", "ArrowUp"), null);
  assert.equal(neighbour(arrows, "spec.layers[0]", "Enter"), null);
});

test("no two boxes lie on each other, and arrows lead down", () => {
  const { arrows, boxes } = networkGraph(DOCUMENT, ANSWER);
  const drawn = placed(boxes, arrows);
  const places = [...drawn.boxes.values()];
  for (const [number, one] of places.entries())
    for (const other of places.slice(number + 1)) assert.ok(Math.abs(one.x - other.x) >= 168 || Math.abs(one.y - other.y) >= 46);
  for (const { arrow, points } of drawn.arrows) {
    assert.ok(drawn.boxes.get(arrow.from)!.y < drawn.boxes.get(arrow.to)!.y);
    assert.ok(points.length > 1);
  }
  assert.ok(places.every(({ x, y }) => x > 0 && y > 0 && x < drawn.width && y < drawn.height));
});
