// Builds the pages into ../static: hashed names, the same bytes for the same sources.
//
//   pages: what Airflow's UI loads; React, Chakra UI and the router are the host's
//   later: parts of the pages that are loaded where somebody looks at them; what they share with the pages they are lent
//   formParts: the form for a new training, with what reads and changes YAML; loaded as the parts before
//   yamlEditor: what the pages load where somebody edits a document
//   yamlWorker: reads and changes long documents beside the page, in a thread of its own
//   networkLayout: where the layers of a network are drawn; loaded where there is one
//   shell: the same host's libraries for `airflow-training ui`, where there is no Airflow; loads the pages
//
// `node build.mjs DIRECTORY` writes elsewhere, to compare.
import { build } from "esbuild";
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));
const target = process.argv[2] ?? join(here, "..", "static");

// The libraries that Airflow shares with plugins, and the global that holds each.
const SHARED = {
  "react": "React",
  "react-dom": "ReactDOM",
  "react/jsx-runtime": "ReactJSXRuntime",
  "react-router-dom": "ReactRouterDOM",
  "@chakra-ui/react": "ChakraUI",
};

const shared = {
  name: "shared",
  setup(builder) {
    const names = new RegExp(`^(${Object.keys(SHARED).map((name) => name.replace("/", "\\/")).join("|")})$`);
    builder.onResolve({ filter: names }, ({ path }) => ({ path, namespace: "shared" }));
    builder.onLoad({ filter: /.*/, namespace: "shared" }, ({ path }) => ({
      contents: `module.exports = globalThis[${JSON.stringify(SHARED[path])}]`,
    }));
  },
};

const common = {
  absWorkingDir: here,
  bundle: true,
  charset: "utf8",
  define: { "process.env.NODE_ENV": '"production"' },
  entryNames: "[name].[hash]",
  chunkNames: "[name].[hash]",
  format: "esm",
  jsx: "automatic",
  legalComments: "none",
  loader: { ".css": "text" },
  metafile: true,
  minify: true,
  outdir: target,
  target: "es2022",
};

function output(result, entry) {
  const [path] = Object.entries(result.metafile.outputs).find(([, each]) => each.entryPoint === entry);
  return basename(path);
}

await mkdir(target, { recursive: true });
for (const name of await readdir(target)) await rm(join(target, name));
// Built apart: split off the pages by esbuild, they would take a piece of the first load with them into a third file.
const alone = async (entry) => output(await build({ ...common, entryPoints: [entry] }), entry);
const editor = await alone("src/yamlEditor.ts");
const yamlWorker = await alone("src/yamlWorker.ts");
const layout = await alone("src/networkLayout.ts");

// The modules that src/lent.ts puts into a global.
const LENT = [...(await readFile(join(here, "src/lent.ts"), "utf8")).matchAll(/^  "(.+)": /gm)].map(([, name]) => name);
const lent = {
  name: "lent",
  setup(builder) {
    builder.onResolve({ filter: /.*/ }, ({ path }) => (LENT.includes(path) ? { path, namespace: "lent" } : undefined));
    builder.onLoad({ filter: /.*/, namespace: "lent" }, ({ path }) => ({
      contents: `module.exports = globalThis["Training modules"][${JSON.stringify(path)}]`,
    }));
  },
};
const withEditor = {
  name: "editor",
  setup(builder) {
    builder.onResolve({ filter: /\/yamlEditor\.ts$/ }, () => ({ path: `./${editor}`, external: true }));
    builder.onResolve({ filter: /\/networkLayout\.ts$/ }, () => ({ path: `./${layout}`, external: true }));
  },
};
const define = { ...common.define, YAML_WORKER: JSON.stringify(`./${yamlWorker}`) };
const part = async (entry) => output(await build({ ...common, define, entryPoints: [entry], plugins: [shared, withEditor, lent] }), entry);
const later = await part("src/later.tsx");
const formParts = await part("src/formParts.tsx");

const lazy = {
  name: "lazy",
  setup(builder) {
    builder.onResolve({ filter: /\/formParts\.tsx$/ }, () => ({ path: `./${formParts}`, external: true }));
    builder.onResolve({ filter: /\/later\.tsx$/ }, () => ({ path: `./${later}`, external: true }));
  },
};

const pages = output(
  await build({
    ...common,
    define: { ...common.define, LATER: JSON.stringify(`./${later}`), NEW_TRAINING: JSON.stringify(`./${formParts}`) },
    entryPoints: ["src/pages.tsx"],
    plugins: [shared, withEditor, lazy],
  }),
  "src/pages.tsx",
);
const shell = output(await build({ ...common, entryPoints: ["src/shell.tsx"] }), "src/shell.tsx");
await writeFile(join(target, "manifest.json"), `${JSON.stringify({ pages, shell }, null, 2)}\n`);
