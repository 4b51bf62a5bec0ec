// Which training, and which of its roles, a task of a DAG run belongs to; `web/logs.py` says the same of its links.
import type { Summary } from "./api.ts";

type Place = Pick<Summary, "group_id" | "map_index">;

/** Those of the task's group, the innermost one that has any: several where the group is mapped and the task is not told which it is. */
export function trainingsOf<Training extends Place>(
  trainings: readonly Training[],
  taskId: string,
  mapIndex: number | null,
): readonly Training[] {
  const parts = taskId.split(".");
  for (let length = parts.length; length >= 0; length -= 1) {
    const group = parts.slice(0, length).join(".");
    const inside = trainings.filter((each) => (each.group_id ?? "") === group);
    const mine = mapIndex === null ? inside : inside.filter((each) => each.map_index === mapIndex);
    // without one of this number it is the task that is mapped, not the group
    const found = mine.length ? mine : inside.filter((each) => each.map_index < 0);
    if (found.length) return found;
  }
  return [];
}

/** The role that a task is about, of all in their order; undefined: all of them. */
export function roleOf(roles: readonly string[], taskId: string, mapIndex: number | null): string | undefined {
  const parts = taskId.split(".");
  const group = parts.at(-2);
  if (group !== undefined && roles.includes(group)) return group;
  return parts.at(-1) === "role" && mapIndex !== null ? roles[mapIndex] : undefined;
}

/** Airflow tells it as text, and nothing or -1 for a task that is not mapped. */
export function asMapIndex(told: string | number | undefined): number | null {
  const index = Number.parseInt(String(told), 10);
  return index >= 0 ? index : null;
}
