// Where the boxes of roles stand, and the arrows between them: each to the right of what it waits for. Pure.
import type { Detail } from "./api.ts";

export const BOX = { width: 224, height: 60 } as const;
const GAP = { x: 132, y: 20 } as const;
/** Below the boxes: for arrows that would else pass behind one. */
const LANE = 14;

export interface RoleBox {
  role: Detail["roles"][number];
  x: number;
  y: number;
}

/** From the right edge of what is waited for to the left edge of what waits. */
export interface RoleArrow {
  from: string;
  to: string;
  status: string;
  path: string;
  /** Where its words end, above the line. */
  x: number;
  y: number;
}

export function roleGraph(roles: Detail["roles"]): { boxes: RoleBox[]; arrows: RoleArrow[]; width: number; height: number } {
  const named = new Map(roles.map((each) => [each.name, each]));
  const depth = (name: string): number => Math.max(0, ...(named.get(name)?.depends_on ?? []).map((each) => 1 + depth(each.role)));
  const columns: Detail["roles"][] = [];
  for (const role of roles) (columns[depth(role.name)] ??= []).push(role);
  const boxes = columns.flatMap((column, across) =>
    column.map((role, down): RoleBox => ({ role, x: across * (BOX.width + GAP.x), y: down * (BOX.height + GAP.y) })),
  );
  const places = new Map(boxes.map((each) => [each.role.name, each]));
  const bottom = Math.max(...columns.map((each) => each.length)) * (BOX.height + GAP.y) - GAP.y;
  let lanes = 0;
  const arrows = boxes.flatMap(({ role, x, y }) =>
    role.depends_on.flatMap(({ role: from, status }, number): RoleArrow[] => {
      const first = places.get(from);
      if (!first) return [];
      const [startX, startY] = [first.x + BOX.width, first.y + BOX.height / 2];
      // several arrows that end at one box end apart
      const endY = y + (BOX.height * (number + 1)) / (role.depends_on.length + 1);
      const curve = (left: number, above: number, below: number) => `H${left + 30}C${left + 60} ${above} ${left + 60} ${below} ${left + 90} ${below}`;
      let path = `M${startX} ${startY}`;
      let above = startY;
      if (x - startX > GAP.x) {
        lanes += 1;
        above = bottom + lanes * LANE;
        path += curve(startX, startY, above);
      }
      path += `${curve(x - GAP.x, above, endY)}H${x - 2}`;
      return [{ from, to: role.name, status, path, x: x - 10, y: endY - 1 }];
    }),
  );
  return {
    boxes,
    arrows,
    width: columns.length * (BOX.width + GAP.x) - GAP.x,
    height: bottom + lanes * LANE,
  };
}
