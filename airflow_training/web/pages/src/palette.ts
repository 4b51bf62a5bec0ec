// Colours of what is drawn on canvases, in light and dark.
import { useSyncExternalStore } from "react";

export interface Palette {
  /** Distinct to people who see few colours, and each stands out from a panel by 3:1 at least. */
  lines: readonly string[];
  restart: string;
  checkpoint: string;
}

export const LIGHT: Palette = {
  lines: ["#0072b2", "#c27800", "#00805d", "#c4609c", "#2f96cf", "#c84a00", "#7d7d7d", "#8a7d00"],
  restart: "#c27800",
  checkpoint: "#7c5cd6",
};
export const DARK: Palette = {
  lines: ["#4aa3e0", "#f0ad2e", "#22b98a", "#e08cbc", "#8fd0f5", "#ff7a3d", "#a3a3a3", "#d9cc3f"],
  restart: "#f0ad2e",
  checkpoint: "#b39bf0",
};
/** Of lines whose colours are there already. */
const DASHES: readonly (readonly number[])[] = [[], [6, 3], [2, 3], [10, 3, 2, 3]];

export interface Stroke {
  colour: string;
  dash: readonly number[];
}

/** How the line of a place, from 0, is drawn. */
export function strokeOf({ lines }: Palette, place: number): Stroke {
  return { colour: lines[place % lines.length]!, dash: DASHES[Math.floor(place / lines.length) % DASHES.length]! };
}

const root = () => document.documentElement;

function watch(changed: () => void): () => void {
  const themed = new MutationObserver(changed);
  themed.observe(root(), { attributes: true, attributeFilter: ["class"] });
  return () => themed.disconnect();
}

/** The palette of the page as it is now. */
export function usePalette(): Palette {
  return useSyncExternalStore(watch, () => (root().classList.contains("dark") ? DARK : LIGHT));
}
