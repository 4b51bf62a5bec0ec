// Where the boxes of a network stand, by dagre. Loaded only where a network is drawn. Pure.
import { Graph, layout } from "@dagrejs/dagre";

import type { LayerArrow, LayerBox } from "./networkGraph.ts";

export const LAYER_BOX = { width: 168, height: 46 } as const;
const MARGIN = 8;
const LETTER = 6.2;

interface Point {
  x: number;
  y: number;
}

export interface PlacedNetwork {
  /** The middle of each box, by its field. */
  boxes: ReadonlyMap<string, Point>;
  arrows: readonly { arrow: LayerArrow; points: readonly Point[]; label: Point }[];
  width: number;
  height: number;
}

/** From above to below: what a layer takes stands above it. */
export function placed(boxes: readonly LayerBox[], arrows: readonly LayerArrow[]): PlacedNetwork {
  const graph = new Graph();
  graph.setGraph({ rankdir: "TB", nodesep: 24, ranksep: 14, marginx: MARGIN, marginy: MARGIN });
  for (const { field } of boxes) graph.setNode(field, { ...LAYER_BOX });
  for (const { from, shape, to } of arrows) graph.setEdge(from, to, { width: Math.max(1, shape.length * LETTER), height: 16, labelpos: "c" });
  layout(graph);
  const { height = 0, width = 0 } = graph.graph() as { height?: number; width?: number };
  const whole = (value: number) => Math.round(value * 10) / 10;
  return {
    boxes: new Map(
      boxes.map(({ field }) => {
        const { x, y } = graph.node(field) as Point;
        return [field, { x: whole(x), y: whole(y) }];
      }),
    ),
    arrows: arrows.map((arrow) => {
      const { points = [], x, y } = graph.edge(arrow.from, arrow.to) as { points?: Point[]; x: number; y: number };
      return { arrow, points: points.map((each) => ({ x: whole(each.x), y: whole(each.y) })), label: { x: whole(x), y: whole(y) } };
    }),
    width: Math.ceil(Math.max(width, LAYER_BOX.width + 2 * MARGIN)),
    height: Math.ceil(height),
  };
}
