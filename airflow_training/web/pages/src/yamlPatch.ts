// Changes one value in a YAML text, and leaves every byte that does not belong to it. Pure.
import { isAlias, isMap, isScalar, isSeq, parseDocument, stringify, type Document, type Node, type Pair, type YAMLMap, type YAMLSeq } from "yaml";

import { hasWindowsLines } from "./lineRange.ts";

export type Path = readonly (string | number)[];

export interface Reading {
  /** Null where the text cannot be read. */
  values: Record<string, unknown> | null;
  /** Null: it can be read. */
  problem: string | null;
  /** Of the problem, from 1. */
  line: number | null;
}

export class PatchError extends Error {}

type Collection = YAMLMap<Node, Node | null> | YAMLSeq<Node | Pair<Node, Node | null>>;
/** A place in the text, and what takes its place. */
type Splice = readonly [from: number, to: number, text: string];

const WIDEST = 76;

const parsed = (text: string): Document => parseDocument(text, { keepSourceTokens: true, merge: true, prettyErrors: false });

function javascript(document: Document): unknown {
  return document.toJS({ maxAliasCount: 100 });
}

export function readYaml(text: string): Reading {
  const fails = (problem: string, at: number | null = null): Reading => ({
    values: null,
    problem,
    line: at === null ? null : text.slice(0, at).split("\n").length,
  });
  try {
    const document = parsed(text);
    const [error] = document.errors;
    if (error) return fails(error.message, error.pos[0]);
    const values = javascript(document) ?? {};
    if (typeof values !== "object" || Array.isArray(values)) return fails("a job is a mapping: fields with values");
    return { values: values as Record<string, unknown>, problem: null, line: null };
  } catch (error) {
    return fails(error instanceof Error ? error.message : String(error));
  }
}

/** What is at a path; undefined: nothing. */
export function valueAt(values: unknown, path: Path): unknown {
  let found = values;
  for (const key of path) {
    if (typeof found !== "object" || found === null || !Object.hasOwn(found, key)) return undefined;
    found = (found as Record<string | number, unknown>)[key];
  }
  return found;
}

/** The values with a value at a path, as those of the text that `patched` gives. Raises PatchError. */
export function withValue(values: unknown, path: Path, value: unknown): unknown {
  if (value === undefined && valueAt(values, path) === undefined) return values;
  return changed(values, value === undefined ? prunedPath(values, path) : path, value);
}

/** The text with a value at a path; undefined takes it away, and with it what is empty then. Raises PatchError. */
export function patched(text: string, path: Path, value: unknown): string {
  const document = parsed(text);
  if (document.errors.length > 0) throw new PatchError("the text is no YAML now");
  const before = javascript(document) ?? {};
  if (value !== undefined && same(valueAt(before, path), value)) return text;
  if (value === undefined && valueAt(before, path) === undefined) return text;
  const at = value === undefined ? prunedPath(before, path) : path;
  const wanted = withValue(before, path, value);
  for (const splices of attempts(text, document, at, value, wanted)) {
    const next = spliced(text, splices);
    const found = readYaml(next);
    if (found.problem === null && same(found.values, wanted)) return next;
  }
  throw new PatchError("this place of the text is changed in the text only");
}

/** Whether two values of a document are equal; the order of fields is none of their value. */
export function same(one: unknown, other: unknown): boolean {
  if (Object.is(one, other)) return true;
  if (typeof one !== "object" || typeof other !== "object" || one === null || other === null) return false;
  if (Array.isArray(one) !== Array.isArray(other)) return false;
  const names = Object.keys(one);
  return (
    names.length === Object.keys(other).length &&
    names.every((name) => Object.hasOwn(other, name) && same((one as Record<string, unknown>)[name], (other as Record<string, unknown>)[name]))
  );
}

/** A block with one field goes with it, but not an item of a list, nor `metadata` and `spec`. */
function prunedPath(values: unknown, path: Path): Path {
  let at = path;
  while (at.length > 2) {
    const parent = valueAt(values, at.slice(0, -1));
    if (Object.keys(parent as object).length !== 1 || typeof at[at.length - 2] === "number") break;
    at = at.slice(0, -1);
  }
  return at;
}

function changed(values: unknown, path: Path, value: unknown): unknown {
  const [key, ...rest] = path;
  if (key === undefined) return value;
  const list = Array.isArray(values);
  if (list && typeof key !== "number") throw new PatchError("a list has numbers");
  const old = typeof values === "object" && values !== null ? values : typeof key === "number" ? [] : {};
  if (Array.isArray(old)) {
    const copy = [...old] as unknown[];
    const index = Number(key);
    if (index > copy.length) throw new PatchError("a list has no gaps");
    if (rest.length === 0 && value === undefined) copy.splice(index, 1);
    else copy[index] = changed(copy[index], rest, value);
    return copy;
  }
  const copy = { ...old } as Record<string, unknown>;
  if (rest.length === 0 && value === undefined) delete copy[key];
  else Object.defineProperty(copy, key, { value: changed(copy[key], rest, value), configurable: true, enumerable: true, writable: true });
  return copy;
}

function spliced(text: string, splices: readonly Splice[]): string {
  let result = text;
  const lineBreak = hasWindowsLines(text) ? "\r\n" : "\n";
  // what is put where something begins that is taken away comes after that
  for (const [from, to, put] of [...splices].sort((one, other) => other[0] - one[0] || other[1] - one[1])) {
    // a last line that does not end is for other readers of YAML a text of lines without its last line break
    const ending = to === text.length && /\|\n/.test(put) && !put.endsWith("\n") ? "\n" : "";
    result = result.slice(0, from) + (put + ending).replaceAll("\n", lineBreak) + result.slice(to);
  }
  return result;
}

/** Ways to make the change, the one that leaves most first. */
function* attempts(text: string, document: Document, path: Path, value: unknown, wanted: unknown): Generator<readonly Splice[]> {
  const places: { node: Node | null; parent: Collection | null; item: number }[] = [{ node: document.contents as Node | null, parent: null, item: 0 }];
  for (const key of path) {
    const { node } = places[places.length - 1]!;
    if (isAlias(node) || !(isMap(node) || isSeq(node))) break;
    const collection = node as Collection;
    const item = isMap(node)
      ? node.items.findIndex((pair) => isScalar(pair.key) && String(pair.key.value) === String(key))
      : typeof key === "number" && key < node.items.length
        ? key
        : -1;
    if (item < 0) break;
    const found = collection.items[item] as Node | Pair<Node, Node | null>;
    places.push({ node: isMap(node) ? (found as Pair<Node, Node | null>).value : (found as Node), parent: collection, item });
  }
  const depth = places.length - 1;
  const last = places[depth]!;
  const inFlow = (upTo: number) => places.slice(0, upTo).some(({ node }) => (isMap(node) || isSeq(node)) && node.flow === true);
  if (depth === path.length && depth > 0) {
    if (value === undefined) yield* removals(text, last.parent!, last.item);
    else yield* replacements(text, last, value, inFlow(depth), indentOf(text, last.parent!));
    return;
  }
  if (value === undefined) return;
  const rest = path.slice(depth);
  if ((isMap(last.node) || isSeq(last.node)) && !isAlias(last.node)) {
    const nested = rest.slice(1).reduceRight<unknown>((inner, key) => (typeof key === "number" ? [inner] : { [key]: inner }), value);
    yield* insertions(text, last.node as Collection, rest[0]!, nested, inFlow(depth + 1));
  }
  // nothing, a word or a copy of something stands where a block is wanted
  const whole = valueAt(wanted, path.slice(0, depth));
  if (depth === 0) yield [[text.length, text.length, `${text === "" || text.endsWith("\n") ? "" : "\n"}${block(whole, "")}\n`]];
  else yield* replacements(text, last, whole, inFlow(depth), indentOf(text, last.parent!));
}

function* replacements(
  text: string,
  { node, parent, item }: { node: Node | null; parent: Collection | null; item: number },
  value: unknown,
  flowing: boolean,
  indent: string,
): Generator<readonly Splice[]> {
  const short = flow(value);
  const colon = isMap(parent) ? colonOf(parent, item) : null;
  const [start, end] = node?.range ?? [colon ?? 0, colon ?? 0];
  const isEmpty = start === end;
  const isBlock = (isMap(node) || isSeq(node)) && node.flow !== true;
  const isLiteral = isScalar(node) && (node.type === "BLOCK_LITERAL" || node.type === "BLOCK_FOLDED");
  const ending = isBlock || isLiteral ? text.slice(0, end).trimEnd().length : end;
  const tall = !flowing && (short.length > WIDEST || hasLines(value));
  const deeper = `${indent}  `;
  if (colon !== null && (isEmpty || (isBlock && text.slice(colon, start).includes("\n")))) {
    // behind the colon, where a comment may follow; what was below goes with its lines
    const below: Splice[] = isEmpty ? [] : [[lineBreakBefore(text, lineStart(text, start)), ending, ""]];
    const comment = text.slice(colon, isEmpty ? lineEnd(text, colon) : start).trim() !== "";
    if (tall && !comment) yield [[colon, colon, behind(value, deeper)], ...below];
    yield [[colon, colon, ` ${short}`], ...below];
    if (isEmpty) return;
  }
  if (tall && isMap(parent) && colon !== null) yield [[colon, ending, behind(value, deeper)]];
  if (isEmpty && isSeq(parent)) yield [[start, start, ` ${short}`]];
  if (tall && isSeq(parent)) yield [[start, ending, behind(value, deeper).trimStart()]];
  yield [[start, ending, short]];
  if (colon !== null) yield [[colon, ending, ` ${short}`]];
}

function* insertions(text: string, into: Collection, key: string | number, value: unknown, flowing: boolean): Generator<readonly Splice[]> {
  const of = isSeq(into) ? "" : `${scalar(String(key), true)}: `;
  if (into.flow || into.items.length === 0) {
    const count = into.items.length;
    const at = count === 0 ? into.range![0] + 1 : endOf(into, count - 1);
    yield [[at, at, `${count === 0 ? "" : ", "}${of}${flow(value)}`]];
    return;
  }
  const indent = indentOf(text, into);
  const end = endOf(into, into.items.length - 1);
  const line = lineEnd(text, text.slice(0, end).trimEnd().length);
  const tall = !flowing && (flow(value).length > WIDEST || hasLines(value) || (isSeq(into) && typeof value === "object"));
  const render = (wide: boolean) =>
    isSeq(into)
      ? `${indent}- ${wide ? flow(value) : inItem(value, `${indent}  `)}`
      : `${indent}${scalar(String(key), true)}:${wide ? ` ${flow(value)}` : behind(value, `${indent}  `)}`;
  for (const wide of tall ? [false, true] : [true]) {
    yield [[line, line, `\n${render(wide)}`]];
    yield [[end, end, `${text[end - 1] === "\n" ? "" : "\n"}${render(wide)}\n`]];
  }
}

function* removals(text: string, from: Collection, item: number): Generator<readonly Splice[]> {
  const count = from.items.length;
  const [start, end] = [startOf(from, item), endOf(from, item)];
  if (from.flow) {
    if (item < count - 1) yield [[start, startOf(from, item + 1), ""]];
    else if (item > 0) yield [[endOf(from, item - 1), end, ""]];
    else yield [[start, end + (/^\s*,/.exec(text.slice(end))?.[0].length ?? 0), ""]];
    return;
  }
  const begins = lineStart(text, start);
  const own = text.slice(begins, start).trim() === "";
  const trimmed = Math.max(text.slice(0, end).trimEnd().length, start);
  const line = lineEnd(text, trimmed);
  if (count === 1) {
    yield [[start, trimmed, isSeq(from) ? "[]" : "{}"]];
    return;
  }
  if (own) {
    if (line < text.length) yield [[begins, line + (text[line] === "\r" ? 2 : 1), ""]];
    else yield [[lineBreakBefore(text, begins), line, ""]]; // the last line of a text that ends without a new one
  }
  if (item < count - 1) yield [[start, startOf(from, item + 1), ""]];
}

const lineStart = (text: string, at: number) => text.lastIndexOf("\n", at - 1) + 1;

/** Where the line break begins that ends the line before. */
const lineBreakBefore = (text: string, begins: number) => Math.max(0, begins - (text[begins - 2] === "\r" ? 2 : 1));

function lineEnd(text: string, at: number): number {
  const found = text.indexOf("\n", at);
  const end = found < 0 ? text.length : found;
  return text[end - 1] === "\r" && end > at ? end - 1 : end;
}

interface SourceToken {
  offset: number;
  type: string;
  source?: string;
}

/** The end of the colon behind a key. */
function colonOf(map: YAMLMap, item: number): number | null {
  const pair = map.items[item] as Pair<Node, Node | null>;
  const token = (pair.srcToken?.sep as SourceToken[] | undefined)?.find((each) => each.type === "map-value-ind");
  return token ? token.offset + 1 : null;
}

function startOf(collection: Collection, item: number): number {
  if (isMap(collection)) return (collection.items[item]!.key as Node).range![0];
  const tokens = (collection.srcToken as unknown as { items?: { start: SourceToken[] }[] } | undefined)?.items?.filter((each) =>
    each.start.some((token) => token.type === "seq-item-ind"),
  );
  const dash = collection.flow ? undefined : tokens?.[item]?.start.find((token) => token.type === "seq-item-ind");
  if (dash) return dash.offset;
  const found = collection.items[item] as Node | Pair<Node, Node | null>;
  return ("range" in found && found.range ? found.range : ((found as Pair<Node, Node | null>).key as Node).range!)[0];
}

function endOf(collection: Collection, item: number): number {
  const found = collection.items[item] as Node | Pair<Node, Node | null>;
  if ("range" in found && found.range) return found.range[1];
  const pair = found as Pair<Node, Node | null>;
  const colon = isMap(collection) ? colonOf(collection, item) : null;
  return Math.max(pair.value?.range?.[1] ?? 0, colon ?? 0, pair.key.range![1]);
}

/** What stands before the items of a block; for a collection in brackets, before its line. */
function indentOf(text: string, collection: Collection): string {
  const start = collection.items.length > 0 ? startOf(collection, 0) : collection.range![0];
  const begins = lineStart(text, start);
  const before = text.slice(begins, start).replace("\ufeff", "");
  return " ".repeat(collection.flow ? before.length - before.trimStart().length : before.length);
}

const hasLines = (value: unknown): boolean =>
  typeof value === "string" ? value.includes("\n") : typeof value === "object" && value !== null && Object.values(value).some(hasLines);

/** Words that YAML 1.1 takes for something else than text, as numbers, dates and times are. */
const NO_TEXT = /^(y|n|yes|no|on|off|true|false|null|~|=|<<)$|^[-+]?[.\d][-+.\d_:a-f]*$|^[-+]?\d[\dt:.z+\- ]*$|^0[ox]/i;

function scalar(value: unknown, flowing: boolean): string {
  if (typeof value !== "string") return stringify(value ?? null).trimEnd();
  if (/\p{Surrogate}/u.test(value)) throw new PatchError("half a character cannot be written");
  // eslint-disable-next-line no-control-regex
  if (value === "" || NO_TEXT.test(value) || /[\u0000-\u001f\u007f-\u009f\u2028\u2029\ufeff]/.test(value)) return quoted(value);
  const text = stringify(value, { lineWidth: 0 }).trimEnd();
  return text.includes("\n") || (flowing && /^[^"']*[,[\]{}]/.test(text)) ? quoted(value) : text;
}

/** With escapes where YAML 1.1 sees the end of a line, and a reader nothing. */
function quoted(value: string): string {
  return JSON.stringify(value).replace(/[\u007f-\u009f\u2028\u2029\ufeff]/g, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** In one line. */
function flow(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(flow).join(", ")}]`;
  if (typeof value === "object" && value !== null)
    return `{${Object.entries(value)
      .map(([key, each]) => `${scalar(key, true)}: ${flow(each)}`)
      .join(", ")}}`;
  return scalar(value, true);
}

/** Behind a colon: in the line, or below it. */
function behind(value: unknown, indent: string): string {
  if (typeof value === "string" && value.includes("\n")) return ` ${literal(value, indent)}`;
  if (typeof value !== "object" || value === null) return ` ${scalar(value, false)}`;
  if (flow(value).length <= WIDEST && !hasLines(value)) return ` ${flow(value)}`;
  return `\n${block(value, indent)}`;
}

const inItem = (value: unknown, indent: string) =>
  typeof value === "object" && value !== null && Object.keys(value).length > 0 && (flow(value).length > WIDEST || hasLines(value))
    ? block(value, indent).trimStart()
    : behind(value, indent).trimStart();

function block(value: unknown, indent: string): string {
  if (Array.isArray(value)) return value.map((each) => `${indent}- ${inItem(each, `${indent}  `)}`).join("\n");
  return Object.entries(value as object)
    .map(([key, each]) => `${indent}${scalar(key, true)}:${behind(each, `${indent}  `)}`)
    .join("\n");
}

/** Lines as they are, unless they begin or end so that YAML would take some of it away. */
function literal(value: string, indent: string): string {
  if (/\p{Surrogate}/u.test(value)) throw new PatchError("half a character cannot be written");
  const lines = value.replace(/\n$/, "").split("\n");
  if (/^[ \n]|\n\n$|[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028\u2029\ufeff]/.test(value) || lines.some((line) => line.trim() === "" && line !== "")) return quoted(value);
  return `|${value.endsWith("\n") ? "" : "-"}\n${lines.map((line) => (line === "" ? "" : indent + line)).join("\n")}`;
}
