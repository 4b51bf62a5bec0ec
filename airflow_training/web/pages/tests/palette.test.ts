import assert from "node:assert/strict";
import { test } from "node:test";

import { DARK, LIGHT, strokeOf } from "../src/palette.ts";

function luminance(colour: string): number {
  const [red, green, blue] = [1, 3, 5].map((from) => {
    const share = parseInt(colour.slice(from, from + 2), 16) / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red! + 0.7152 * green! + 0.0722 * blue!;
}

function contrast(one: string, other: string): number {
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (light! + 0.05) / (dark! + 0.05);
}

test("each colour stands out from the panel by 3:1", () => {
  for (const [palette, panel] of [[LIGHT, "#ffffff"], [DARK, "#18181b"]] as const) {
    for (const colour of [...palette.lines, palette.restart, palette.checkpoint]) {
      assert.ok(contrast(colour, panel) >= 3, `${colour} on ${panel}: ${contrast(colour, panel)}`);
    }
  }
});

test("no two of 32 lines are drawn alike, and a line keeps its look", () => {
  const looks = Array.from({ length: 32 }, (_, place) => JSON.stringify(strokeOf(LIGHT, place)));
  assert.equal(new Set(looks).size, 32);
  assert.deepEqual(strokeOf(DARK, 9), { colour: DARK.lines[1], dash: [6, 3] });
});
