// One chart on a canvas, in the colours of the page around it.
import { Box } from "@chakra-ui/react";
import { useEffect, useMemo, useRef } from "react";
import uPlot from "uplot";
import style from "uplot/dist/uPlot.min.css";

import { join, type Curve, type Range } from "./curves.ts";
import { quantity } from "./words.ts";

const HEIGHT = 260;
// distinct to people who see few colours (Okabe and Ito), repeated with dashes
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999", "#b8a800"];

const MARKS = { restart: "#e69f00", checkpoint: "#9f7aea" };

export interface Mark {
  at: number;
  kind: "restart" | "checkpoint";
}

if (!document.getElementById("training-uplot")) {
  const sheet = document.createElement("style");
  sheet.id = "training-uplot";
  sheet.textContent = style;
  document.head.append(sheet);
}

function colour(element: HTMLElement, name: string, otherwise: string): string {
  return getComputedStyle(element).getPropertyValue(`--chakra-colors-${name}`).trim() || otherwise;
}

export function Chart({
  curves,
  marks,
  logarithmic,
  clock,
  axis: label,
  name,
  range = null,
  onWindow,
}: {
  curves: readonly Curve[];
  marks: readonly Mark[];
  logarithmic: boolean;
  /** x is a time of day. */
  clock: boolean;
  /** What x is. */
  axis: string;
  name: string;
  /** The stretch of x that is shown, whatever points arrive; null: all of it. */
  range?: Range | null;
  /** The user has chosen a stretch; null: all. Without it, charts zoom by themselves. */
  onWindow?: (range: Range | null) => void;
}) {
  const box = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const drawn = useRef(range);
  const newest = useRef({ marks, range, onWindow });
  newest.current = { marks, range, onWindow };
  const data = useMemo(() => {
    const [x, rows] = join(curves.map((each) => each.points));
    return [x, ...rows] as unknown as uPlot.AlignedData;
  }, [curves]);
  const shape = JSON.stringify([logarithmic, label, curves.map((each) => [each.label, each.kind])]);

  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const make = () => {
      chart.current?.destroy();
      const text = colour(element, "fg-muted", "#71717a");
      const grid = { stroke: colour(element, "border", "#8884"), width: 1 };
      const axis = { stroke: text, grid, ticks: grid, font: "12px system-ui, sans-serif" };
      let line = -1;
      const options: uPlot.Options = {
        width: element.clientWidth,
        height: HEIGHT,
        cursor: { sync: { key: "training" }, focus: { prox: 20 }, drag: { setScale: !newest.current.onWindow } },
        focus: { alpha: 0.35 },
        legend: { show: curves.length <= 8, live: true },
        scales: { x: { time: clock, range: (_, least, greatest) => newest.current.range ?? [least, greatest] }, y: logarithmic ? { distr: 3 } : {} },
        axes: [axis, { ...axis, size: 64, values: (_, values) => values.map((each) => (each === null ? "" : quantity(each))) }],
        series: [
          { label },
          ...curves.map((each, place): uPlot.Series => {
            if (each.kind === "line" ? curves[place - 1]?.behind !== each.label : each.behind) line += 1;
            const stroke = COLOURS[Math.max(0, line) % COLOURS.length]!;
            return {
              label: each.label,
              stroke: each.kind === "line" ? stroke : `${stroke}55`,
              width: each.kind === "line" ? 1.5 : 1,
              dash: line >= COLOURS.length ? [6, 3] : undefined,
              points: { show: data[0].length < 2 ? undefined : false },
              spanGaps: true,
              value: (_, value) => quantity(value),
            };
          }),
        ],
        bands: curves.flatMap((each, place) =>
          each.kind === "band" && curves[place + 1]?.kind === "band"
            ? [{ series: [place + 1, place + 2], fill: `${COLOURS[0]}22` } as uPlot.Band]
            : [],
        ),
        hooks: {
          draw: [
            (plot) => {
              for (const mark of newest.current.marks) {
                const left = plot.valToPos(mark.at, "x", true);
                if (left < plot.bbox.left || left > plot.bbox.left + plot.bbox.width) continue;
                plot.ctx.save();
                plot.ctx.strokeStyle = MARKS[mark.kind];
                plot.ctx.setLineDash([4, 4]);
                plot.ctx.beginPath();
                plot.ctx.moveTo(left, plot.bbox.top);
                plot.ctx.lineTo(left, plot.bbox.top + plot.bbox.height);
                plot.ctx.stroke();
                plot.ctx.restore();
              }
            },
          ],
          setScale: [
            (plot, key) => {
              if (key === "x") element.dataset["range"] = `${plot.scales["x"]!.min} ${plot.scales["x"]!.max}`;
            },
          ],
          setSelect: [
            (plot) => {
              const { left, width } = plot.select;
              const { onWindow } = newest.current;
              if (width === 0 || !onWindow) return;
              plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
              // the others of the same cursor are told too, without an event: theirs is not what was chosen
              if (plot.cursor.event) onWindow([plot.posToVal(left, "x"), plot.posToVal(left + width, "x")]);
            },
          ],
        },
      };
      chart.current = new uPlot(options, data, element);
      chart.current.root.addEventListener("dblclick", () => newest.current.onWindow?.(null));
    };
    make();
    const resized = new ResizeObserver(() => chart.current?.setSize({ width: element.clientWidth, height: HEIGHT }));
    resized.observe(element);
    const themed = new MutationObserver(make);
    themed.observe(document.documentElement, { attributes: true, attributeFilter: ["class"] });
    return () => {
      resized.disconnect();
      themed.disconnect();
      chart.current?.destroy();
      chart.current = null;
    };
    // the newest points are given to the chart below, without making it anew
  }, [shape]);

  useEffect(() => {
    const plot = chart.current;
    if (plot && (plot.data !== data || drawn.current !== range)) plot.setData(data);
    drawn.current = range;
  }, [data, range]);

  return <Box aria-label={`Chart of ${name}`} css={{ "& .u-legend": { fontSize: "12px" }, "& .u-legend th": { fontWeight: "normal" } }} ref={box} role="img" />;
}
