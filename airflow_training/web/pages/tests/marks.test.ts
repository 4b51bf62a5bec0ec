import assert from "node:assert/strict";
import { test } from "node:test";

import { rangeOfLine } from "../src/lineRange.ts";
import { countOf, marksOf } from "../src/marks.ts";

const told = (line: number | null, more = {}) => ({ field: "spec.image", message: "is <b>wrong</b>", line, allowed: [], hint: "", ...more });

test("mistakes come before warnings, each from top to bottom, in the words of validate", () => {
  const found = marksOf({ mistakes: [told(9), told(2, { allowed: ["a", "b"], hint: "did you mean 'a'?" })], warnings: [told(null, { field: "" })] });
  assert.deepEqual(
    found.map(({ severity, line, text }) => [severity, line, text]),
    [
      ["error", 2, "spec.image: is <b>wrong</b>\nallowed: a, b\nhint: did you mean 'a'?"],
      ["error", 9, "spec.image: is <b>wrong</b>"],
      ["warning", null, "is <b>wrong</b>"],
    ],
  );
});

test("a line is marked from its first word to its end", () => {
  const text = "spec:\n  image: x\n\nend";
  const marked = (line: number | null) => {
    const { from, to } = rangeOfLine(text, line);
    return text.slice(from, to);
  };
  assert.deepEqual([1, 2, 3, 4, 99, 0, null].map(marked), ["spec:", "image: x", "", "end", "end", "spec:", "spec:"]);
  assert.deepEqual(rangeOfLine("", 3), { from: 0, to: 0 });
});

test("mistakes and warnings are counted in words", () => {
  assert.equal(countOf({ mistakes: [told(1)], warnings: [] }), "1 mistake");
  assert.equal(countOf({ mistakes: [], warnings: [told(1), told(2)] }), "no mistakes, 2 warnings");
});
