import assert from "node:assert/strict";
import { test } from "node:test";

import type { SeriesAnswer } from "../src/api.ts";
import { bandCurves, covers, csv, extentOf, hasSamples, join, placesOf, pointsOf, rangeAfter, smooth, smoothed, sparkline, spliced, reachedAt, timeWindow, type Curve } from "../src/curves.ts";

function series(values: Partial<SeriesAnswer>): SeriesAnswer {
  return { name: "loss", role: "worker", index: 0, rank: null, x_step: [], x_time: [], y: [], total: 0, ...values };
}

test("of a step that was done again, the newest value counts, and steps ascend", () => {
  const again = series({ x_step: [1, 2, 3, 2, 3, 4], x_time: [1, 2, 3, 4, 5, 6], y: [9, 8, 7, 6, 5, 4] });
  assert.deepEqual(pointsOf(again, "step", 0), [
    [1, 2, 3, 4],
    [9, 6, 5, 4],
  ]);
});

test("on the axis of time nothing is left out", () => {
  const again = series({ x_step: [2, 2], x_time: [120, 180], y: [1, null] });
  assert.deepEqual(pointsOf(again, "minutes", 60), [
    [1, 2],
    [1, null],
  ]);
  assert.deepEqual(pointsOf(again, "time", 60)[0], [120, 180]);
});

test("points without a step are not on the axis of steps", () => {
  assert.deepEqual(pointsOf(series({ x_step: [null, 5], x_time: [1, 2], y: [3, 4] }), "step", 0), [[5], [4]]);
});

const EVEN = series({ x_step: [0, 10, 20, 30, 40], x_time: [100, 110, 120, 130, 140], y: [5, 4, 3, 2, 1] });

test("a closer look at steps is one at their time, with a point on either side", () => {
  assert.deepEqual(timeWindow([EVEN], [18, 22]), { start: 110, end: 130 });
  assert.deepEqual(timeWindow([EVEN], [12, 18]), { start: 110, end: 120 });
  assert.deepEqual(timeWindow([EVEN], [0, 5]), { start: 100, end: 110 });
});

test("of ranks that are not equally fast each is seen", () => {
  const slow = series({ x_step: [0, 10, 20, 30], x_time: [200, 250, 300, 350], y: [1, 2, 3, 4] });
  assert.deepEqual(timeWindow([EVEN, slow], [18, 22]), { start: 110, end: 350 });
});

test("steps that were done again are looked at each time", () => {
  const again = series({ x_step: [1, 2, 3, 4, 2, 3, 4, 5], x_time: [1, 2, 3, 4, 14, 15, 16, 17], y: [8, 7, 6, 5, 4, 3, 2, 1] });
  assert.deepEqual(timeWindow([again], [2.5, 3.5]), { start: 2, end: 16 });
});

test("what comes after the newest point is seen too, and of no step there is nothing to look at", () => {
  assert.deepEqual(timeWindow([EVEN], [35, 40]), { start: 130 });
  assert.deepEqual(timeWindow([series({ x_step: [null, 7], x_time: [1, 2], y: [3, 4] })], [7, 8]), { start: 2 });
  assert.equal(timeWindow([EVEN], [41, 50]), null);
  assert.equal(timeWindow([series({ x_step: [null], x_time: [1], y: [1] })], [0, 9]), null);
});

test("samples are an axis where they are told", () => {
  const told = { ...series({ x_step: [1, 2, 3], x_time: [10, 20, 30], y: [3, 2, 1] }), x_samples: [null, 64, 128] };
  assert.deepEqual(pointsOf(told, "samples", 0), [[64, 128], [2, 1]]);
  assert.deepEqual(timeWindow([told], [100, 120], "samples"), { start: 20, end: 30 });
  assert.deepEqual(reachedAt([25, 5], [told], "samples"), [64]);
  assert.deepEqual([told, EVEN].map(hasSamples), [true, false]);
  assert.deepEqual(pointsOf(EVEN, "samples", 0), [[], []]);
});

test("keys look closer, farther and along, and never beyond what there is", () => {
  const all: [number, number] = [0, 100];
  assert.deepEqual(rangeAfter("+", null, all), [25, 75]);
  assert.deepEqual(rangeAfter("-", [25, 75], all), null);
  assert.deepEqual(rangeAfter("-", [90, 100], all), [80, 100]);
  assert.deepEqual(rangeAfter("ArrowRight", [20, 40], all), [25, 45]);
  assert.deepEqual(rangeAfter("ArrowRight", [78, 98], all), [80, 100]);
  assert.deepEqual(rangeAfter("ArrowLeft", [2, 22], all), [0, 20]);
  assert.deepEqual(rangeAfter("Escape", [20, 40], all), null);
  assert.equal(rangeAfter("ArrowLeft", null, all), undefined);
  assert.equal(rangeAfter("a", [20, 40], all), undefined);
});

test("an extent is that of all curves, and of none there is none", () => {
  assert.deepEqual(extentOf([[[1, 5], [0, 0]], [[], []], [[3, 9], [0, 0]]]), [1, 9]);
  assert.equal(extentOf([[[], []]]), null);
});

test("points that were asked for of a window stand among those of all", () => {
  const finer = series({ x_step: [10, 15, 20], x_time: [110, 115, 120], y: [4, 9, 3], total: 7 });
  const other = series({ index: 1, x_step: [1], x_time: [100], y: [1] });
  const [seen, left] = spliced([EVEN, other], [finer], { start: 110, end: 120 });
  assert.deepEqual(seen, { ...EVEN, x_step: [0, 10, 15, 20, 30, 40], x_time: [100, 110, 115, 120, 130, 140], y: [5, 4, 9, 3, 2, 1], x_samples: [], total: 7 });
  assert.equal(left, other);
  assert.deepEqual(spliced([EVEN], [finer], { start: 110 })[0]!.x_step, [0, 10, 15, 20]);
  assert.deepEqual(spliced([EVEN], [series({ x_step: [50], x_time: [150], y: [0] })], { start: 145 })[0]!.x_step, [0, 10, 20, 30, 40, 50]);
  assert.deepEqual(spliced([EVEN], [finer], { end: 120 })[0]!.x_step, [10, 15, 20, 30, 40]);
});

test("a window is kept as long as it has all that is looked at", () => {
  assert.ok(covers({ start: 1, end: 9 }, { start: 2, end: 9 }));
  assert.ok(covers({ start: 1 }, { start: 1, end: 9 }));
  assert.ok(covers({}, { start: 1 }));
  assert.ok(!covers({ start: 1, end: 9 }, { start: 1 }));
  assert.ok(!covers({ start: 2, end: 9 }, { start: 1, end: 3 }));
});

test("a restart is at the largest step that any rank had reached before it", () => {
  const behind = series({ x_step: [0, 10, null], x_time: [100, 118, 119], y: [1, 2, 3] });
  assert.deepEqual(reachedAt([135, 115], [behind, EVEN]), [10, 30]);
  assert.deepEqual(reachedAt([111, 112, 113], [EVEN]), [10]);
  assert.deepEqual(reachedAt([100, 50], [EVEN]), []);
  assert.deepEqual(reachedAt([150], []), []);
});

test("a restart stays where it was although its steps are done again", () => {
  const again = series({ x_step: [1, 2, 3, 2, 3, 4], x_time: [1, 2, 3, 14, 15, 16], y: [6, 5, 4, 3, 2, 1] });
  assert.deepEqual(reachedAt([10], [again]), [3]);
});

test("a smoothed constant is itself from its first point on, gaps stay gaps", () => {
  const [, y] = smooth([[1, 2, 3, 4], [5, 5, null, 5]], 0.99);
  assert.ok(y.every((each) => each === null || Math.abs(each - 5) < 1e-9));
  assert.equal(y[2], null);
});

test("curves with other x are joined on the union", () => {
  assert.deepEqual(join([[[1, 3], [10, 30]], [[2, 3], [null, 3]]]), [
    [1, 2, 3],
    [
      [10, undefined, 30],
      [undefined, null, 3],
    ],
  ]);
});

test("a band begins with the run on the axis of minutes", () => {
  const band = { name: "loss", count: 99, x: [60, 120], minimum: [0, 1], low: [1, 2], median: [2, 3], high: [3, 4], maximum: [4, 5] };
  const curves = bandCurves(band, "minutes", 60);
  assert.deepEqual(curves.at(-1), { label: "median", kind: "line", points: [[0, 1], [2, 3]] });
  assert.deepEqual(curves.map((each) => each.kind), ["raw", "raw", "band", "band", "line"]);
});

test("the median of a band is smoothed, with its points behind it, and the band is not", () => {
  const band = { name: "loss", count: 99, x: [1, 2], minimum: [0, 0], low: [1, 1], median: [2, 4], high: [5, 5], maximum: [9, 9] };
  const curves = bandCurves(band, "step", 0);
  assert.deepEqual(smoothed(curves, 0), curves);
  const drawn = smoothed(curves, 0.5);
  assert.deepEqual(drawn.slice(0, 4), curves.slice(0, 4));
  assert.deepEqual(
    drawn.slice(4).map(({ kind, label, behind }) => [kind, label, behind]),
    [
      ["raw", "median, raw", "median"],
      ["line", "median", undefined],
    ],
  );
  assert.deepEqual(drawn[4]!.points, curves[4]!.points);
  assert.ok(drawn[5]!.points[1][1]! > 2 && drawn[5]!.points[1][1]! < 4);
});

test("a line and the points behind it have one colour, that of its rank where it is known", () => {
  const line = (label: string, place?: number): Curve => ({ kind: "line", label, place, points: [[], []] });
  assert.deepEqual(placesOf([line("a"), line("b")]), [0, 1]);
  assert.deepEqual(placesOf(smoothed([line("a", 4), line("b", 2)], 0.5)), [4, 4, 2, 2]);
  const band = bandCurves({ name: "loss", count: 99, x: [], minimum: [], low: [], median: [], high: [], maximum: [] }, "step", 0);
  assert.deepEqual(placesOf([...band, line("worst", 1)]), [0, 0, 0, 0, 0, 1]);
});

test("a spreadsheet gets numbers as numbers and names as text", () => {
  const text = csv([series({ name: '=cmd()"', x_step: [1], x_time: [0], y: [null] })]);
  assert.equal(text, 'name,role,index,rank,step,time,value\r\n"\'=cmd()""",worker,0,,1,1970-01-01T00:00:00.000Z,NaN\r\n');
});

test("a short line goes from edge to edge and is broken where there is no value", () => {
  assert.equal(sparkline([4, 2, 0], 10, 8), "M0.0 0.0L5.0 4.0L10.0 8.0");
  assert.equal(sparkline([1, null, 3], 10, 8), "M0.0 8.0M10.0 0.0");
  assert.equal(sparkline([5, 5], 10, 8), "M0.0 4.0L10.0 4.0");
  assert.equal(sparkline([], 10, 8), "");
});

test("no name is a formula to a spreadsheet", () => {
  for (const first of ["=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠"]) {
    const [, row] = csv([series({ name: `${first}cmd`, x_step: [1], x_time: [0], y: [-1] })]).split(/\r\n(?=.)/);
    assert.match(row!, /^"?'/);
    assert.match(row!, /,-1\s*$/);
  }
});
