// Writes the types of the API: `node types.mjs OPENAPI.json OUTPUT.ts`.
import { compile } from "json-schema-to-typescript";
import { readFile, writeFile } from "node:fs/promises";

const [source, target] = process.argv.slice(2);
const { components } = JSON.parse(await readFile(source, "utf8"));
// every answer as a property of one type, so that each is made once; titles of properties would become types of their own
const named = Object.entries(components.schemas).filter(([name]) => !/^(HTTPValidationError|ValidationError)$/.test(name));
const plain = (value) => {
  if (Array.isArray(value)) return value.map(plain);
  if (value === null || typeof value !== "object") return value;
  const { title, default: _, ...rest } = value;
  return Object.fromEntries(
    Object.entries({ ...rest, ...(typeof title === "object" ? { title } : {}) }).map(([key, each]) => [
      key,
      key === "$ref" ? each.replace("#/components/schemas/", "#/$defs/") : plain(each),
    ]),
  );
};
const closed = ([name, schema]) => [name, { ...plain(schema), additionalProperties: false, required: Object.keys(schema.properties ?? {}) }];
const schema = {
  type: "object",
  additionalProperties: false,
  properties: Object.fromEntries(named.map(([name]) => [name, { $ref: `#/$defs/${name}` }])),
  required: named.map(([name]) => name),
  $defs: Object.fromEntries(named.map((each) => (each[1].type === "object" ? closed(each) : [each[0], plain(each[1])]))),
};
await writeFile(
  target,
  await compile(schema, "Answers", { bannerComment: "// Made by `make pages` from the API's OpenAPI document.", style: { printWidth: 100 } }),
);
