// The sections of the form. Each is fields of the document by their paths; what this version does not have is left out.
import { Badge, Box, Button, Checkbox, Flex, Heading, Input, NativeSelect, SimpleGrid, Text } from "@chakra-ui/react";
import { useQuery } from "@tanstack/react-query";
import { memo, useMemo, useState, type ReactNode } from "react";

import { get, post, type NewTrainingOffer } from "./api.ts";
import { AutoTune } from "./AutoTune.tsx";
import { absentFiles } from "./dataFiles.ts";
import { Fields, FormField, Said, useForm, useShown } from "./FormField.tsx";
import { everyField, fieldName, schemaAt, shapeOf, type Schema } from "./jobSchema.ts";
import { HIDDEN, NETWORK, NetworkSection } from "./NetworkSection.tsx";
import { Fact, isStandalone, Problem } from "./parts.tsx";
import { strategyWords, type Plan } from "./split.ts";
import { bytes, counted, quantity } from "./words.ts";
import { valueAt, type Path } from "./yamlPatch.ts";

const MOST_FOUND = 30;
/** Fields of `spec` that a section shows with all that they can hold. */
const SHOWN_WHOLE = ["command", "image", "workingDir"];

/** Names of the sections, in their order; the fields of a mistake are found by these beginnings. */
export const SECTIONS: readonly (readonly [id: string, title: string, fields: readonly string[]])[] = [
  ["program", "Program", ["metadata", "spec.framework", "spec.command", "spec.args", "spec.image", "spec.workingDir"]],
  ["network", "Network", ["spec.trainer"]],
  ["data", "Data", ["spec.data", "spec.output"]],
  ["parallel", "Parallel", ["spec.runtime", "spec.roles", "spec.parameters", "spec.checkpoint", "spec.plan", "space", "trials", "params"]],
  ["environment", "Environment", ["spec.environment", "spec.env", "spec.code"]],
  ["resources", "Resources", ["spec.resources", "spec.restart", "spec.activeDeadlineSeconds", "spec.schedulingPolicy", "spec.ttlSecondsAfterFinished"]],
  ["advanced", "Advanced", []],
];

/** Whether this version has what a section is about. */
export function hasSection(schema: Schema, id: string): boolean {
  return id !== "network" || schemaAt(schema, NETWORK) !== null;
}

/** The section that a field is in. */
export function sectionOf(field: string): string {
  const found = SECTIONS.find(([, , fields]) => fields.some((each) => field === each || field.startsWith(`${each}.`) || field.startsWith(`${each}[`)));
  return found?.[0] ?? "advanced";
}

function Part({ children, id, lead, title }: { children: ReactNode; id: string; lead: string; title: string }) {
  return (
    <Box aria-labelledby={`form-${id}`} as="section" bg="bg.panel" borderRadius="lg" borderWidth="1px" id={`section-${id}`} mb={4} p={{ base: 3, md: 5 }} scrollMarginTop="8rem">
      <Heading as="h2" id={`form-${id}`} size="md">
        {title}
      </Heading>
      <Text color="fg.muted" fontSize="sm" mb={4}>
        {lead}
      </Text>
      {children}
    </Box>
  );
}

const Two = ({ children }: { children: ReactNode }) => (
  <SimpleGrid columnGap={4} columns={{ base: 1, md: 2 }}>
    {children}
  </SimpleGrid>
);

/** Drawn anew only with what the document says: typing into a long one is told apart from that. */
export const Sections = memo(function AllSections({ offer }: { offer: NewTrainingOffer }) {
  const { schema } = useForm();
  return (
    <>
      <Part id="program" lead="What runs in each instance." title="Program">
        <Two>
          <FormField label="Name" path={["metadata", "name"]} />
          <FormField help="How instances find each other: which variables they get." label="Framework" path={["spec", "framework"]} simple suggestions={offer.frameworks} />
        </Two>
        <FormField help="Each word in a line of its own." label="Command" path={["spec", "command"]} />
        <Two>
          <FormField help="On Kubernetes." label="Image" path={["spec", "image"]} placeholder="registry.example.com/team/training:1.0" />
          <FormField label="Working directory" path={["spec", "workingDir"]} />
        </Two>
      </Part>
      {hasSection(schema, "network") && (
        <Part id="network" lead="Saved, from a file or from a run. Its layers, and what each gives, follow from it." title="Network">
          <NetworkSection />
        </Part>
      )}
      <Part id="data" lead="What it learns from, what it begins with, and where the result goes." title="Data">
        <DataSection offer={offer} />
      </Part>
      <Part id="parallel" lead="Where it runs, on how many instances, and what to expect of that." title="Parallel">
        <ParallelSection offer={offer} />
      </Part>
      <Part id="environment" lead="The Python and the variables that the program finds." title="Environment">
        <EnvironmentSection />
      </Part>
      <Part id="resources" lead="What each instance gets, and how often one may break." title="Resources">
        <ResourcesSection />
      </Part>
      <Part id="advanced" lead="Every other field of a job. Find one by a word of its name or of what it says." title="Advanced">
        <AdvancedSection />
      </Part>
    </>
  );
});

interface DataFiles {
  files: { name: string; bytes: number }[];
  more: boolean;
  why: string;
}

const FILES = ["spec", "data", "files"] as const;
const TEST_FILES = ["spec", "trainer", "data", "test"] as const;
const unlessEmpty = (names: readonly string[]) => (names.length > 0 ? names : undefined);

function DataSection({ offer }: { offer: NewTrainingOffer }) {
  const { edit, values } = useForm();
  const uri = valueAt(values, ["spec", "data", "uri"]);
  const chosen = valueAt(values, FILES);
  const names = Array.isArray(chosen) ? chosen.map(String) : [];
  const { data, isFetching, refetch } = useQuery({
    queryKey: ["files of", uri],
    queryFn: () => post<DataFiles>("data-files", { uri }),
    enabled: false,
    retry: false,
  });
  const tests = valueAt(values, TEST_FILES);
  const testNames = Array.isArray(tests) ? tests.map(String) : [];
  const hasTest = valueAt(values, ["spec", "trainer"]) !== undefined;
  const toggle = (list: Path, of: readonly string[], name: string, add: boolean) => edit([...list, add ? of.length : of.indexOf(name)], add ? name : undefined);
  const total = data?.files.filter((each) => names.includes(each.name)).reduce((sum, each) => sum + each.bytes, 0) ?? 0;
  const absent = data && !data.why && !data.more ? absentFiles([...names, ...testNames], data.files) : [];
  const leaveOut = () => {
    for (const [list, of] of [
      [FILES, names],
      [TEST_FILES, testNames],
    ] as const)
      if (of.some((each) => absent.includes(each))) edit(list, unlessEmpty(of.filter((each) => !absent.includes(each))));
  };
  return (
    <>
      <FormField help={offer.folder ? `An address, or a folder; relative ones start from ${offer.folder}.` : "An address, or a whole path, that instances can read."} label="Address" path={["spec", "data", "uri"]} />
      {offer.lists_files && (
        <Box mb={3}>
          <Button disabled={typeof uri !== "string" || uri === ""} loading={isFetching} onClick={() => void refetch()} size="xs" variant="outline">
            Look for files
          </Button>
          {data && (
            <Text aria-live="polite" color="fg.muted" fontSize="xs" mt={1}>
              {data.why || `${counted(data.files.length, "file")}${data.more ? " and more" : ""}; ${names.length === 0 ? "without a choice the program sees all" : `${bytes(total)} chosen`}`}
            </Text>
          )}
          {absent.length > 0 && (
            <Flex align="baseline" flexWrap="wrap" gap={2} mt={1}>
              <Text color="orange.fg" fontSize="xs" overflowWrap="anywhere">
                Not at the address: {absent.join(", ")}
              </Text>
              <Button onClick={leaveOut} size="2xs" variant="outline">
                Leave {absent.length === 1 ? "it" : "them"} out
              </Button>
            </Flex>
          )}
          {data && data.files.length > 0 && (
            <Box aria-label="Files at the address" as="ul" borderRadius="md" borderWidth="1px" listStyleType="none" maxH="14rem" mt={1} overflowY="auto" p={2} tabIndex={0}>
              {data.files.map((each) => (
                <Flex as="li" gap={2} justify="space-between" key={each.name}>
                  <Checkbox.Root checked={names.includes(each.name)} minW={0} onCheckedChange={(event) => toggle(FILES, names, each.name, event.checked === true)} size="sm">
                    <Checkbox.HiddenInput />
                    <Checkbox.Control />
                    <Checkbox.Label fontSize="sm" fontWeight="normal" overflowWrap="anywhere">
                      {each.name}
                    </Checkbox.Label>
                  </Checkbox.Root>
                  <Flex align="center" flexShrink={0} gap={4}>
                    {hasTest && (
                      <Checkbox.Root
                        checked={testNames.includes(each.name)}
                        onCheckedChange={(event) => toggle(TEST_FILES, testNames, each.name, event.checked === true)}
                        size="xs"
                        title="Tested on after each epoch"
                      >
                        <Checkbox.HiddenInput />
                        <Checkbox.Control />
                        <Checkbox.Label color="fg.muted" fontSize="xs" fontWeight="normal">
                          Test
                          <span style={HIDDEN}> on {each.name}</span>
                        </Checkbox.Label>
                      </Checkbox.Root>
                    )}
                    <Text color="fg.muted" fontSize="xs" fontVariantNumeric="tabular-nums" minW="4.5rem" textAlign="end" whiteSpace="nowrap">
                      {bytes(each.bytes)}
                    </Text>
                  </Flex>
                </Flex>
              ))}
            </Box>
          )}
        </Box>
      )}
      <FormField help="Of the address; instances share them out." label="Files" path={FILES} />
      <Two>
        <FormField label="Share of each instance" path={["spec", "data", "shard"]} />
        <FormField help="Where the weights come from that it begins with." label="Starting model" path={["spec", "data", "initialModel"]} />
        <FormField help="Where the trained model is put." label="Output" path={["spec", "output", "uri"]} />
      </Two>
      <FormField help="How files become inputs of the network." label="Format" path={["spec", "trainer", "data"]} />
    </>
  );
}

function ParallelSection({ offer }: { offer: NewTrainingOffer }) {
  const { edit, schema, values } = useForm();
  const roles = valueAt(values, ["spec", "roles"]);
  const runtime = valueAt(values, ["spec", "runtime", "name"]);
  const refused = offer.runtimes.find((each) => each.name === (runtime ?? offer.default_runtime))?.why;
  const count = Array.isArray(roles) ? roles.reduce((sum: number, each) => sum + (Number((each as { replicas?: unknown })?.replicas ?? 1) || 0), 0) : 0;
  return (
    <>
      <Two>
        <FormField help={refused ? `not from here: ${refused}` : "What starts the instances."} label="Target" path={["spec", "runtime", "name"]} placeholder={offer.default_runtime} />
        <FormField
          help="A connection of Airflow: where the cluster is, and as whom it is entered. Nothing secret is typed here."
          label="Cluster"
          path={["spec", "runtime", "connection"]}
          suggestions={offer.connections.map((each) => each.name)}
        />
      </Two>
      <Box aria-label="Roles" as="fieldset" data-field="spec.roles" mb={3}>
        <Text as="legend" fontSize="sm" fontWeight="medium" mb={1}>
          Roles{" "}
          <Text as="span" color="fg.muted" fontWeight="normal">
            {count > 0 && `${quantity(count)} ${count === 1 ? "instance" : "instances"}`}
          </Text>
        </Text>
        {(Array.isArray(roles) ? roles : []).map((each, index) => (
          <Flex align="start" gap={2} key={index}>
            <Box flex={2} minW={0}>
              <FormField label={`Role ${index + 1}`} path={["spec", "roles", index, "name"]} />
            </Box>
            <Box flex={1} minW={0}>
              <FormField label="Replicas" path={["spec", "roles", index, "replicas"]} />
            </Box>
            <Button
              alignSelf="center"
              aria-label={`Remove role ${String((each as { name?: unknown })?.name ?? index + 1)}`}
              disabled={(roles as unknown[]).length < 2}
              onClick={() => edit(["spec", "roles", index], undefined)}
              size="xs"
              variant="ghost"
            >
              ✕
            </Button>
          </Flex>
        ))}
        <Button onClick={() => edit(["spec", "roles", Array.isArray(roles) ? roles.length : 0], { name: "worker", replicas: 1 })} size="2xs" variant="outline">
          Add a role
        </Button>
        <Said path={["spec", "roles"]} />
      </Box>
      <Two>
        {schemaAt(schema, ["spec", "trainer", "threads"]) ? (
          <FormField label="Threads of each instance" path={["spec", "trainer", "threads"]} />
        ) : (
          <FormField label="Threads of each instance" path={["spec", "parameters", "threadsPerInstance"]} simple />
        )}
        <FormField help="Batches whose gradients are added up before an update." label="Update interval" path={["spec", "trainer", "updateInterval"]} />
        <FormField help="A folder or an address; without one a broken training begins anew." label="Checkpoints" path={["spec", "checkpoint", "uri"]} />
        <FormField help="latest, none, or a step; or fields: another run (hot start)." label="Start from" path={["spec", "checkpoint", "resume"]} />
      </Two>
      <AutoTune fields={offer.trainer_fields} />
      <PlanPart />
    </>
  );
}

interface PlanAnswer {
  plan: Plan | null;
  why: string;
}

/** The module of a model that is a function of one's own; null: the model is none. */
export function importedModule(values: unknown): string | null {
  const model = valueAt(values, ["spec", "plan", "model"]);
  return typeof model === "string" ? (/^([\w.]+):[\w.]+$/.exec(model.trim())?.[1] ?? null) : null;
}

function PlanPart() {
  const { document, values } = useForm();
  const asked = valueAt(values, ["spec", "plan"]) !== undefined;
  const [found, setFound] = useState<PlanAnswer | null>(null);
  const [searching, setSearching] = useState(false);
  const predict = async () => {
    setSearching(true);
    try {
      setFound(await post<PlanAnswer>("plan", { document: await document() }));
    } catch (problem) {
      setFound({ plan: null, why: problem instanceof Error ? problem.message : String(problem) });
    } finally {
      setSearching(false);
    }
  };
  const plan = found?.plan;
  return (
    <>
      <FormField help="The model, the batch, and what of the plan the run gets." label="Plan" path={["spec", "plan"]} />
      {asked && (
        <Button loading={searching} mb={2} onClick={() => void predict()} size="xs" variant="outline">
          Predict time, memory and cost
        </Button>
      )}
      {asked && isStandalone() && importedModule(values) !== null && (
        <Text color="fg.muted" fontSize="xs" mb={2}>
          To predict it, this server imports the module {importedModule(values)}.
        </Text>
      )}
      <Box aria-live="polite">
        {found && !plan && <Problem error={new Error(found.why || "the document has to be without mistakes first")} />}
        {plan && (
          <Flex borderRadius="md" borderWidth="1px" columnGap={6} flexWrap="wrap" p={3} rowGap={2}>
            <Fact name="Strategy">{strategyWords(plan.strategy)}</Fact>
            <Fact name="Devices">{quantity(plan.devices)}</Fact>
            <Fact name="Time of a step">
              {quantity(plan.step_time_s)} s ({quantity(plan.p10)} to {quantity(plan.p90)})
            </Fact>
            <Fact name="Memory of a device">{bytes(plan.peak_memory_bytes)}</Fact>
            <Fact name="Cost of a step">{plan.price_per_step === null ? "no prices" : quantity(plan.price_per_step)}</Fact>
          </Flex>
        )}
      </Box>
    </>
  );
}

interface EnvironmentOffer {
  name: string;
  version: string;
  python: string;
  packages: number | unknown[];
  image: string | null;
  cached: boolean;
  pinned: boolean;
}

function EnvironmentSection() {
  const { edit, schema, values } = useForm();
  const has = schemaAt(schema, ["spec", "environment"]) !== null;
  const { data } = useQuery({
    queryKey: ["run environments"],
    queryFn: () => get<{ environments: EnvironmentOffer[] }>("environments"),
    enabled: has,
    retry: false,
  });
  const chosen = valueAt(values, ["spec", "environment"]) as { name?: string; version?: string } | undefined;
  const key = (each: { name?: string; version?: unknown }) => `${each.name ?? ""} ${String(each.version ?? "")}`;
  const current = chosen ? key(chosen) : "";
  const found = data?.environments.find((each) => key(each) === current);
  return (
    <>
      {has && data && (
        <Flex align="center" flexWrap="wrap" gap={2} mb={3}>
          <NativeSelect.Root flex="1 1 14rem" size="sm" w="auto">
            <NativeSelect.Field
              aria-label="Run environment"
              onChange={(event) => {
                const of = data.environments.find((each) => key(each) === event.currentTarget.value);
                edit(["spec", "environment"], of && { name: of.name, version: of.version });
              }}
              value={current}
            >
              <option value="">what is installed where it runs</option>
              {chosen && !found && <option value={current}>{current}</option>}
              {data.environments.map((each) => (
                <option key={key(each)} value={key(each)}>
                  {each.name} {each.version}
                </option>
              ))}
            </NativeSelect.Field>
            <NativeSelect.Indicator />
          </NativeSelect.Root>
          {found && (
            <>
              <Badge colorPalette={found.cached ? "green" : "gray"}>{found.cached ? "cached here" : "fetched when it starts"}</Badge>
              {found.pinned && <Badge>pinned</Badge>}
              <Text color="fg.muted" fontSize="xs">
                Python {found.python}, {quantity(Array.isArray(found.packages) ? found.packages.length : found.packages)} packages
              </Text>
            </>
          )}
          <Said below path={["spec", "environment"]} />
        </Flex>
      )}
      {has && !data && <FormField path={["spec", "environment"]} />}
      <Variables />
      <FormField label="Code" path={["spec", "code"]} />
    </>
  );
}

/** Names and values in lines; what has its value from elsewhere is a field of its own. */
function Variables() {
  const { edit, values } = useForm();
  const found = valueAt(values, ["spec", "env"]);
  const list = Array.isArray(found) ? (found as ({ name?: unknown; valueFrom?: unknown } | null)[]) : [];
  const { add, hidden, more, shown } = useShown(list.length);
  return (
    <Box aria-label="Variables" as="fieldset" data-field="spec.env" mb={3}>
      <Text as="legend" fontSize="sm" fontWeight="medium" mb={1}>
        Variables
      </Text>
      {shown.map((index) => {
        const each = list[index];
        return each?.valueFrom ? (
          <FormField key={index} label={`${String(each.name ?? "")} (from elsewhere)`} path={["spec", "env", index]} />
        ) : (
          <Flex align="start" gap={2} key={index}>
            <Box flex={1} minW={0}>
              <FormField help="" label={`Name ${index + 1}`} path={["spec", "env", index, "name"]} />
            </Box>
            <Box flex={2} minW={0}>
              <FormField help="" label={`Value of ${String(each?.name || index + 1)}`} path={["spec", "env", index, "value"]} />
            </Box>
            <Button alignSelf="center" aria-label={`Remove ${String(each?.name || `variable ${index + 1}`)}`} onClick={() => edit(["spec", "env", index], undefined)} size="xs" variant="ghost">
              ✕
            </Button>
          </Flex>
        );
      })}
      {hidden > 0 && (
        <Button onClick={more} size="2xs" variant="ghost">
          Show more of {list.length}
        </Button>
      )}
      <Button
        onClick={() => {
          edit(["spec", "env", list.length], { name: "", value: "" });
          add();
        }}
        size="2xs"
        variant="outline"
      >
        Add a variable
      </Button>
      <Said path={["spec", "env"]} />
    </Box>
  );
}

function ResourcesSection() {
  return (
    <>
      <SimpleGrid columnGap={4} columns={{ base: 1, md: 2 }}>
        {(["requests", "limits"] as const).map((kind) => (
          <Box key={kind}>
            <Text fontSize="sm" fontWeight="medium" mb={1}>
              {kind === "requests" ? "Each instance needs" : "Each instance gets at most"}
            </Text>
            <Flex gap={2}>
              {(["cpu", "memory", "nvidia.com/gpu"] as const).map((name) => (
                <Box flex={1} key={name} minW={0}>
                  <FormField label={name === "nvidia.com/gpu" ? "GPUs" : name === "cpu" ? "CPU" : "Memory"} path={["spec", "resources", kind, name]} simple />
                </Box>
              ))}
            </Flex>
          </Box>
        ))}
      </SimpleGrid>
      <Two>
        <FormField label="Restarts allowed" path={["spec", "restart", "maxRestarts"]} />
        <FormField help="Seconds; then it is ended." label="Longest time" path={["spec", "activeDeadlineSeconds"]} />
        <FormField label="Queue" path={["spec", "schedulingPolicy", "queue"]} />
        <FormField label="Priority" path={["spec", "schedulingPolicy", "priority"]} />
      </Two>
    </>
  );
}

function AdvancedSection() {
  const { schema } = useForm();
  const [word, setWord] = useState("");
  const all = useMemo(() => everyField(schema), [schema]);
  const wanted = word.trim().toLowerCase();
  const found = wanted === "" ? [] : all.filter((each) => `${fieldName(each.path)} ${each.description}`.toLowerCase().includes(wanted));
  const spec = schemaAt(schema, ["spec"]);
  const shape = spec && shapeOf(schema, spec);
  return (
    <>
      <Input aria-label="Find a field" mb={2} onChange={(event) => setWord(event.currentTarget.value)} placeholder="Find a field: grace, priority, tolerations" size="sm" type="search" value={word} />
      {wanted !== "" && (
        <Box aria-label="Fields found" as="section" mb={3}>
          <Text aria-live="polite" color="fg.muted" fontSize="xs" mb={2}>
            {found.length === 0 ? "No field says that" : `${found.length} fields${found.length > MOST_FOUND ? `, the first ${MOST_FOUND}` : ""}`}
          </Text>
          {found.slice(0, MOST_FOUND).map(({ path }) => (
            <FormField key={fieldName(path)} label={fieldName(path)} path={path} />
          ))}
        </Box>
      )}
      {wanted === "" && shape?.kind === "group" && (
        <>
          <FormField path={["metadata"] as Path} />
          <Fields path={["spec"]} shape={shape} without={SHOWN_WHOLE} />
        </>
      )}
    </>
  );
}
