import assert from "node:assert/strict";
import { test } from "node:test";

import type { LinePage, LogPage } from "../src/api.ts";
import { blockOf, errorFrom, extend, fromWholeLine, joinPages, linesOf, MOST_BLOCKS, timeOfDay, type Block } from "../src/lines.ts";

function page(start: number, text: string, more: Partial<LogPage> = {}): LogPage {
  const end = start + new TextEncoder().encode(text).length;
  return { start, end, eof: false, generation: "a", text, errors: [], inside: false, ...more };
}

function block(start: number, text: string, more: Partial<Block> = {}): Block {
  return { line: null, ...page(start, text), ...more };
}

test("offsets of lines are bytes, not characters", () => {
  const found = linesOf([block(10, "grün\n"), block(16, "b\nc")]);
  assert.deepEqual(found.map(({ offset, text }) => [offset, text]), [[10, "grün"], [16, "b"], [18, "c"]]);
});

test("an empty line is a line", () => {
  assert.deepEqual(linesOf([block(0, "\n\na\n")]).map((each) => each.text), ["", "", "a"]);
});

test("what a progress bar has overwritten is not shown", () => {
  assert.deepEqual(linesOf([block(0, "10 %\r20 %\r30 %\r\n")]).map((each) => each.text), ["30 %"]);
});

test("blocks follow each other in both directions", () => {
  const middle = block(10, "m\n");
  const both = extend(extend([middle], block(12, "e\n")), block(8, "b\n"));
  assert.deepEqual(both.map((each) => each.text), ["b\n", "m\n", "e\n"]);
});

test("a replaced log begins anew", () => {
  assert.deepEqual(extend([block(0, "old\n")], block(0, "new\n", { generation: "b" })).map((each) => each.text), ["new\n"]);
});

test("an answer without text only says whether the log is complete", () => {
  const found = extend([block(0, "a\n")], block(2, "", { eof: true }));
  assert.deepEqual(found, [block(0, "a\n", { eof: true })]);
});

test("however long it is followed, only so much is kept", () => {
  let blocks: LogPage[] = [];
  for (let number = 0; number < 100; number += 1) blocks = extend(blocks, block(2 * number, "a\n"));
  assert.equal(blocks.length, MOST_BLOCKS);
  assert.equal(blocks.at(-1)!.end, 200);
});

test("pages of merged lines are joined at both ends, and no more than so many are kept", () => {
  const merged = (name: string, lines = 1): LinePage => ({
    lines: Array.from({ length: lines }, () => ({ role: name, index: 0, attempt: 0, offset: 0, time: null, severity: "info", text: "" })),
    before: `<${name}`, after: `${name}>`, begins: false, eof: false,
  });
  let pages = joinPages(joinPages([merged("b")], merged("c"), "after"), merged("a"), "before");
  assert.deepEqual(pages.map((each) => each.before), ["<a", "<b", "<c"]);
  pages = joinPages(pages, { ...merged("d", 0), eof: true }, "after");
  assert.deepEqual([pages.length, pages.at(-1)!.after, pages.at(-1)!.eof], [3, "d>", true]);
  for (let number = 0; number < 100; number += 1) pages = joinPages(pages, merged("e"), "after");
  assert.equal(pages.length, MOST_BLOCKS);
});

test("lines that the server calls errors are", () => {
  const found = linesOf([block(0, "ok\nValueError: x\n0 errors\n", { errors: [1] }), block(27, "bad\n", { errors: [0] })]);
  assert.deepEqual(found.map((each) => each.error), [false, true, false, true]);
});

test("lines have numbers from the beginning of a log on", () => {
  const begun = extend([blockOf(page(0, "a\nb\n"), null)], blockOf(page(4, "c\n"), null));
  assert.deepEqual(linesOf(begun).map((each) => each.number), [1, 2, 3]);
});

test("lines have numbers around one whose number is known, and none elsewhere", () => {
  const known = blockOf(page(10, "a\nb\nc\n"), { offset: 12, line: 400 });
  const around = extend(extend([known], blockOf(page(6, "y\nz\n"), null)), blockOf(page(16, "d\n"), null));
  assert.deepEqual(linesOf(around).map((each) => each.number), [397, 398, 399, 400, 401, 402]);
  assert.equal(linesOf([blockOf(page(10, "a\n"), { offset: 99, line: 400 })])[0]!.number, null);
  assert.equal(linesOf([blockOf(page(10, "a\n"), { offset: 10, line: null })])[0]!.number, null);
});

test("a line that is longer than a block is one line", () => {
  const long = extend([blockOf(page(0, "aaa"), null)], blockOf(page(3, "aa\nb\n"), null));
  assert.deepEqual(linesOf(long).map((each) => each.number), [1, 1, 2]);
});

test("what is cut out of a log at any byte begins with its first whole line", () => {
  const whole = fromWholeLine(page(10, "ün\nb\nc\n", { errors: [0, 2] }));
  assert.deepEqual([whole.start, whole.text, whole.errors], [14, "b\nc\n", [1]]);
  for (const kept of [page(0, "a\nb\n"), page(10, "no end"), page(10, "one\n")]) assert.equal(fromWholeLine(kept), kept);
});

test("stretches of errors follow each other in both directions", () => {
  const errors = [true, true, false, true, false, false, true];
  const walk = (from: number, step: 1 | -1) => {
    const found = [];
    for (let at = errorFrom(errors, from, step); at >= 0; at = errorFrom(errors, at, step)) found.push(at);
    return found;
  };
  assert.deepEqual(walk(-1, 1), [0, 3, 6]);
  assert.deepEqual(walk(errors.length, -1), [6, 3, 0]);
  assert.equal(errorFrom(errors, 1, -1), 0, "the beginning of the stretch that somebody is in");
});

test("times are those of here, to the millisecond", () => {
  const at = new Date(2026, 0, 2, 9, 5, 1, 50).getTime() / 1000;
  assert.equal(timeOfDay(at), "09:05:01.050");
  assert.equal(timeOfDay(null), "");
});
