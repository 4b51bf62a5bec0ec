// A chart as a picture of its own: with its title, what its axis is, and the names of its lines.
import type { Stroke } from "./palette.ts";

const FONT = "system-ui, sans-serif";
const MARGIN = 12;
const LINE = 20;
const SWATCH = 24;
const MOST_NAMES = 32;

export interface Named extends Stroke {
  label: string;
}

/** Draw a chart and what stands around it in the colours of the element that holds it. */
export function pictureOf(chart: HTMLCanvasElement, around: HTMLElement, title: string, axis: string, names: readonly Named[]): HTMLCanvasElement {
  const scale = chart.width / chart.clientWidth;
  const told = names.slice(0, MOST_NAMES);
  const picture = document.createElement("canvas");
  const context = picture.getContext("2d")!;
  const small = `12px ${FONT}`;
  context.font = small;
  const labels = told.map((each) => each.label);
  if (names.length > told.length) labels.push(`and ${names.length - told.length} more`);
  const column = Math.max(1, ...labels.map((each) => context.measureText(each).width + SWATCH + 2 * MARGIN));
  const columns = Math.max(1, Math.floor((chart.clientWidth + MARGIN) / column));
  const rows = Math.ceil(labels.length / columns);
  const below = 2 * MARGIN + LINE + chart.clientHeight;
  picture.width = chart.width + 2 * MARGIN * scale;
  picture.height = (below + (1 + rows) * LINE + MARGIN) * scale;
  context.scale(scale, scale); // a canvas forgets all it was told when its size is set
  const { backgroundColor, color } = getComputedStyle(around);
  context.fillStyle = backgroundColor;
  context.fillRect(0, 0, picture.width, picture.height);
  context.fillStyle = color;
  context.textBaseline = "middle";
  context.font = `600 14px ${FONT}`;
  context.fillText(title, MARGIN, MARGIN + LINE / 2, chart.clientWidth);
  context.drawImage(chart, MARGIN, 2 * MARGIN + LINE, chart.clientWidth, chart.clientHeight);
  context.font = small;
  context.textAlign = "center";
  context.fillText(axis, MARGIN + chart.clientWidth / 2, below);
  context.textAlign = "left";
  context.lineWidth = 2;
  labels.forEach((label, place) => {
    const x = MARGIN + (place % columns) * column;
    const y = below + (1 + Math.floor(place / columns)) * LINE;
    const stroke = told[place];
    if (stroke) {
      context.strokeStyle = stroke.colour;
      context.setLineDash([...stroke.dash]);
      context.beginPath();
      context.moveTo(x, y);
      context.lineTo(x + SWATCH, y);
      context.stroke();
    }
    context.fillText(label, x + (stroke ? SWATCH + 6 : 0), y);
  });
  return picture;
}
