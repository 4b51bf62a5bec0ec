// Blocks of a log's bytes as lines. Pure.
import type { LinePage, LogPage } from "./api.ts";

export interface Line {
  /** Of its first byte; what a permalink names. */
  offset: number;
  text: string;
}

/** So much of a log is kept; what is farther from where the user looks is read again when it is looked at. */
export const MOST_BLOCKS = 20;

const SIZE = new TextEncoder();
const ERROR = /\b(error|exception|traceback|fatal|panic|critical|killed|oom)\b/i;

export function linesOf(blocks: readonly LogPage[]): Line[] {
  const lines: Line[] = [];
  for (const block of blocks) {
    let offset = block.start;
    const texts = block.text.split("\n");
    texts.forEach((text, number) => {
      const last = number === texts.length - 1;
      if (last && text === "") return;
      // a progress bar writes over itself: what it wrote last is what a terminal would show
      lines.push({ offset, text: text.replace(/\r$/, "").split("\r").at(-1) ?? "" });
      offset += SIZE.encode(text).length + 1;
    });
  }
  return lines;
}

/** Add a block that follows, or comes before, what is there; the far end is let go. */
export function extend(blocks: readonly LogPage[], block: LogPage): LogPage[] {
  const last = blocks.at(-1);
  const first = blocks[0];
  if (!last || !first || block.generation !== last.generation) return [block];
  if (block.start === block.end) return blocks.length ? [...blocks.slice(0, -1), { ...last, eof: block.eof }] : [block];
  if (block.start >= last.end) return [...blocks, block].slice(-MOST_BLOCKS);
  if (block.end <= first.start) return [block, ...blocks].slice(0, MOST_BLOCKS);
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

export function looksLikeError(text: string): boolean {
  return ERROR.test(text);
}
