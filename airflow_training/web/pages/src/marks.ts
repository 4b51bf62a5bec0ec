// Mistakes and warnings of a document: what is said of each, and where it stands. Pure.
import type { CheckAnswer } from "./api.ts";
import { counted } from "./words.ts";

type Told = CheckAnswer["mistakes"][number];

export interface Mark {
  severity: "error" | "warning";
  /** From 1; null: of the whole document. */
  line: number | null;
  /** As `airflow-training validate` says it, without the line. */
  text: string;
}

function markOf(told: Told, severity: Mark["severity"]): Mark {
  const lines = [told.field ? `${told.field}: ${told.message}` : told.message];
  if (told.allowed.length > 0) lines.push(`allowed: ${told.allowed.join(", ")}`);
  if (told.hint) lines.push(`hint: ${told.hint}`);
  return { severity, line: told.line, text: lines.join("\n") };
}

/** Mistakes first, each kind from top to bottom. */
export function marksOf({ mistakes, warnings }: CheckAnswer): Mark[] {
  const sorted = (each: readonly Told[], severity: Mark["severity"]) =>
    each.map((told) => markOf(told, severity)).sort((one, other) => (one.line ?? 0) - (other.line ?? 0));
  return [...sorted(mistakes, "error"), ...sorted(warnings, "warning")];
}

/** `2 mistakes, 1 warning` or `no mistakes`. */
export function countOf({ mistakes, warnings }: CheckAnswer): string {
  const said = [mistakes.length ? counted(mistakes.length, "mistake") : "no mistakes", ...(warnings.length ? [counted(warnings.length, "warning")] : [])];
  return said.join(", ");
}
