// One metric of every rank: its chart, what can be asked of it, and its files.
import { Box, Button, Flex, Text } from "@chakra-ui/react";
import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState, type Dispatch, type SetStateAction } from "react";

import { get, type Detail, type SeriesAnswer, type SeriesPage } from "./api.ts";
import { Chart, type Mark } from "./Chart.tsx";
import { AXES, type Chosen } from "./ChartControls.tsx";
import {
  bandCurves,
  covers,
  csv,
  extentOf,
  FEW_LINES,
  hasSamples,
  having,
  isCount,
  labelOf,
  MOST_CURVES,
  placesOf,
  pointsOf,
  rangeAfter,
  reachedAt,
  smoothed,
  spliced,
  timeWindow,
  type Axis,
  type Curve,
  type Range,
  type TimeWindow,
} from "./curves.ts";
import { HeatMap } from "./HeatMap.tsx";
import { Loading, Problem } from "./parts.tsx";
import { strokeOf, usePalette } from "./palette.ts";
import { pictureOf } from "./picture.ts";
import { RankList } from "./RankList.tsx";
import { quantity, seconds } from "./words.ts";

const MARK_NAMES = { restart: "restarts (orange)", checkpoint: "checkpoints (purple)" };
export const REFRESH_MS = 3000;
const HEAT_MS = 10_000;
/** Of more, each is drawn with fewer points. */
const FEW_CURVES = 16;
/** Of each rank in a file. All of them are what the server gives at most. */
export const SOME_POINTS = 1000;
const ALL_POINTS = 100_000;
/** The server is asked for all ranks, whichever are shown. */
const MOST_SAVED = 1_000_000;

export function MetricChart({
  chosen: { axis, weight, logarithmic },
  detail,
  hidden,
  name,
  onHidden,
  onSamples,
  onWindow,
  path,
  range,
}: {
  chosen: Chosen;
  detail: Detail;
  /** Labels of ranks. */
  hidden: ReadonlySet<string>;
  name: string;
  onHidden: Dispatch<SetStateAction<ReadonlySet<string>>>;
  /** This metric can be drawn along samples. */
  onSamples: () => void;
  onWindow: (range: Range | null) => void;
  path: string;
  range: Range | null;
}) {
  const begun = seconds(detail.status.started_at) ?? 0;
  const along = isCount(axis) ? axis : "time";
  const asked = { name, points: detail.status.instances.length > FEW_CURVES ? 500 : 1000 };
  const answered = { ...asked, most: MOST_CURVES, axis: along };
  const of = ["series", detail.summary.uid, name, along];
  const { data: whole, error } = useQuery({
    queryKey: of,
    queryFn: () => get<SeriesPage>(path, answered),
    placeholderData: (before) => before,
    // a stretch of time that is over gets no more points, steps may be done again
    refetchInterval: detail.held && (isCount(axis) || !range) ? REFRESH_MS : false,
  });
  const kept = useRef<{ range: Range; window: TimeWindow } | null>(null);
  // the server cuts by time, so a closer look at steps is one at the time when they were done
  const window = useMemo(() => {
    const next = range && whole ? windowOf(range, axis, begun, whole.series) : null;
    // points that arrive move it by a little, and of each window the server is asked
    if (next && kept.current?.range === range && covers(kept.current.window, next)) return kept.current.window;
    kept.current = range && next && { range, window: next };
    return next;
  }, [range, axis, begun, whole]);
  const { data: closer } = useQuery({
    queryKey: [...of, range, window],
    queryFn: () => get<SeriesPage>(path, { ...answered, ...window }),
    enabled: window !== null,
    placeholderData: (before, query) => (query?.queryKey[of.length] === range ? before : undefined),
    refetchInterval: detail.held && window?.end === undefined ? REFRESH_MS : false,
  });
  const data = useMemo(() => {
    if (!whole || !window || !closer) return whole;
    return closer.bands.length > 0 ? closer : { ...closer, series: spliced(whole.series, closer.series, window) };
  }, [whole, closer, window]);
  const samples = whole?.series.some(hasSamples) ?? false;
  useEffect(() => {
    if (samples) onSamples();
  }, [samples]);
  const palette = usePalette();
  const [heat, setHeat] = useState(false);
  const curves = useMemo(() => (data ? smoothed(curvesOf(data, axis, begun), weight) : []), [data, axis, begun, weight]);
  const lines = curves.filter((each) => each.kind === "line");
  const shown = lines.filter((each) => !hidden.has(each.label));
  const heading = data?.bands[0] ? `${name} of ${data.bands[0].count} ranks` : name;
  const saved = data && !data.bands[0] && shown.length === 1 && pointsIn(data.series) <= MOST_SAVED ? ALL_POINTS : SOME_POINTS;
  const marks = useMemo(() => marksOf(detail, axis, begun, whole?.series ?? []), [detail, axis, begun, whole]);
  if (error && !data) return <Problem error={error} />;
  // the time of a step is known from the second one on
  if (data && !window && data.series.length === 0) return null;
  return (
    <Box as="figure" bg="bg.panel" borderRadius="md" borderWidth="1px" data-metric={name} minW={0} p={3}>
      <Flex align="center" as="figcaption" flexWrap="wrap" justify="space-between" mb={1}>
        <Text fontWeight="medium" fontSize="sm" overflowWrap="anywhere">
          {heading}
        </Text>
        <Flex gap={1}>
          {range && (
            <Button onClick={() => onWindow(null)} size="2xs" variant="ghost">
              All
            </Button>
          )}
          {(data?.series.length ?? 0) > 1 && (
            <Button aria-pressed={heat} onClick={() => setHeat(!heat)} size="2xs" variant={heat ? "subtle" : "ghost"}>
              Heat map
            </Button>
          )}
          <Button
            onClick={async () => {
              const { series } = await get<SeriesPage>(path, { ...asked, ...window, points: saved });
              save(`${name}.csv`, new Blob([csv(series.filter((each) => !hidden.has(labelOf(each))))], { type: "text/csv" }));
            }}
            size="2xs"
            title={saved === ALL_POINTS ? `All points of ${shown[0]?.label}` : `About ${quantity(saved)} points of each rank that is shown`}
            variant="ghost"
          >
            CSV
          </Button>
          <Button
            onClick={(event) => {
              const figure = event.currentTarget.closest("figure");
              const canvas = figure?.querySelector("canvas");
              if (!figure || !canvas) return;
              const strokes = placesOf(lines).map((place) => strokeOf(palette, place));
              const named = lines.map(({ label }, number) => ({ label, ...strokes[number]! })).filter(({ label }) => !hidden.has(label));
              const title = `${heading} - ${detail.summary.job} ${detail.summary.run_id}`;
              pictureOf(canvas, figure, title, AXES[axis], named).toBlob((blob) => blob && save(`${name}.png`, blob));
            }}
            size="2xs"
            variant="ghost"
          >
            PNG
          </Button>
        </Flex>
      </Flex>
      {data ? (
        <Chart
          axis={AXES[axis]}
          clock={axis === "time"}
          curves={curves}
          hidden={hidden}
          logarithmic={logarithmic}
          marks={marks}
          name={name}
          onHide={(label, hides) => onHidden((before) => having(before, [label], hides))}
          onKey={(key) => {
            const all = whole && extentOf(curvesOf(whole, axis, begun).map((each) => each.points));
            const next = all ? rangeAfter(key, range, all) : undefined;
            if (next !== undefined) onWindow(next);
            return next !== undefined;
          }}
          onWindow={onWindow}
          range={range}
        />
      ) : (
        <Loading />
      )}
      {marks.length > 0 && (
        <Text color="fg.muted" fontSize="xs">
          Dashed lines: {(["restart", "checkpoint"] as const).filter((kind) => marks.some((each) => each.kind === kind)).map((kind) => MARK_NAMES[kind]).join(" and ")}
        </Text>
      )}
      {lines.length > FEW_LINES && <RankList hidden={hidden} lines={lines} onHidden={onHidden} />}
      {heat && (
        <HeatMap axis={AXES[axis]} place={(x) => placeOf(x, axis, begun)} query={{ name, ...window, axis: along }} path={path} refetchInterval={detail.held && window?.end === undefined ? HEAT_MS : false} />
      )}
    </Box>
  );
}

function pointsIn(series: readonly SeriesAnswer[]): number {
  return series.reduce((sum, { total }) => sum + Math.min(total, ALL_POINTS), 0);
}

function windowOf(range: Range, axis: Axis, start: number, series: readonly SeriesAnswer[]): TimeWindow | null {
  if (isCount(axis)) return timeWindow(series, range, axis);
  const [from, to] = axis === "minutes" ? range.map((at) => start + at * 60) : range;
  return { start: from, end: to };
}

/** Where a chart writes what the server calls `x`, in words. */
function placeOf(x: number, axis: Axis, start: number): string {
  if (axis === "time") return new Date(x * 1000).toLocaleTimeString();
  return quantity(axis === "minutes" ? (x - start) / 60 : x);
}

function curvesOf(page: SeriesPage, axis: Axis, start: number): Curve[] {
  const [band] = page.bands;
  const lines = page.series.map((each, number): Curve => {
    // a rank has one colour in all charts; beside a band, whose median has the first, there are so few that each has its own
    const place = band ? number + 1 : (each.rank ?? number);
    return { kind: "line", label: labelOf(each), place, points: pointsOf(each, axis, start) };
  });
  return band ? [...bandCurves(band, axis, start), ...lines] : lines;
}

/** Where the axis has restarts and checkpoints; `whole`: all series, by which it is known what had been done at a time. */
function marksOf(detail: Detail, axis: Axis, start: number, whole: readonly SeriesAnswer[]): Mark[] {
  const restarts = detail.attempts.filter((each) => each.attempt > 0 || each.job_attempt > 0).map((each) => seconds(each.started_at)!);
  const saved = detail.checkpoints.map((each) => seconds(each.at)!);
  const placed = (times: readonly number[]) =>
    isCount(axis) ? reachedAt(times, whole, axis) : times.map((time) => (axis === "minutes" ? (time - start) / 60 : time));
  return [
    ...placed(restarts).map((at): Mark => ({ at, kind: "restart" })),
    ...(axis === "step" ? detail.checkpoints.map((each) => each.step) : placed(saved)).map((at): Mark => ({ at, kind: "checkpoint" })),
  ];
}

function save(name: string, blob: Blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
