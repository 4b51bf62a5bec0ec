import assert from "node:assert/strict";
import { test } from "node:test";

import type { LinePage, LogPage } from "../src/api.ts";
import { extend, joinPages, linesOf, MOST_BLOCKS, } from "../src/lines.ts";

function block(start: number, text: string, more: Partial<LogPage> = {}): LogPage {
  return { start, end: start + new TextEncoder().encode(text).length, eof: false, generation: "a", text, ...more };
}

test("offsets of lines are bytes, not characters", () => {
  assert.deepEqual(linesOf([block(10, "grün\n"), block(16, "b\nc")]), [
    { offset: 10, text: "grün" },
    { offset: 16, text: "b" },
    { offset: 18, text: "c" },
  ]);
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
  const page = (name: string, lines = 1): LinePage => ({
    lines: Array.from({ length: lines }, () => ({ role: name, index: 0, attempt: 0, offset: 0, time: null, severity: "info", text: "" })),
    before: `<${name}`, after: `${name}>`, begins: false, eof: false,
  });
  let pages = joinPages(joinPages([page("b")], page("c"), "after"), page("a"), "before");
  assert.deepEqual(pages.map((each) => each.before), ["<a", "<b", "<c"]);
  pages = joinPages(pages, { ...page("d", 0), eof: true }, "after");
  assert.deepEqual([pages.length, pages.at(-1)!.after, pages.at(-1)!.eof], [3, "d>", true]);
  for (let number = 0; number < 100; number += 1) pages = joinPages(pages, page("e"), "after");
  assert.equal(pages.length, MOST_BLOCKS);
});
