// Blocks of a log's bytes as lines. Pure.
import type { LinePage, LogPage } from "./api.ts";

export interface Line {
  /** Of its first byte; what a permalink names. */
  offset: number;
  /** From 1; null: nobody has counted. */
  number: number | null;
  text: string;
  error: boolean;
}

/** A stretch of a log, and which line of the log it begins with, where that is known. */
export interface Block extends LogPage {
  line: number | null;
}

/** Where a line is, and its number, from 1, where somebody knows it. */
export interface Place {
  offset: number;
  line: number | null;
}

/** So much of a log is kept; what is farther from where the user looks is read again when it is looked at. */
export const MOST_BLOCKS = 20;

const SIZE = new TextEncoder();

/** Begin with the first whole line, where a stretch was cut out of a log at any byte. */
export function fromWholeLine(page: LogPage): LogPage {
  const cut = page.text.indexOf("\n") + 1;
  if (page.start === 0 || cut === 0 || cut === page.text.length) return page;
  return {
    ...page,
    start: page.start + SIZE.encode(page.text.slice(0, cut)).length,
    text: page.text.slice(cut),
    errors: page.errors.filter((each) => each > 0).map((each) => each - 1),
  };
}

/** `known`: of a line that may be in the block. */
export function blockOf(page: LogPage, known: Place | null): Block {
  if (page.start === 0) return { ...page, line: 1 };
  if (known?.line == null) return { ...page, line: null };
  const at = linesOf([{ ...page, line: 1 }]).find((each) => each.offset === known.offset)?.number;
  return { ...page, line: at ? known.line - at + 1 : null };
}

export function linesOf(blocks: readonly Block[]): Line[] {
  const lines: Line[] = [];
  for (const block of blocks) {
    const errors = new Set(block.errors);
    let offset = block.start;
    const texts = block.text.split("\n");
    texts.forEach((text, place) => {
      const last = place === texts.length - 1;
      if (last && text === "") return;
      lines.push({
        offset,
        number: block.line === null ? null : block.line + place,
        // a progress bar writes over itself: what it wrote last is what a terminal would show
        text: text.replace(/\r$/, "").split("\r").at(-1) ?? "",
        error: errors.has(place),
      });
      offset += SIZE.encode(text).length + 1;
    });
  }
  return lines;
}

const ends = (block: LogPage) => block.text.split("\n").length - 1;

/** Add a block that follows, or comes before, what is there; the far end is let go. */
export function extend(blocks: readonly Block[], block: Block): Block[] {
  const last = blocks.at(-1);
  const first = blocks[0];
  if (!last || !first || block.generation !== last.generation) return [block];
  if (block.start === block.end) return [...blocks.slice(0, -1), { ...last, eof: block.eof }];
  if (block.start >= last.end) {
    const line = block.line ?? (block.start === last.end && last.line !== null ? last.line + ends(last) : null);
    return [...blocks, { ...block, line }].slice(-MOST_BLOCKS);
  }
  if (block.end <= first.start) {
    const line = block.line ?? (block.end === first.start && first.line !== null ? first.line - ends(block) : null);
    return [{ ...block, line }, ...blocks].slice(0, MOST_BLOCKS);
  }
  return [block];
}

/** Add a page of merged lines before or after what is there; the far end is let go. */
export function joinPages(pages: readonly LinePage[], page: LinePage, place: "before" | "after"): LinePage[] {
  if (place === "before") return [page, ...pages].slice(0, MOST_BLOCKS);
  if (page.lines.length > 0) return [...pages, page].slice(-MOST_BLOCKS);
  // nothing new: later the same place is asked for, or another one where an attempt has begun since
  const last = pages.at(-1)!;
  return [...pages.slice(0, -1), { ...last, after: page.after, eof: page.eof }];
}

/** Where the nearest stretch of errors begins behind (1) or before (-1) a line; -1: nowhere. */
export function errorFrom(errors: readonly boolean[], place: number, step: 1 | -1): number {
  for (let at = place + step; at >= 0 && at < errors.length; at += step) {
    if (errors[at] && !errors[at - 1]) return at;
  }
  return -1;
}

/** `09:05:01.250`, here; empty for none. */
export function timeOfDay(seconds: number | null): string {
  if (seconds === null) return "";
  const at = new Date(1000 * seconds);
  const digits = (value: number, count = 2) => String(value).padStart(count, "0");
  return `${digits(at.getHours())}:${digits(at.getMinutes())}:${digits(at.getSeconds())}.${digits(at.getMilliseconds(), 3)}`;
}
