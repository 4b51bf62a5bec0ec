// What a form needs to know of a field, from the JSON Schema of a job. Pure.
import type { Path } from "./yamlPatch.ts";

export interface Schema {
  $defs?: Record<string, Schema>;
  $ref?: string;
  type?: string | string[];
  enum?: unknown[];
  const?: unknown;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: boolean | Schema;
  items?: Schema;
  description?: string;
  default?: unknown;
  minimum?: number;
  maximum?: number;
}

/** How a field is filled in. */
export type Shape =
  | { kind: "text" | "number" | "boolean" | "any"; options: readonly string[] }
  | { kind: "choice"; options: readonly string[] }
  | { kind: "list"; items: Schema }
  | { kind: "map"; values: Schema }
  | { kind: "group"; fields: Readonly<Record<string, Schema>>; required: readonly string[] }
  | { kind: "either"; group: Schema; other: Schema };

/** A schema without references and without `null`, which is a field that is not there. */
export function plain(root: Schema, schema: Schema): Schema {
  if (schema.$ref) {
    const { $ref, ...beside } = schema;
    return plain(root, { ...root.$defs?.[$ref.replace("#/$defs/", "")], ...beside });
  }
  if (schema.allOf) {
    const { allOf, ...beside } = schema;
    const parts = allOf.map((each) => plain(root, each));
    return {
      ...Object.assign({}, ...parts),
      ...beside,
      properties: Object.assign({}, ...parts.map((each) => each.properties), beside.properties),
    } as Schema;
  }
  const ways = schema.anyOf ?? schema.oneOf;
  if (!ways) return schema;
  const { anyOf: _, oneOf: __, ...beside } = schema;
  const real = ways.filter((each) => each.type !== "null" && !isDirective(root, each));
  if (real.length === 1) return plain(root, { ...real[0]!, ...beside });
  return { ...beside, oneOf: real.flatMap((each) => plain(root, each).oneOf ?? [each]) };
}

/** `{$patch: replace}`: for templates that are merged, not for people who fill in a form. */
function isDirective(root: Schema, schema: Schema): boolean {
  const found = schema.$ref ? root.$defs?.[schema.$ref.replace("#/$defs/", "")] : schema;
  return typeof found?.const === "object" && found.const !== null;
}

export function shapeOf(root: Schema, schema: Schema): Shape {
  const found = plain(root, schema);
  if (found.oneOf) return shapeOfWays(root, found.oneOf.map((each) => plain(root, each)));
  if (found.enum) return { kind: "choice", options: found.enum.map(String) };
  if (found.const !== undefined) return { kind: "choice", options: [String(found.const)] };
  const type = Array.isArray(found.type) ? "text" : found.type;
  if (found.properties && Object.keys(found.properties).length > 0)
    return { kind: "group", fields: withoutDirectives(found.properties), required: found.required ?? [] };
  if (type === "array") return { kind: "list", items: found.items ?? {} };
  if (type === "object") return { kind: "map", values: typeof found.additionalProperties === "object" ? found.additionalProperties : {} };
  if (type === "integer" || type === "number") return { kind: "number", options: [] };
  if (type === "boolean") return { kind: "boolean", options: [] };
  if (type === "string" || type === "text") return { kind: "text", options: [] };
  return { kind: "any", options: [] };
}

function shapeOfWays(root: Schema, ways: readonly Schema[]): Shape {
  const blocks = ways.filter((each) => each.properties || each.type === "object" || each.type === "array");
  const words = ways.filter((each) => !blocks.includes(each));
  const options = words.flatMap((each) => each.enum?.map(String) ?? (each.const === undefined ? [] : [String(each.const)]));
  if (blocks.length === 1 && words.length === 0) return shapeOf(root, blocks[0]!);
  if (blocks.length > 0) return { kind: "either", group: blocks[0]!, other: words.length > 0 ? { oneOf: words } : blocks[1]! };
  if (words.every((each) => each.enum || each.const !== undefined)) return { kind: "choice", options };
  return { kind: words.every((each) => each.type === "integer" || each.type === "number") ? "number" : "text", options };
}

const withoutDirectives = (fields: Record<string, Schema>) => Object.fromEntries(Object.entries(fields).filter(([name]) => !name.startsWith("$")));

/** The schema of a place in a document; null: there is no such field. */
export function schemaAt(root: Schema, path: Path): Schema | null {
  let found: Schema = root;
  for (const key of path) {
    const shape = shapeOf(root, found);
    const block = shape.kind === "either" ? shapeOf(root, shape.group) : shape;
    if (block.kind === "group" && Object.hasOwn(block.fields, key)) found = block.fields[key as string]!;
    else if (block.kind === "list" && typeof key === "number") found = block.items;
    else if (block.kind === "map") found = block.values;
    else return null;
  }
  return found;
}

export interface FieldPlace {
  path: Path;
  description: string;
}

/** Every field of a document by its path, a list by its first item; pods of Kubernetes are not gone into. */
export function everyField(root: Schema, schema: Schema = root, path: Path = [], depth = 7): FieldPlace[] {
  const found: FieldPlace[] = [];
  const shape = shapeOf(root, schema);
  const block = shape.kind === "either" ? shapeOf(root, shape.group) : shape;
  if (path.length > 0) found.push({ path, description: plain(root, schema).description ?? "" });
  if (depth === 0 || path[path.length - 1] === "template") return found;
  if (block.kind === "group") for (const [name, each] of Object.entries(block.fields)) found.push(...everyField(root, each, [...path, name], depth - 1));
  if (block.kind === "list" && ["group", "either"].includes(shapeOf(root, block.items).kind)) found.push(...everyField(root, block.items, [...path, 0], depth - 1));
  return found;
}

/** A path as `validate` writes it. */
export function fieldName(path: Path): string {
  return path.map((key, index) => (typeof key === "number" ? `[${key}]` : `${index === 0 ? "" : "."}${key}`)).join("");
}

/** What was typed as a value: numbers as numbers, empty as nothing. */
export function valueOf(typed: string, kind: "text" | "number" | "boolean" | "choice"): unknown {
  if (typed === "") return undefined;
  if (kind === "number" || kind === "choice") {
    // what is no number stays text, and the server says what is wrong with it
    if (/^-?(0|[1-9]\d{0,15})(\.\d+)?(e[-+]?\d+)?$/i.test(typed) && !(/^-?\d+$/.test(typed) && !Number.isSafeInteger(Number(typed)))) return Number(typed);
  }
  if (kind === "boolean" || kind === "choice") {
    if (typed === "true") return true;
    if (typed === "false") return false;
  }
  return typed;
}
