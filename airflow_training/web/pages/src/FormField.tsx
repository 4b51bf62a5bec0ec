// One field of a job, drawn from its JSON Schema. What is typed goes into the text at once.
import { Box, Button, Field, Flex, Input, NativeSelect, Text, Textarea } from "@chakra-ui/react";
import { createContext, useContext, useId, useState, type ReactNode } from "react";
import { parse, stringify } from "yaml";

import type { CheckAnswer } from "./api.ts";
import { fieldName, plain, schemaAt, shapeOf, valueOf, type Schema, type Shape } from "./jobSchema.ts";
import type { TuningDraft } from "./tuning.ts";
import { valueAt, type Path } from "./yamlPatch.ts";

type Problem = CheckAnswer["mistakes"][number];

export interface FormState {
  schema: Schema;
  values: unknown;
  mistakes: readonly Problem[];
  warnings: readonly Problem[];
  /** Undefined takes the field away. */
  edit: (path: Path, value: unknown) => void;
  goTo: (line: number) => void;
  /** The text with all edits in it. */
  document: () => Promise<string>;
  tuning: TuningDraft;
  tune: (tuning: TuningDraft) => void;
  /** How many the tuning would begin; null: it is not known, or nothing is tuned. */
  trials: number | null;
}

/** Of a list, shown at first: each is drawn anew with every change. */
const MOST_ITEMS = 50;

/** Which items of a long list are shown: the first ones, and those that were added at its end. */
export function useShown(length: number) {
  const [most, setMost] = useState(MOST_ITEMS);
  const [added, setAdded] = useState(0);
  const end = Math.max(most, length - added);
  return {
    shown: Array.from({ length }, (_, index) => index).filter((index) => index < most || index >= end),
    hidden: end - most,
    more: () => setMost(most + MOST_ITEMS),
    add: () => length >= most && setAdded(added + 1),
  };
}

const Context = createContext<FormState | null>(null);
export const FormProvider = Context.Provider;

export function useForm(): FormState {
  return useContext(Context)!;
}

/** What is said of a field, or of one below it. */
function saidOf(told: readonly Problem[], name: string, below: boolean): Problem[] {
  return told.filter(({ field }) => field === name || (below && (field.startsWith(`${name}.`) || field.startsWith(`${name}[`))));
}

/** `without`: names of fields that tell their own. */
export function Said({ below = false, path, without = [] }: { below?: boolean; path: Path; without?: readonly string[] }) {
  const { goTo, mistakes, warnings } = useForm();
  const name = fieldName(path);
  const told = (problems: readonly Problem[]) => saidOf(problems, name, below).filter((each) => !without.some((other) => saidOf([each], other, true).length > 0));
  const found = [...told(mistakes).map((each) => [each, true] as const), ...told(warnings).map((each) => [each, false] as const)];
  return (
    <>
      {found.map(([each, isError], number) => (
        <Text color={isError ? "red.fg" : "orange.fg"} fontSize="xs" key={number} mt={1} overflowWrap="anywhere" whiteSpace="pre-wrap">
          {[below && each.field !== name ? `${each.field}: ${each.message}` : each.message, each.allowed.length > 0 && `allowed: ${each.allowed.join(", ")}`, each.hint && `hint: ${each.hint}`]
            .filter(Boolean)
            .join("\n")}
          {each.line !== null && (
            <>
              {" "}
              <Box as="button" onClick={() => goTo(each.line!)} textDecoration="underline" {...{ type: "button" }}>
                line {each.line}
              </Box>
            </>
          )}
        </Text>
      ))}
    </>
  );
}

interface Given {
  path: Path;
  /** Instead of the field's own name. */
  label?: string;
  help?: ReactNode;
  /** Values that are likely, to choose from or type another. */
  suggestions?: readonly string[];
  placeholder?: string;
  required?: boolean;
  /** One value is enough here, whatever else the field may hold. */
  simple?: boolean;
}

/** A field by its path; nothing where this version has no such field. */
export function FormField(given: Given) {
  const { schema } = useForm();
  const found = schemaAt(schema, given.path);
  return found && <SchemaField {...given} schema={found} />;
}

function SchemaField({ schema, ...given }: Given & { schema: Schema }) {
  const form = useForm();
  const shape = shapeOf(form.schema, schema);
  const { description } = plain(form.schema, schema);
  const value = valueAt(form.values, given.path);
  const help = given.help ?? description;
  switch (shape.kind) {
    case "group":
      return <Group {...given} help={help} shape={shape} />;
    case "list":
      return <List {...given} help={help} items={shape.items} value={value} />;
    case "map":
      return <NameMap {...given} help={help} value={value} values={shape.values} />;
    case "either":
      if (given.simple && (typeof value !== "object" || value === null)) return <SchemaField {...given} help={help} schema={shape.other} />;
      return <Either {...given} group={shape.group} help={help} other={shape.other} value={value} />;
    case "any":
      if (given.simple && (typeof value !== "object" || value === null)) return <Leaf {...given} help={help} schema={MIXED} shape={{ kind: "text", options: [] }} value={value} />;
      return <AnyValue {...given} help={help} value={value} />;
    default:
      return <Leaf {...given} help={help} schema={schema} shape={shape} value={value} />;
  }
}

const MIXED: Schema = { type: ["number", "string", "boolean"] };

const last = (path: Path) => String(path[path.length - 1]);

function Labelled({ children, help, label, path, required }: Given & { children: ReactNode }) {
  const { mistakes } = useForm();
  const name = fieldName(path);
  return (
    <Field.Root data-field={name} invalid={saidOf(mistakes, name, false).length > 0} mb={3} minW={0}>
      <Field.Label fontSize="sm" fontWeight="medium" title={name}>
        {label ?? last(path)}
        {required && (
          <Text as="span" color="fg.muted" fontWeight="normal">
            required
          </Text>
        )}
      </Field.Label>
      {children}
      {help && (
        <Text color="fg.muted" fontSize="xs" mt={0.5} overflowWrap="anywhere">
          {help}
        </Text>
      )}
      <Box aria-live="polite">
        <Said path={path} />
      </Box>
    </Field.Root>
  );
}

const textOf = (value: unknown): string =>
  value === undefined || value === null ? "" : typeof value === "string" ? value : typeof value === "object" ? stringify(value).trimEnd() : String(value);

function Leaf({ schema, shape, value, ...given }: Given & { schema: Schema; shape: Extract<Shape, { options: readonly string[] }>; value: unknown }) {
  const { edit, schema: root } = useForm();
  const list = useId();
  const [typed, setTyped] = useState<string | null>(null);
  const { default: usual, oneOf, type } = plain(root, schema);
  const isMixed = Array.isArray(type) || (oneOf?.length ?? 0) > 1;
  const kind = shape.kind === "any" ? "text" : shape.kind;
  const change = (text: string) => {
    setTyped(text);
    // of several types: a number is meant as one
    edit(given.path, valueOf(text, kind === "text" && isMixed ? "choice" : kind));
  };
  const shown = typed ?? textOf(value);
  const placeholder = given.placeholder ?? (usual === null || usual === undefined ? "" : textOf(usual));
  const options = kind === "boolean" ? ["true", "false"] : kind === "choice" ? shape.options : null;
  if (options) {
    const known = shown === "" || options.includes(shown);
    return (
      <Labelled {...given}>
        <NativeSelect.Root size="sm">
          <NativeSelect.Field onChange={(event) => edit(given.path, valueOf(event.currentTarget.value, kind))} value={shown}>
            <option value="">{placeholder ? `not set (${placeholder})` : "not set"}</option>
            {[...options, ...(known ? [] : [shown])].map((each) => (
              <option key={each} value={each}>
                {each}
              </option>
            ))}
          </NativeSelect.Field>
          <NativeSelect.Indicator />
        </NativeSelect.Root>
      </Labelled>
    );
  }
  if (kind === "text" && shown.includes("\n"))
    return (
      <Labelled {...given}>
        <Textarea autoresize fontFamily="mono" fontSize="xs" maxH="40vh" onBlur={() => setTyped(null)} onChange={(event) => change(event.currentTarget.value)} value={shown} />
      </Labelled>
    );
  const suggestions = given.suggestions ?? shape.options;
  return (
    <Labelled {...given}>
      <Input
        inputMode={kind === "number" ? "decimal" : undefined}
        list={suggestions.length > 0 ? list : undefined}
        onBlur={() => setTyped(null)}
        onChange={(event) => change(event.currentTarget.value)}
        placeholder={placeholder}
        size="sm"
        value={shown}
      />
      {suggestions.length > 0 && (
        <datalist id={list}>
          {suggestions.map((each) => (
            <option key={each} value={each} />
          ))}
        </datalist>
      )}
    </Labelled>
  );
}

/** Whatever YAML says; what cannot be read stays in the box until it can. */
function AnyValue({ value, ...given }: Given & { value: unknown }) {
  const { edit } = useForm();
  const [typed, setTyped] = useState<string | null>(null);
  const [problem, setProblem] = useState("");
  const change = (text: string) => {
    setTyped(text);
    try {
      edit(given.path, text.trim() === "" ? undefined : parse(text, { maxAliasCount: 10 }));
      setProblem("");
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
    }
  };
  return (
    <Labelled {...given} help={problem || given.help}>
      <Textarea
        fontFamily="mono"
        fontSize="xs"
        onBlur={() => !problem && setTyped(null)}
        onChange={(event) => change(event.currentTarget.value)}
        placeholder="YAML"
        rows={2}
        value={typed ?? textOf(value)}
      />
    </Labelled>
  );
}

/** A part of the form that opens; what is in it is drawn then, as a schema may contain itself. */
function Fold({ children, count, help, label, path }: Given & { children: () => ReactNode; count?: number }) {
  const { mistakes, values } = useForm();
  const value = valueAt(values, path);
  const [open, setOpen] = useState(false);
  const name = fieldName(path);
  const wrong = saidOf(mistakes, name, true).length;
  const size = count ?? (typeof value === "object" && value !== null ? Object.keys(value).length : 0);
  return (
    <Box data-field={name} mb={2} minW={0}>
      <Flex
        _hover={{ bg: "bg.muted" }}
        align="baseline"
        as="button"
        aria-expanded={open}
        borderRadius="sm"
        columnGap={2}
        cursor="pointer"
        flexWrap="wrap"
        onClick={() => setOpen(!open)}
        px={1}
        py={0.5}
        textAlign="start"
        w="100%"
        {...{ type: "button" }}
      >
        <Text aria-hidden color="fg.muted" fontSize="xs" w="0.75rem">
          {open ? "▾" : "▸"}
        </Text>
        <Text fontSize="sm" fontWeight="medium" overflowWrap="anywhere" title={name}>
          {label ?? last(path)}
        </Text>
        {size > 0 && (
          <Text color="fg.muted" fontSize="xs">
            {size} set
          </Text>
        )}
        {wrong > 0 && (
          <Text color="red.fg" fontSize="xs">
            {wrong} {wrong === 1 ? "mistake" : "mistakes"}
          </Text>
        )}
        {help && (
          <Text color="fg.muted" flexBasis="100%" fontSize="xs" ps="1.25rem">
            {help}
          </Text>
        )}
      </Flex>
      {open && (
        <Box borderLeftWidth="1px" ms="0.6rem" mt={1} ps={3}>
          {children()}
          <Said path={path} />
        </Box>
      )}
    </Box>
  );
}

function Group({ shape, ...given }: Given & { shape: Extract<Shape, { kind: "group" }> }) {
  return <Fold {...given}>{() => <Fields path={given.path} shape={shape} />}</Fold>;
}

/** `without`: names that are somewhere else. */
export function Fields({ path, shape, without = [] }: { path: Path; shape: Extract<Shape, { kind: "group" }>; without?: readonly string[] }) {
  return (
    <>
      {Object.entries(shape.fields)
        .filter(([name]) => !without.includes(name))
        .map(([name, each]) => (
        <SchemaField key={name} path={[...path, name]} required={shape.required.includes(name)} schema={each} />
      ))}
    </>
  );
}

function Either({ group, other, value, ...given }: Given & { group: Schema; other: Schema; value: unknown }) {
  const { edit, schema } = useForm();
  const isBlock = typeof value === "object" && value !== null;
  const [asBlock, setAsBlock] = useState(isBlock);
  const block = isBlock || (asBlock && value === undefined);
  const shape = shapeOf(schema, plain(schema, group));
  const simple = <SchemaField {...given} schema={other} />;
  const toggle = (to: boolean) => {
    if (value !== undefined) edit(given.path, undefined);
    setAsBlock(to);
  };
  return (
    <Box mb={3}>
      {block ? <SchemaField {...given} schema={group} /> : simple}
      {shape.kind !== "any" && (
        <Button mt={-2} onClick={() => toggle(!block)} size="2xs" variant="ghost">
          {block ? "One value instead" : shape.kind === "list" ? "A list instead" : "Fields instead"}
        </Button>
      )}
    </Box>
  );
}

function List({ items, value, ...given }: Given & { items: Schema; value: unknown }) {
  const { edit, schema } = useForm();
  const shape = shapeOf(schema, items);
  const list = Array.isArray(value) ? (value as unknown[]) : [];
  const { add, hidden, more, shown } = useShown(list.length);
  const isSimple = shape.kind === "text" || shape.kind === "number" || shape.kind === "choice";
  const label = given.label ?? last(given.path);
  const first = (): unknown => {
    if (shape.kind === "number") return 0;
    if (shape.kind === "choice") return shape.options.find((each) => !list.includes(each)) ?? shape.options[0];
    if (shape.kind === "group") return Object.fromEntries(shape.required.map((name) => [name, ""]));
    return "";
  };
  const body = () => (
    <>
      {shown.map((index) => (
        <Flex align="start" gap={1} key={index}>
          <Box flex={1} minW={0}>
            {isSimple && typeof list[index] !== "object" ? (
              <Item index={index} label={label} path={given.path} value={list[index]} kind={shape.kind === "number" ? "number" : "text"} />
            ) : (
              <SchemaField label={nameOfItem(list[index], index)} path={[...given.path, index]} schema={items} />
            )}
          </Box>
          <Button aria-label={`Remove ${label} ${index + 1}`} onClick={() => edit([...given.path, index], undefined)} size="xs" variant="ghost">
            ✕
          </Button>
        </Flex>
      ))}
      {hidden > 0 && (
        <Text color="fg.muted" fontSize="xs" mb={1}>
          {list.length - hidden} of {list.length} are shown.{" "}
          <Box as="button" onClick={more} textDecoration="underline" {...{ type: "button" }}>
            Show more
          </Box>
        </Text>
      )}
      <Button
        aria-label={`Add to ${label}`}
        onClick={() => {
          edit([...given.path, list.length], first());
          add();
        }}
        size="2xs"
        variant="outline"
      >
        Add
      </Button>
    </>
  );
  if (!isSimple) return <Fold {...given} count={list.length} children={body} />;
  return (
    <Box aria-label={label} as="fieldset" data-field={fieldName(given.path)} mb={3} minW={0}>
      <Text as="legend" fontSize="sm" fontWeight="medium" mb={1} title={fieldName(given.path)}>
        {label}
      </Text>
      {body()}
      {given.help && (
        <Text color="fg.muted" fontSize="xs" mt={0.5}>
          {given.help}
        </Text>
      )}
      <Said path={given.path} />
    </Box>
  );
}

const nameOfItem = (value: unknown, index: number) => String((value as { name?: unknown } | null)?.name || `item ${index + 1}`);

function Item({ index, kind, label, path, value }: { index: number; kind: "text" | "number"; label: string; path: Path; value: unknown }) {
  const { edit } = useForm();
  const [typed, setTyped] = useState<string | null>(null);
  const text = typed ?? textOf(value);
  const change = (next: string) => {
    setTyped(next);
    edit([...path, index], next === "" ? "" : valueOf(next, kind));
  };
  const more = { "aria-label": `${label} ${index + 1}`, mb: 1, onBlur: () => setTyped(null), value: text };
  if (text.includes("\n"))
    return (
      <>
        <Textarea {...more} fontFamily="mono" fontSize="xs" onChange={(event) => change(event.currentTarget.value)} rows={Math.min(12, text.split("\n").length)} wrap="off" />
        <Said path={[...path, index]} />
      </>
    );
  return (
    <>
      <Input {...more} onChange={(event) => change(event.currentTarget.value)} size="sm" />
      <Said path={[...path, index]} />
    </>
  );
}

/** Names and values of which the names are the user's. */
function NameMap({ value, values, ...given }: Given & { value: unknown; values: Schema }) {
  const { edit } = useForm();
  const [name, setName] = useState("");
  const entries = typeof value === "object" && value !== null ? Object.keys(value) : [];
  const add = () => {
    if (name === "" || entries.includes(name)) return;
    edit([...given.path, name], "");
    setName("");
  };
  return (
    <Fold {...given} count={entries.length}>
      {() => (
        <>
          {entries.map((each) => (
            <Flex align="start" gap={1} key={each}>
              <Box flex={1} minW={0}>
                <MapValue path={[...given.path, each]} schema={values} />
              </Box>
              <Button aria-label={`Remove ${each}`} onClick={() => edit([...given.path, each], undefined)} size="xs" variant="ghost">
                ✕
              </Button>
            </Flex>
          ))}
          <Flex gap={1} mb={2}>
            <Input
              aria-label={`New name in ${given.label ?? last(given.path)}`}
              onChange={(event) => setName(event.currentTarget.value)}
              onKeyDown={(event) => event.key === "Enter" && add()}
              placeholder="name"
              size="xs"
              value={name}
            />
            <Button disabled={name === "" || entries.includes(name)} onClick={add} size="xs" variant="outline">
              Add
            </Button>
          </Flex>
        </>
      )}
    </Fold>
  );
}

function MapValue({ path, schema }: { path: Path; schema: Schema }) {
  const form = useForm();
  const value = valueAt(form.values, path);
  const isBlock = typeof value === "object" && value !== null;
  if (shapeOf(form.schema, schema).kind === "any" && !isBlock) return <SchemaField path={path} schema={MIXED} />;
  return <SchemaField path={path} schema={schema} />;
}
