// A network as boxes and arrows: what its document says, and what the server has inferred of it. Pure.
import type { NetworkCheckAnswer } from "./schema.ts";
import { valueAt } from "./yamlPatch.ts";

type Phase = "train" | "test";
const PHASES: readonly Phase[] = ["train", "test"];

export interface LayerBox {
  /** Where the document says it: `spec.layers[2]`. */
  field: string;
  name: string;
  type: string;
  kind: string;
  /** How often a repeated block has it. */
  times: number;
  nets: readonly Phase[];
  /** Shape of a sample; empty: it is not known. */
  gives: string;
  parameters: number | null;
  /** As the document says them. */
  params: readonly (readonly [name: string, value: unknown])[];
  mistakes: readonly string[];
}

export interface LayerArrow {
  from: string;
  to: string;
  nets: readonly Phase[];
  shape: string;
}

export interface NetworkGraph {
  boxes: readonly LayerBox[];
  arrows: readonly LayerArrow[];
}

interface Written {
  name?: unknown;
  type?: unknown;
  inputs?: unknown;
  params?: unknown;
  phase?: unknown;
  repeat?: unknown;
  layers?: unknown;
}

const isRecord = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null && !Array.isArray(value);

export function shapeText(shape: readonly number[]): string {
  return shape.length === 0 ? "one number" : shape.join(" × ");
}

/** Of a document, whatever is wrong with it. A block that is repeated is drawn once. */
export function networkGraph(document: unknown, answer: NetworkCheckAnswer | null): NetworkGraph {
  const boxes: LayerBox[] = [];
  const written: LayerArrow[] = [];
  const inferred = new Map<string, NonNullable<NetworkCheckAnswer["network"]>["layers"]>();
  for (const each of answer?.network?.layers ?? []) inferred.set(each.field, [...(inferred.get(each.field) ?? []), each]);

  /** Returns the layer that comes last. */
  const walk = (layers: unknown, where: string, outer: ReadonlyMap<string, string>, first: string | null, times: number, inherited: readonly Phase[]): string | null => {
    const known = new Map(outer);
    let before = first;
    for (const [index, each] of (Array.isArray(layers) ? layers : []).entries()) {
      if (!isRecord(each)) continue;
      const { inputs, layers: inner, name, params, phase, repeat, type } = each as Written;
      const field = `${where}[${index}]`;
      const nets = PHASES.filter((one) => (Array.isArray(phase) ? phase.includes(one) : inherited.includes(one)));
      const taken = Array.isArray(inputs) ? [...new Set(inputs.flatMap((one) => known.get(String(one)) ?? []))] : type === "Input" || before === null ? [] : [before];
      if (Array.isArray(inner)) {
        const input = taken[0] ?? null;
        const count = typeof repeat === "number" && repeat > 1 ? repeat : 1;
        before = walk(inner, `${field}.layers`, input === null ? known : new Map(known).set("input", input), input, times * count, nets) ?? before;
      } else {
        const found = inferred.get(field) ?? [];
        const shapes = [...new Set(found.map(({ gives }) => shapeText(gives)))];
        boxes.push({
          field,
          name: typeof name === "string" ? name : `layer ${index + 1}`,
          type: typeof type === "string" ? type : "",
          kind: found[0]?.kind ?? (type === "Input" ? "input" : "layer"),
          times,
          nets: found[0]?.nets ?? nets,
          gives: shapes.length > 1 ? `${shapes[0]} … ${shapes[shapes.length - 1]}` : (shapes[0] ?? ""),
          parameters: found.length === 0 ? null : found.reduce((sum, one) => sum + one.parameters, 0),
          params: isRecord(params) ? Object.entries(params) : [],
          mistakes: [],
        });
        written.push(...taken.map((from): LayerArrow => ({ from, to: field, nets, shape: "" })));
        before = field;
      }
      if (typeof name === "string" && before !== null) known.set(name, before);
    }
    return before;
  };
  walk(valueAt(document, ["spec", "layers"]), "spec.layers", new Map(), null, 1, PHASES);
  for (const { field, message } of answer?.problems ?? []) {
    const box = boxOf(boxes, field);
    if (box) boxes[boxes.indexOf(box)] = { ...box, mistakes: [...box.mistakes, message] };
  }
  return { boxes, arrows: answer?.network ? inferredArrows(boxes, answer.network.layers) : written };
}

/** The layer that a field is of, or the first one of the block. */
function boxOf(boxes: readonly LayerBox[], field: string): LayerBox | undefined {
  const below = (inner: string, outer: string) => inner === outer || inner.startsWith(`${outer}.`) || inner.startsWith(`${outer}[`);
  const block = /^(spec\.layers\[\d+\](\.layers\[\d+\])*)/.exec(field)?.[0];
  return boxes.find((each) => below(field, each.field)) ?? (block === undefined ? undefined : boxes.find((each) => below(each.field, block)));
}

/** Arrows of both nets, each once; what leads back to an earlier turn of a block is none. */
function inferredArrows(boxes: readonly LayerBox[], layers: NonNullable<NetworkCheckAnswer["network"]>["layers"]): LayerArrow[] {
  const order = new Map(boxes.map((each, number) => [each.field, number]));
  const named = new Map(layers.map((each) => [each.name, each]));
  const found = new Map<string, { from: string; to: string; nets: Phase[]; shape: string }>();
  for (const layer of layers)
    for (const phase of PHASES)
      for (const name of layer.inputs[phase] ?? []) {
        const source = named.get(name);
        if (!source || (order.get(source.field) ?? 0) >= (order.get(layer.field) ?? 0)) continue;
        const key = `${source.field} ${layer.field}`;
        const arrow = found.get(key) ?? { from: source.field, to: layer.field, nets: [], shape: shapeText(source.gives) };
        if (!arrow.nets.includes(phase)) arrow.nets.push(phase);
        found.set(key, arrow);
      }
  return [...found.values()];
}

/** What one of the nets has. */
export function ofNet({ arrows, boxes }: NetworkGraph, net: Phase | "both"): NetworkGraph {
  if (net === "both") return { arrows, boxes };
  return { arrows: arrows.filter(({ nets }) => nets.includes(net)), boxes: boxes.filter(({ nets }) => nets.includes(net)) };
}

/** Where an arrow key leads from a box: along an arrow, or to a box beside it; null: nowhere. */
export function neighbour(arrows: readonly LayerArrow[], field: string, key: string): string | null {
  const next = arrows.filter(({ from }) => from === field).map(({ to }) => to);
  const before = arrows.filter(({ to }) => to === field).map(({ from }) => from);
  if (key === "ArrowDown") return next[0] ?? null;
  if (key === "ArrowUp") return before[0] ?? null;
  if (key !== "ArrowLeft" && key !== "ArrowRight") return null;
  const beside = [...before.flatMap((each) => arrows.filter(({ from }) => from === each).map(({ to }) => to)), ...next.flatMap((each) => arrows.filter(({ to }) => to === each).map(({ from }) => from))];
  const row = [...new Set([field, ...beside])].sort();
  const place = row.indexOf(field) + (key === "ArrowRight" ? 1 : -1);
  return row[place] ?? null;
}
