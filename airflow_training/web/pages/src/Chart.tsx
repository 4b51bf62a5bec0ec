// One chart on a canvas, in the colours of the page around it.
import { Box } from "@chakra-ui/react";
import { useEffect, useMemo, useRef } from "react";
import uPlot from "uplot";
import style from "uplot/dist/uPlot.min.css";

import { FEW_LINES, join, placesOf, type Curve, type Range } from "./curves.ts";
import { strokeOf, usePalette } from "./palette.ts";
import { quantity, tickText, valueText } from "./words.ts";

const HEIGHT = 260;
const NONE: ReadonlySet<string> = new Set();

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
  hidden = NONE,
  onHide,
  range = null,
  onKey,
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
  /** Labels of the lines that are not shown. */
  hidden?: ReadonlySet<string>;
  onHide?: (label: string, hidden: boolean) => void;
  /** The stretch of x that is shown, whatever points arrive; null: all of it. */
  range?: Range | null;
  /** Whether a key that was pressed while the chart had the focus meant something. */
  onKey?: (key: string) => boolean;
  /** The user has chosen a stretch; null: all. Without it, charts zoom by themselves. */
  onWindow?: (range: Range | null) => void;
}) {
  const box = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const drawn = useRef(range);
  const newest = useRef({ curves, hidden, marks, onHide, onWindow, range });
  newest.current = { curves, hidden, marks, onHide, onWindow, range };
  const palette = usePalette();
  const data = useMemo(() => {
    const [x, rows] = join(curves.map((each) => each.points));
    return [x, ...rows] as unknown as uPlot.AlignedData;
  }, [curves]);
  const places = placesOf(curves);
  const shape = JSON.stringify([logarithmic, label, curves.map((each) => [each.label, each.kind]), places]);
  const lines = curves.filter((each) => !each.behind);

  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const grid = { stroke: colour(element, "border", "#8884"), width: 1 };
    const axis = { stroke: colour(element, "fg-muted", "#71717a"), grid, ticks: grid, font: "12px system-ui, sans-serif" };
    const isHidden = (each: Curve) => newest.current.hidden.has(each.behind ?? each.label);
    const near = document.createElement("div");
    near.className = "near";
    near.ariaHidden = "true";
    let focused: number | null = null;
    /** Says beside the pointer which line is nearest, and its value. */
    const tell = (plot: uPlot) => {
      const { event, idxs, left = -1, top = -1 } = plot.cursor;
      const place = focused === null ? null : idxs?.[focused];
      // a cursor that follows another chart's has no event
      near.hidden = !event || left < 0 || focused === null || typeof place !== "number";
      if (near.hidden || focused === null || typeof place !== "number") return;
      const at = plot.data[0][place]!;
      near.textContent = `${curves[focused - 1]?.label}: ${valueText(name, plot.data[focused]?.[place])} at ${clock ? new Date(at * 1000).toLocaleTimeString() : quantity(at)}`;
      const x = Math.max(0, Math.min(left + 8, plot.over.clientWidth - near.offsetWidth));
      near.style.translate = `${x}px ${Math.max(0, top - 28)}px`;
    };
    const options: uPlot.Options = {
      width: element.clientWidth,
      height: HEIGHT,
      cursor: { sync: { key: "training" }, focus: { prox: 20 }, drag: { setScale: !newest.current.onWindow } },
      focus: { alpha: 0.35 },
      legend: { show: lines.length <= FEW_LINES, live: true },
      scales: { x: { time: clock, range: (_, least, greatest) => newest.current.range ?? [least, greatest] }, y: logarithmic ? { distr: 3 } : {} },
      axes: [axis, { ...axis, size: 72, values: (_, values) => values.map((each) => (each === null ? "" : tickText(name, each))) }],
      series: [
        { label },
        ...curves.map((each, number): uPlot.Series => {
          const stroke = strokeOf(palette, places[number]!);
          return {
            label: each.label,
            class: each.behind && "behind",
            stroke: each.kind === "line" ? stroke.colour : `${stroke.colour}55`,
            width: each.kind === "line" ? 1.5 : 1,
            dash: [...stroke.dash],
            // a line of one point cannot be seen
            points: { show: (_, place) => (newest.current.curves[place - 1]?.points[0].length ?? 0) < 2 },
            show: !isHidden(each),
            spanGaps: true,
            value: (_, value) => valueText(name, value),
          };
        }),
      ],
      bands: curves.flatMap((each, place) =>
        each.kind === "band" && curves[place + 1]?.kind === "band"
          ? [{ series: [place + 1, place + 2], fill: `${palette.lines[0]}22` } as uPlot.Band]
          : [],
      ),
      hooks: {
        draw: [
          (plot) => {
            for (const mark of newest.current.marks) {
              const left = plot.valToPos(mark.at, "x", true);
              if (left < plot.bbox.left || left > plot.bbox.left + plot.bbox.width) continue;
              plot.ctx.save();
              plot.ctx.strokeStyle = palette[mark.kind];
              plot.ctx.setLineDash([4, 4]);
              plot.ctx.beginPath();
              plot.ctx.moveTo(left, plot.bbox.top);
              plot.ctx.lineTo(left, plot.bbox.top + plot.bbox.height);
              plot.ctx.stroke();
              plot.ctx.restore();
            }
          },
        ],
        setCursor: [tell],
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
        setSeries: [
          (plot, place, options) => {
            const { focus, show } = options as { focus?: boolean; show?: boolean };
            if (focus !== undefined) {
              focused = place;
              tell(plot);
            }
            const of = place === null ? undefined : curves[place - 1];
            if (show !== undefined && of && !of.behind && show === isHidden(of)) newest.current.onHide?.(of.label, !show);
          },
        ],
      },
    };
    const plot = new uPlot(options, data, element);
    plot.over.append(near);
    plot.root.addEventListener("dblclick", () => newest.current.onWindow?.(null));
    chart.current = plot;
    drawn.current = newest.current.range;
    const resized = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: HEIGHT }));
    resized.observe(element);
    return () => {
      resized.disconnect();
      plot.destroy();
      chart.current = null;
    };
    // the newest points are given to the chart below, without making it anew
  }, [shape, palette]);

  useEffect(() => {
    const plot = chart.current;
    if (plot && (plot.data !== data || drawn.current !== range)) plot.setData(data);
    drawn.current = range;
  }, [data, range]);

  useEffect(() => {
    curves.forEach((each, place) => {
      const show = !hidden.has(each.behind ?? each.label);
      if (chart.current && chart.current.series[place + 1]?.show !== show) chart.current.setSeries(place + 1, { show });
    });
  }, [hidden]);

  const visible = lines.filter((each) => !hidden.has(each.label)).length;
  return (
    <Box
      aria-keyshortcuts={onKey && "+ - ArrowLeft ArrowRight Escape"}
      aria-label={`Chart of ${name}: ${visible === lines.length ? "" : `${visible} of `}${lines.length} ${lines.length === 1 ? "line" : "lines"}`}
      css={{
        "& .u-legend": { fontSize: "12px" },
        "& .u-legend th": { fontWeight: "normal" },
        "& .u-legend .u-series": { opacity: "1 !important" }, // of a line that is not nearest it cannot be read else
        "& .u-legend .u-off > *": { opacity: 1, textDecoration: "line-through" },
        "& .u-legend .behind": { display: "none" },
        "& .near": {
          bg: "bg.inverted",
          borderRadius: "sm",
          color: "fg.inverted",
          fontSize: "xs",
          left: 0,
          pointerEvents: "none",
          position: "absolute",
          px: 1.5,
          top: 0,
          whiteSpace: "nowrap",
          zIndex: 1,
        },
      }}
      onKeyDown={(event) => {
        if (!event.altKey && !event.ctrlKey && !event.metaKey && onKey?.(event.key)) event.preventDefault();
      }}
      ref={box}
      role="img"
      tabIndex={onKey && 0}
    />
  );
}
