// What a link asks the form to begin with. It only fills in: whoever opens it looks, and sends it or not. Pure.
import { parse } from "yaml";

import { patched, readYaml, valueAt, type Path } from "./yamlPatch.ts";

export interface Prefill {
  /** Name of a preset that comes with us. */
  preset: string;
  /** A saved one. */
  saved: { name: string; user: string; version: number } | null;
  /** `<dag>/<uid>` of a run whose document it begins with. */
  run: string;
  /** `field=value`, as `--set` of the command line takes them. */
  set: readonly string[];
}

const MOST_FIELDS = 50;

export function prefillOf(query: URLSearchParams): Prefill | null {
  const version = Number(query.get("version"));
  const name = query.get("saved") ?? "";
  const found: Prefill = {
    preset: query.get("preset") ?? "",
    saved: name && Number.isInteger(version) && version > 0 ? { name, user: query.get("by") ?? "", version } : null,
    run: query.get("run") ?? "",
    set: query.getAll("set").slice(0, MOST_FIELDS),
  };
  return found.preset || found.saved || found.run || found.set.length > 0 ? found : null;
}

/** The place of `spec.roles.worker.replicas` or `spec.roles[1].replicas`: an item of a list by its name or number. */
export function pathOf(field: string, values: unknown): Path {
  const path: (string | number)[] = [];
  for (const [, name, number] of field.matchAll(/([^.[\]]+)|\[(\d+)\]/g)) {
    const here = valueAt(values, path);
    if (number !== undefined) path.push(Number(number));
    else if (!Array.isArray(here)) path.push(name!);
    else {
      const item = here.findIndex((each) => (each as { name?: unknown } | null)?.name === name);
      path.push(item >= 0 ? item : /^\d+$/.test(name!) ? Number(name) : here.length);
    }
  }
  return path;
}

/** The text with `field=value` set; what cannot be set is said. */
export function withSet(text: string, set: readonly string[]): { text: string; problems: string[] } {
  let result = text;
  const problems: string[] = [];
  for (const each of set) {
    const [, field, value] = /^([^=]+)=([^]*)$/.exec(each) ?? [];
    try {
      if (field === undefined) throw new Error("a field, = and a value are wanted");
      const path = pathOf(field.trim(), readYaml(result).values);
      if (path.length === 0) throw new Error("no field is named");
      result = patched(result, path, parse(value!, { merge: true, maxAliasCount: 10 } as object));
    } catch (error) {
      problems.push(`${each}: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  return { text: result, problems };
}
