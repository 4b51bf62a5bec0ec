import assert from "node:assert/strict";
import test from "node:test";

import { patched, readYaml, same, valueAt, type Path } from "../src/yamlPatch.ts";

const JOB = `# A job with words around it
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {name: digits}   # its name
spec:
  framework: pytorch

  # the script
  command: [python, train.py, --lr, "0.1",]
  env:   # what it is told
    - {name: EPOCHS, value: "6"}
    - name: TEXT
      value: |
        two
        lines
    # the end of it
  roles:
  - name: master
    replicas: 1   # one

  - name: worker
    replicas: 2
    dependsOn: [{role: master}]
  data:
    files: &files
      - a.csv   # the first
      - 'b.csv'
    uri:    # nowhere yet
  checkpoint: {
    uri: ckpt,  # beside it
    everySteps: 20
  }
  restart: {}
`;

const reads = (text: string) => {
  const { problem, values } = readYaml(text);
  assert.equal(problem, null, text);
  return values;
};

const cases: [string, Path, unknown, string, string][] = [
  ["a number", ["spec", "roles", 1, "replicas"], 4, "    replicas: 2\n", "    replicas: 4\n"],
  ["a word of a list", ["spec", "command", 3], "0.2", '"0.1",]', '"0.2",]'],
  ["one more word", ["spec", "command", 4], "a, b", '"0.1",]', '"0.1", "a, b",]'],
  ["nothing becomes something", ["spec", "data", "uri"], "s3://b", "    uri:    # nowhere yet", "    uri: s3://b    # nowhere yet"],
  ["a field of a block in braces", ["spec", "checkpoint", "keep"], 2, "everySteps: 20", "everySteps: 20, keep: 2"],
  ["a field of an empty block", ["spec", "restart", "maxRestarts"], 0, "restart: {}", "restart: {maxRestarts: 0}"],
  ["a new block", ["spec", "output", "uri"], "out", "  restart: {}\n", "  restart: {}\n  output: {uri: out}\n"],
  ["a name that YAML takes for a number", ["metadata", "name"], "12", "name: digits", 'name: "12"'],
  ["a list that is a block", ["spec", "data", "files", 2], "c: d", "      - 'b.csv'\n", "      - 'b.csv'\n      - \"c: d\"\n"],
  ["another word for a block", ["spec", "roles", 0, "name"], "yes", "- name: master", '- name: "yes"'],
];

for (const [name, path, value, before, after] of cases)
  test(`${name} changes these bytes alone`, () => {
    assert.ok(JOB.includes(before));
    assert.equal(patched(JOB, path, value), JOB.replace(before, after));
  });

const removals: [string, Path, string, string][] = [
  ["a line with its comment", ["spec", "roles", 0, "replicas"], "    replicas: 1   # one\n", ""],
  ["the first field of an item", ["spec", "roles", 1, "name"], "- name: worker\n    replicas: 2", "- replicas: 2"],
  ["a word in brackets", ["spec", "command", 2], "--lr, ", ""],
  ["the last field in braces", ["spec", "checkpoint", "everySteps"], ",  # beside it\n    everySteps: 20", ""],
  ["a block with its only field", ["spec", "roles", 1, "dependsOn", 0, "role"], "[{role: master}]", "[{}]"],
  ["an item of a list", ["spec", "roles", 0], "  - name: master\n    replicas: 1   # one\n", ""],
  ["several lines", ["spec", "env", 1], "    - name: TEXT\n      value: |\n        two\n        lines\n", ""],
];

for (const [name, path, before, after] of removals)
  test(`${name} is taken away and nothing else`, () => {
    assert.ok(JOB.includes(before));
    assert.equal(patched(JOB, path, undefined), JOB.replace(before, after));
  });

test("what is there already and what is not there change nothing", () => {
  assert.equal(patched(JOB, ["spec", "framework"], "pytorch"), JOB);
  assert.equal(patched(JOB, ["spec", "output", "uri"], undefined), JOB);
});

test("lines become lines", () => {
  const text = patched("spec:\n  command: [python]\n", ["spec", "command"], ["python", "-c", "print(1)\nprint(2)\n"]);
  assert.equal(text, "spec:\n  command:\n    - python\n    - -c\n    - |\n      print(1)\n      print(2)\n");
});

test("what stands for something else is written out where it is changed", () => {
  const text = "base: &b {cpu: 1}\nspec:\n  requests: *b\n  limits: *b # the same\n";
  const next = patched(text, ["spec", "limits", "cpu"], 2);
  assert.equal(next, text.replace("limits: *b", "limits: {cpu: 2}"));
});

test("a text of comments gets its first field", () => {
  assert.equal(patched("# nothing", ["spec", "framework"], "mpi"), "# nothing\nspec: {framework: mpi}\n");
});

test("a text that cannot be read says where", () => {
  assert.deepEqual(readYaml("a: [1\nb: 2\n").values, null);
  assert.equal(readYaml("a: 1\nb: [\n").line !== null, true);
  assert.throws(() => patched("a: [", ["a"], 1));
  assert.equal(readYaml("- a").problem, "a job is a mapping: fields with values");
});

test("names of Object's prototype are names", () => {
  const text = patched("spec: {}\n", ["spec", "__proto__"], "x");
  assert.match(text, /__proto__: x/);
  assert.equal(valueAt(reads("spec: {}\n"), ["spec", "constructor"]), undefined);
});

const WINDOWS = JOB.replaceAll("\n", "\r\n");

for (const [name, path, value] of [...cases.map(([name, path, value]) => [name, path, value] as const), ...removals.map(([name, path]) => [name, path, undefined] as const)])
  test(`${name}: lines that end as on Windows stay so`, () => {
    assert.equal(patched(WINDOWS, path, value), patched(JOB, path, value).replaceAll("\n", "\r\n"));
  });

test("a byte order mark is no indent", () => {
  assert.equal(patched("\ufeffspec:\n  a: 1\n", ["b"], 2), "\ufeffspec:\n  a: 1\nb: 2\n");
});

test("a word in the place of a block stands behind its name", () => {
  assert.equal(patched("spec:\n  output:\n    uri: o\n  # next\n  a: 1\n", ["spec", "output"], "x"), "spec:\n  output: x\n  # next\n  a: 1\n");
});

test("nothing in a list becomes something", () => {
  assert.equal(patched("a:\n  -\n  - x\n  -\n", ["a", 0], "w"), "a:\n  - w\n  - x\n  -\n");
});

test("what other readers of YAML take for the end of a line is escaped", () => {
  assert.equal(patched("a: 1\n", ["a"], "x\u0085y\u2028"), 'a: "x\\u0085y\\u2028"\n');
  assert.throws(() => patched("a: 1\n", ["a"], "\ud800"));
});

test("lines at the end of a text that does not end keep their last line break", () => {
  assert.equal(patched("a: 1\nb: 2", ["b"], "x\ny\n"), "a: 1\nb: |\n  x\n  y\n");
});

/** Numbers from 0 to 1 that are the same each time. */
function drawing(seed: number) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

function paths(values: unknown, path: Path = []): Path[] {
  if (typeof values !== "object" || values === null) return [path];
  const inner = Object.keys(values).flatMap((key) => paths((values as Record<string, unknown>)[key], [...path, Array.isArray(values) ? Number(key) : key]));
  return path.length === 0 ? inner : [path, ...inner];
}

const VALUES = [0, 7, 0.5, true, null, "", "a", "a b", "yes", "1e3", "12:30", "# no comment", "a: b", "[x", "two\nlines\n", " led", "<b>x</b>", "ü☃", "'", '"', { a: 1 }, ["x", 2], [{ name: "n", value: "v" }], { a: { b: ["c: d", "e\nf"] } }];

test("500 random edits keep every byte outside of them", () => {
  const draw = drawing(17);
  const pick = <T>(from: readonly T[]): T => from[Math.floor(draw() * from.length)]!;
  const done = { set: 0, add: 0, remove: 0 };
  let text = JOB;
  for (let edit = 0; edit < 500; edit += 1) {
    if (edit % 10 === 0) text = JOB;
    const values = reads(text);
    const path = pick(paths(values).filter((each) => each.length > 1));
    const kind = pick(["set", "add", "remove"] as const);
    const at = kind === "add" ? [...path, Array.isArray(valueAt(values, path)) ? (valueAt(values, path) as unknown[]).length : `new${edit}`] : path;
    const value = kind === "remove" ? undefined : pick(VALUES);
    if (kind === "add" && (typeof valueAt(values, path) !== "object" || valueAt(values, path) === null)) continue;
    const where = `edit ${edit}: ${kind} ${JSON.stringify(at)} ${JSON.stringify(value)}\n${text}`;
    let next = "";
    try {
      next = patched(text, at, value);
    } catch (error) {
      assert.fail(`${String(error)}\n${where}`);
    }
    const found = reads(next);
    if (value !== undefined) assert.ok(same(valueAt(found, at), value), `${where}\n---\n${next}`);
    // what is not the place itself is as it was
    const outside = (each: Path) => !(each.length >= at.length ? at.every((key, index) => each[index] === key) : each.every((key, index) => at[index] === key));
    if (kind !== "remove") for (const each of paths(values).filter(outside)) assert.ok(same(valueAt(found, each), valueAt(values, each)), where);
    // one stretch of the text differs, but for a word that moves to the line of its key
    let head = 0;
    while (head < Math.min(text.length, next.length) && text[head] === next[head]) head += 1;
    let tail = 0;
    while (tail < Math.min(text.length, next.length) - head && text[text.length - 1 - tail] === next[next.length - 1 - tail]) tail += 1;
    const gone = text.slice(head, text.length - tail);
    if (kind === "add") assert.equal(gone, "", `${where}\n---\n${next}`);
    // comments outside of what was taken away or replaced stay
    const inside = JSON.stringify(valueAt(values, at) ?? "");
    for (const comment of text.match(/#[^\n"]*/g) ?? []) if (!gone.includes(comment) && !inside.includes(comment.slice(1))) assert.ok(next.includes(comment), `${comment} is gone: ${where}\n---\n${next}`);
    done[kind] += 1;
    text = next;
  }
  assert.ok(done.set > 100 && done.add > 50 && done.remove > 100, JSON.stringify(done));
});
