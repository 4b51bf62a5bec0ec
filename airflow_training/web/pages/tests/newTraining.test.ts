import assert from "node:assert/strict";
import test from "node:test";

import { forget, keep, kept, type Draft, type Storage } from "../src/drafts.ts";
import { everyField, fieldName, schemaAt, shapeOf, valueOf, type Schema } from "../src/jobSchema.ts";
import { pathOf, prefillOf, withSet } from "../src/prefill.ts";
import { NO_TUNING } from "../src/tuning.ts";

class Memory implements Storage {
  readonly all = new Map<string, string>();
  get length() {
    return this.all.size;
  }
  getItem = (name: string) => this.all.get(name) ?? null;
  key = (number: number) => [...this.all.keys()][number] ?? null;
  removeItem = (name: string) => void this.all.delete(name);
  setItem = (name: string, value: string) => void this.all.set(name, value);
}

const draft = (id: string, at = 1): Draft => ({ id, at, text: `# ${id}`, from: "", origin: "", tuning: NO_TUNING });

test("what a user typed is theirs, and there until it is sent", () => {
  const storage = new Memory();
  assert.ok(keep(storage, "ann", draft("a", 1)));
  assert.ok(keep(storage, "ann", draft("b", 2)));
  assert.ok(keep(storage, "ann b", draft("c", 3)));
  assert.deepEqual(kept(storage, "ann").map((each) => each.id), ["b", "a"]);
  storage.setItem('training new "ann" broken', "{");
  storage.setItem("another", "{}");
  forget(storage, "ann", "b");
  assert.deepEqual(kept(storage, "ann"), [draft("a", 1)]);
});

test("a browser that keeps nothing is no error, but is told", () => {
  const full = new Memory();
  full.setItem = () => {
    throw new Error("full");
  };
  assert.equal(keep(full, "ann", draft("a")), false);
});

const JOB = "spec:\n  roles:\n    - {name: master}\n    - {name: worker, replicas: 2}  # many\n";

test("a link fills in fields, and says what it cannot", () => {
  const query = new URLSearchParams("preset=ranking&set=spec.roles.worker.replicas=4&set=spec.data.files=[a, b]&set=nothing&set=spec.roles.x=1");
  const found = prefillOf(query)!;
  assert.equal(found.preset, "ranking");
  const { text, problems } = withSet(JOB, found.set);
  assert.match(text, /replicas: 4}  # many/);
  assert.match(text, /files: \[a, b\]/);
  assert.deepEqual(problems.map((each) => each.split(":")[0]), ["nothing"]);
  assert.equal(prefillOf(new URLSearchParams("draft=x")), null);
});

test("an item is found by its name or number", () => {
  const values = { spec: { roles: [{ name: "master" }, { name: "worker" }] } };
  assert.deepEqual(pathOf("spec.roles.worker.replicas", values), ["spec", "roles", 1, "replicas"]);
  assert.deepEqual(pathOf("spec.roles[0].replicas", values), ["spec", "roles", 0, "replicas"]);
  assert.deepEqual(pathOf("spec.__proto__.x", values), ["spec", "__proto__", "x"]);
});

const ROOT: Schema = {
  $defs: {
    Role: { type: "object", properties: { name: { type: "string" }, replicas: { type: "integer", default: 1 }, self: { $ref: "#/$defs/Role" } }, required: ["name"] },
    Ref: { type: "object", properties: { name: { type: "string" } } },
  },
  type: "object",
  properties: {
    spec: {
      type: "object",
      properties: {
        roles: { type: "array", items: { $ref: "#/$defs/Role" } },
        framework: { oneOf: [{ type: "string" }, { $ref: "#/$defs/Ref" }] },
        when: { anyOf: [{ enum: ["All", "Any"] }, { type: "integer" }, { type: "null" }] },
        policy: { anyOf: [{ type: "string", enum: ["Always", "Never"] }, { type: "null" }], default: null },
        env: { anyOf: [{ type: "array", items: { anyOf: [{ allOf: [{ $ref: "#/$defs/Ref" }, { required: ["name"] }] }, { const: { $patch: "replace" } }] } }, { type: "null" }] },
        labels: { type: "object", additionalProperties: { type: "string" } },
        free: {},
      },
    },
  },
};

test("each field has a shape", () => {
  const kind = (...path: (string | number)[]) => shapeOf(ROOT, schemaAt(ROOT, path)!).kind;
  assert.equal(kind("spec"), "group");
  assert.equal(kind("spec", "roles", 3, "replicas"), "number");
  assert.equal(kind("spec", "framework"), "either");
  assert.equal(kind("spec", "framework", "name"), "text");
  assert.equal(kind("spec", "policy"), "choice");
  assert.equal(kind("spec", "when"), "text");
  assert.equal(kind("spec", "env", 0, "name"), "text");
  assert.equal(kind("spec", "labels", "a.b"), "text");
  assert.equal(kind("spec", "free"), "any");
  assert.equal(schemaAt(ROOT, ["spec", "nosuch"]), null);
  assert.equal(schemaAt(ROOT, ["spec", "constructor"]), null);
});

test("every field is listed once, however deep the schema calls itself", () => {
  const names = everyField(ROOT).map((each) => fieldName(each.path));
  assert.ok(names.includes("spec.roles[0].replicas"));
  assert.ok(names.includes("spec.framework.name"));
  assert.equal(new Set(names).size, names.length);
});

test("what is typed becomes the value that is meant", () => {
  assert.equal(valueOf("4", "number"), 4);
  assert.equal(valueOf("4", "text"), "4");
  assert.equal(valueOf("{{ params.n }}", "number"), "{{ params.n }}");
  assert.equal(valueOf("", "number"), undefined);
  assert.equal(valueOf("true", "boolean"), true);
  assert.equal(valueOf("All", "choice"), "All");
  assert.equal(valueOf("007", "number"), "007");
});
