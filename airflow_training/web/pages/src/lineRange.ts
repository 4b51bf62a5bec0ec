// Where a line of a text is, and how lines end. Pure, and of editors alone: what the first load shares with it would be one more file of that.

/** What a line says, without its indent and its end; a line that is not there (any more) is the nearest one. */
export function rangeOfLine(text: string, line: number | null): { from: number; to: number } {
  const lines = text.split("\n");
  const index = Math.min(Math.max(line ?? 1, 1), lines.length) - 1;
  const start = lines.slice(0, index).reduce((sum, each) => sum + each.length + 1, 0);
  const found = lines[index]!;
  return { from: start + found.length - found.trimStart().length, to: start + found.length };
}

/** Whether each line of a text ends as on Windows. */
export const hasWindowsLines = (text: string): boolean => text.includes("\r\n") && !/(^|[^\r])\n/.test(text);
