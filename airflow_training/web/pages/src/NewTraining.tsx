// A new training: left the form, right its YAML. The text is the truth; the form is read from it, and changes it.
import { Alert, Box, Button, Card, Flex, Grid, Heading, Link as StyledLink, LinkOverlay, Separator, SimpleGrid, Text } from "@chakra-ui/react";
import { useQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef, useState, type ReactNode } from "react";
import { Link, useNavigate, useSearchParams } from "react-router-dom";

import { get, ofTraining, post, type ConfigurationAnswer, type NewTrainingOffer, type PresetPage, type RerunAnswer, type SummaryPage } from "./api.ts";
import { CodeEditor } from "./CodeEditor.tsx";
import { forget, keep, kept, type Draft } from "./drafts.ts";
import { FormProvider, type FormState } from "./FormField.tsx";
import { hasSection, importedModule, Sections, sectionOf, SECTIONS } from "./FormSections.tsx";
import type { Schema } from "./jobSchema.ts";
import { countOf, marksOf } from "./marks.ts";
import { HIDDEN } from "./NetworkSection.tsx";
import { isStandalone, Loading, Problem, useTitle } from "./parts.tsx";
import { prefillOf, withSet, type Prefill } from "./prefill.ts";
import { newTrainingPage, runPage, tuningPage } from "./runPage.ts";
import { SavePreset } from "./SavePreset.tsx";
import type { TuningAnswer, TuningCheckAnswer } from "./schema.ts";
import { NO_TUNING, tuningRequest, type TuningDraft } from "./tuning.ts";
import { useCheck } from "./useCheck.ts";
import { LONG, useYamlText } from "./useYamlText.ts";
import { ago } from "./words.ts";
import type { YamlEditor } from "./yamlEditor.ts";
import { readYaml, valueAt } from "./yamlPatch.ts";

const EMPTY = `apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {name: training}
spec:
  framework: custom
  command: [python, train.py]
  roles:
    - {name: worker, replicas: 1}
`;
const MOST_BYTES = 256 * 1024;
const QUIET_MS = 300;
/** Longer than any session of typing in one tab needs to be told apart from others. */
const newId = () => Array.from(crypto.getRandomValues(new Uint8Array(6)), (byte) => byte.toString(16).padStart(2, "0")).join("");

export function NewTraining() {
  useTitle("New training");
  const [query, setQuery] = useSearchParams();
  const { data: offer, error: noOffer } = useQuery({ queryKey: ["new"], queryFn: () => get<NewTrainingOffer>("new") });
  const { data: schema, error: noSchema } = useQuery({ queryKey: ["schema"], queryFn: () => get<Schema>("schema"), staleTime: Infinity });
  const { data: presets, error: noPresets } = useQuery({ queryKey: ["presets"], queryFn: () => get<PresetPage>("presets") });
  const [begun, setBegun] = useState<Begun | null>(null);
  const [problem, setProblem] = useState<Error | null>(null);
  const wanted = query.toString();
  const user = offer?.user;

  useEffect(() => {
    let current = true;
    setProblem(null);
    if (user === undefined || !presets) return undefined;
    const id = query.get("draft");
    // the address follows what is typed: then there is nothing to begin with
    if (id !== null && begun?.draft.id === id && begun.user === user) return undefined;
    const draft = id === null ? undefined : kept(localStorage, user).find((each) => each.id === id);
    const prefill = prefillOf(query);
    if (draft) setBegun({ draft, said: [`As you left it ${ago(new Date(draft.at).toISOString(), Date.now())}.`], wanted, user });
    else if (prefill)
      load(prefill, presets).then(
        (found) => current && setBegun({ ...found, wanted, user }),
        (error: unknown) => current && setProblem(error instanceof Error ? error : new Error(String(error))),
      );
    else setBegun(null);
    return () => {
      current = false;
    };
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [wanted, user, presets !== undefined]);

  const begin = (from: string, text: string) => {
    const draft: Draft = { id: newId(), at: Date.now(), text, from, origin: "", tuning: NO_TUNING };
    if (user === undefined) return;
    setBegun({ draft, said: [], wanted: "", user });
    setQuery({ draft: draft.id });
    keep(localStorage, user, draft);
  };
  const error = noOffer ?? noSchema ?? noPresets;
  if (error && !(offer && schema && presets)) return <Problem error={error} />;
  if (!offer || !schema || !presets) return <Loading />;
  const isHere = begun !== null && begun.user === offer.user && (begun.wanted === wanted || query.get("draft") === begun.draft.id);
  return (
    <Box p={{ base: 2, md: 4 }}>
      {problem && <Problem error={problem} />}
      {!offer.possible && <Problem error={new Error(`You can write a document here and download it, but not run it: ${offer.why}.`)} />}
      {isHere ? (
        <Form
          begun={begun}
          key={begun.draft.id}
          offer={offer}
          onKept={(id) => query.get("draft") !== id && setQuery({ draft: id }, { replace: true })}
          schema={schema}
        />
      ) : wanted && !problem && (prefillOf(query) ?? query.get("draft")) ? (
        <Gone draft={query.get("draft")} />
      ) : (
        <Begin onBegin={begin} presets={presets} user={offer.user} />
      )}
    </Box>
  );
}

interface Begun {
  draft: Draft;
  /** What to know before it is run. */
  said: readonly string[];
  /** The address that it was made for. */
  wanted: string;
  /** Whose it is: somebody else may log in while this page is open. */
  user: string;
}

async function load(prefill: Prefill, presets: PresetPage): Promise<Omit<Begun, "wanted" | "user">> {
  let [text, from, origin] = [EMPTY, "an empty document", ""];
  const { preset, run, saved, set } = prefill;
  if (preset) {
    const found = presets.shipped.find((each) => each.name === preset);
    if (!found) throw new Error(`There is no preset ${preset}: ${presets.shipped.map((each) => each.name).join(", ")}`);
    [text, from] = [found.document, found.title];
  } else if (saved) {
    const { document } = await get<{ document: string }>("presets/saved", { name: saved.name, by: saved.user, version: saved.version });
    [text, from] = [document, `${saved.name}, version ${saved.version}, by ${saved.user}`];
  } else if (run) {
    const [dag = "~", uid = ""] = [run.slice(0, run.lastIndexOf("/")) || "~", run.slice(run.lastIndexOf("/") + 1)];
    const { draft } = await get<ConfigurationAnswer>(ofTraining(dag, uid, "/configuration"));
    [text, from, origin] = [draft, `the run ${uid}`, `${dag}/${uid}`];
  }
  const filled = withSet(text, set);
  const said = set.length === 0 ? [] : [linkWords(set, filled.text), ...filled.problems.map((each) => `Not filled in: ${each}`)];
  return { draft: { id: newId(), at: Date.now(), text: filled.text, from, origin, tuning: NO_TUNING }, said };
}

/** What a link filled in, before anything of it is sent; also what less than Run would do with it. */
function linkWords(set: readonly string[], text: string): string {
  const module = importedModule(readYaml(text).values);
  const imports = isStandalone() && module !== null && set.some((each) => /^\s*spec\.plan\b/.test(each));
  return `A link filled in: ${set.join("; ")}. Nothing runs before you press Run${imports ? `, but Predict imports the module ${module} that it names into this server` : ""}.`;
}

/** A draft that was sent or is another browser's, or what is on its way. */
function Gone({ draft }: { draft: string | null }) {
  if (draft === null) return <Loading />;
  return (
    <Text>
      This draft is not kept in this browser: it was run, or written elsewhere.{" "}
      <StyledLink asChild textDecoration="underline">
        <Link to={newTrainingPage()}>Begin another</Link>
      </StyledLink>
    </Text>
  );
}

function Choose({ children, to, title, words }: { children?: ReactNode; to: string; title: string; words: string }) {
  return (
    <Card.Root _hover={{ borderColor: "border.emphasized", shadow: "sm" }} position="relative" size="sm" transition="box-shadow 0.15s">
      <Card.Body gap={1}>
        <Heading as="h3" size="sm">
          <LinkOverlay asChild>
            <Link to={to}>{title}</Link>
          </LinkOverlay>
        </Heading>
        <Text color="fg.muted" fontSize="sm" lineClamp={6} overflowWrap="anywhere">
          {words}
        </Text>
        {children}
      </Card.Body>
    </Card.Root>
  );
}

function Shelf({ children, title }: { children: ReactNode; title: string }) {
  return (
    <Box as="section" aria-label={title} mb={6}>
      <Heading as="h2" mb={2} size="md">
        {title}
      </Heading>
      <SimpleGrid columns={{ base: 1, md: 2, xl: 4 }} gap={3}>
        {children}
      </SimpleGrid>
    </Box>
  );
}

/** What a training can begin with. */
function Begin({ onBegin, presets, user }: { onBegin: (from: string, text: string) => void; presets: PresetPage; user: string }) {
  const [drafts, setDrafts] = useState(() => kept(localStorage, user));
  const [said, setSaid] = useState("");
  const { data: recent } = useQuery({ queryKey: ["recent"], queryFn: () => get<SummaryPage>("trainings", { limit: 8 }) });
  const now = Date.now();
  const upload = async (file: File | undefined) => {
    if (!file) return;
    if (file.size > MOST_BYTES) setSaid(`${file.name} is longer than a document may be (256 KiB)`);
    else onBegin(file.name, await file.text());
  };
  return (
    <>
      <Heading as="h1" mb={1} size="lg">
        New training
      </Heading>
      <Text color="fg.muted" mb={5}>
        Begin with something that runs, and make it yours.
      </Text>
      {drafts.length > 0 && (
        <Shelf title="Not sent yet">
          {drafts.map((each) => (
            <Choose key={each.id} title={nameIn(each.text) || "without a name"} to={newTrainingPage({ draft: each.id })} words={`From ${each.from}, ${ago(new Date(each.at).toISOString(), now)}.`}>
              <Button
                alignSelf="start"
                aria-label={`Throw away the draft ${nameIn(each.text)}`}
                onClick={() => {
                  forget(localStorage, user, each.id);
                  setDrafts(kept(localStorage, user));
                }}
                size="2xs"
                variant="outline"
                zIndex={1}
              >
                Throw away
              </Button>
            </Choose>
          ))}
        </Shelf>
      )}
      <Shelf title="Presets">
        {presets.shipped.map((each) => (
          <Choose key={each.name} title={each.title} to={newTrainingPage({ preset: each.name })} words={each.description} />
        ))}
      </Shelf>
      {presets.saved.length > 0 && (
        <Shelf title="Saved presets">
          {presets.saved.map((each) => (
            <Choose
              key={`${each.user}/${each.name}`}
              title={each.name}
              to={newTrainingPage({ saved: each.name, version: String(each.version), by: each.user })}
              words={[each.description, `Version ${each.version}, by ${each.user || "somebody"}, ${ago(each.created, now)}.`].filter(Boolean).join(" ")}
            />
          ))}
        </Shelf>
      )}
      {recent && recent.trainings.length > 0 && (
        <Shelf title="Earlier trainings">
          {recent.trainings.map((each) => (
            <Choose key={each.uid} title={each.job} to={newTrainingPage({ run: `${each.dag}/${each.uid}` })} words={`${each.run_id}, ${each.phrase}, ${ago(each.submitted_at, now)}.`} />
          ))}
        </Shelf>
      )}
      <Flex align="center" flexWrap="wrap" gap={2}>
        <Button onClick={() => onBegin("an empty document", EMPTY)} size="sm" variant="outline">
          Empty document
        </Button>
        <Button asChild cursor="pointer" size="sm" variant="outline">
          <label htmlFor="job-file">Upload a job file</label>
        </Button>
        <input accept=".yaml,.yml,.json" aria-label="Job file" id="job-file" onChange={(event) => void upload(event.currentTarget.files?.[0])} style={HIDDEN} type="file" />
        <Text aria-live="polite" fontSize="sm">
          {said}
        </Text>
      </Flex>
    </>
  );
}

const nameOf = (values: unknown): string => {
  const found = valueAt(values, ["metadata", "name"]);
  return typeof found === "string" ? found : "";
};
/** Of a long text as far as it can be seen without reading it. */
const nameIn = (text: string): string =>
  text.length > LONG ? (/^metadata:(?:\s*\{|[^]{0,400}?\n\s+)[^}\n]{0,200}?\bname:\s*["']?([^\s,"'}#]+)/m.exec(text)?.[1] ?? "") : nameOf(readYaml(text).values);

const addressOf = (text: string) => `data:text/yaml;charset=utf-8,${encodeURIComponent(text.replace(/\p{Surrogate}/gu, "\ufffd"))}`;

/** Keeps what is typed; a long text when typing pauses, or the page is left. */
function useKept(draft: Draft, user: string, onKept: (id: string) => void) {
  const [unkept, setUnkept] = useState(false);
  const newest = useRef(draft);
  const waits = useRef<ReturnType<typeof setTimeout> | null>(null);
  const told = useRef(onKept);
  told.current = onKept;
  const write = useCallback(() => {
    if (waits.current !== null) clearTimeout(waits.current);
    waits.current = null;
    setUnkept(!keep(localStorage, user, newest.current));
  }, [user]);
  const keepDraft = useCallback(
    (change: Partial<Draft>) => {
      newest.current = { ...newest.current, ...change, at: Date.now() };
      if (newest.current.text.length <= LONG) write();
      else waits.current ??= setTimeout(write, QUIET_MS);
      told.current(draft.id);
    },
    [draft.id, write],
  );
  useEffect(() => {
    const leave = () => waits.current !== null && write();
    addEventListener("pagehide", leave);
    return () => {
      removeEventListener("pagehide", leave);
      leave();
    };
  }, [write]);
  return { keepDraft, unkept };
}

const NONE: readonly never[] = [];

/** What is to say of trials without a run; empty: all have one. */
const missingWords = ({ begun, pending, trials, why }: TuningAnswer): string =>
  why
    ? `${trials - begun - pending} of ${trials} trials were not begun: ${why}. The draft is kept: Run begins those that are missing.`
    : pending > 0
      ? `${pending} of ${trials} trials are still being begun. The draft is kept: should the server end meanwhile, Run begins those that are missing.`
      : "";

function Form({ begun, offer, onKept, schema }: { begun: Begun; offer: NewTrainingOffer; onKept: (id: string) => void; schema: Schema }) {
  const { draft } = begun;
  const navigate = useNavigate();
  const [shown, setShown] = useState<"form" | "yaml">("form");
  const [saving, setSaving] = useState(false);
  const [said, setSaid] = useState(begun.said);
  const [problemOfRun, setProblemOfRun] = useState("");
  const [sending, setSending] = useState(false);
  const [tuning, setTuning] = useState(draft.tuning);
  const editor = useRef<YamlEditor>(null);
  const sent = useRef(false);
  const { keepDraft, unkept } = useKept(draft, offer.user, onKept);
  const { calm, change, edit, reading, refused, settled, text, values } = useYamlText(draft.text, editor, (next) => keepDraft({ text: next }));
  const split = draft.origin.lastIndexOf("/");
  const origin = useMemo(() => (split < 0 ? null : { dag: draft.origin.slice(0, split), uid: draft.origin.slice(split + 1) }), [draft.origin, split]);
  const tuned = tuning.rows.length > 0;
  const { checked, problem } = useCheck(tuned ? "tunings/check" : "check", text, tuned ? { origin, tuning: tuningRequest(tuning) } : { origin });
  const marks = checked ? marksOf(checked) : [];
  const tune = useCallback(
    (next: TuningDraft) => {
      setTuning(next);
      keepDraft({ tuning: next });
    },
    [keepDraft],
  );
  const goTo = useCallback((line: number) => {
    setShown("yaml");
    requestAnimationFrame(() => editor.current?.goTo(line));
  }, []);
  const mistakes = checked?.mistakes ?? NONE;
  const warnings = checked?.warnings ?? NONE;
  const trials = tuned ? ((checked as TuningCheckAnswer | null)?.trials ?? null) : null;
  const state = useMemo(
    (): FormState => ({ schema, values, mistakes, warnings, edit, goTo, document: settled, tuning, tune, trials }),
    [edit, goTo, mistakes, schema, settled, trials, tune, tuning, values, warnings],
  );
  const run = async () => {
    if (sent.current) return;
    sent.current = true;
    setSending(true);
    setProblemOfRun("");
    try {
      const document = await settled();
      const forgetIt = async () => {
        // what was typed since then is not sent
        if ((await settled()) === document) forget(localStorage, offer.user, draft.id);
      };
      // the key is the draft's: where an answer was lost, Run again begins only what is missing
      if (tuned) {
        const taken = await post<TuningAnswer>("tunings", { document, origin, tuning: tuningRequest(tuning) }, draft.id);
        if (taken.begun === taken.trials) await forgetIt();
        void navigate(tuningPage({ tuning: taken.tuning, metric: tuning.metric, goal: tuning.goal, missing: missingWords(taken) }));
      } else {
        const taken = await post<RerunAnswer>("runs", { document, origin }, draft.id);
        await forgetIt();
        void navigate(runPage(taken));
      }
    } catch (error) {
      sent.current = false;
      setProblemOfRun(error instanceof Error ? error.message : String(error));
      setSending(false);
    }
  };
  const name = nameOf(values) || "training";
  const ready = offer.possible && checked !== null && checked.mistakes.length === 0;
  const state_words = problem ? `not checked: ${problem}` : reading !== null && reading.problem !== null && !checked ? "no YAML" : checked ? countOf(checked) : "checking";
  const href = useMemo(() => addressOf(calm), [calm]);
  const wrong = new Map<string, number>();
  for (const each of checked?.mistakes ?? []) wrong.set(sectionOf(each.field), (wrong.get(sectionOf(each.field)) ?? 0) + 1);
  return (
    <FormProvider value={state}>
      <Box bg="bg" boxShadow="0 -1rem 0 0 var(--chakra-colors-bg)" mb={3} mx={{ base: -2, md: -4 }} position={{ base: "static", lg: "sticky" }} px={{ base: 2, md: 4 }} py={2} top={0} zIndex={2}>
        <Flex align="center" flexWrap="wrap" gap={2}>
          <Box flex="1 1 12rem" minW={0}>
            <Heading as="h1" size="lg" truncate>
              New training: {name}
            </Heading>
            <Text color="fg.muted" fontSize="xs" truncate>
              From {draft.from}.{" "}
              <StyledLink asChild color="inherit" textDecoration="underline">
                <Link to={newTrainingPage()}>Begin with something else</Link>
              </StyledLink>
            </Text>
          </Box>
          <Text aria-live="polite" color={checked && checked.mistakes.length > 0 ? "red.fg" : "fg.muted"} data-checked={checked ? "" : undefined} fontSize="sm">
            {state_words}
          </Text>
          <Button aria-expanded={saving} disabled={!offer.possible} onClick={() => setSaving(!saving)} size="sm" variant="outline">
            Save as preset
          </Button>
          <Button asChild size="sm" variant="outline">
            <a download={`${name}.yaml`} href={href} onClick={(event) => (event.currentTarget.href = addressOf(text))}>
              Download
            </a>
          </Button>
          <Button colorPalette="blue" disabled={!ready} loading={sending} loadingText="Starting" onClick={() => void run()} size="sm">
            {tuned ? `Run ${trials || ""} trials` : "Run"}
          </Button>
        </Flex>
        <Flex aria-label="Sections" as="nav" columnGap={4} display={{ base: shown === "form" ? "flex" : "none", lg: "flex" }} flexWrap="wrap" fontSize="sm" mt={2}>
          {SECTIONS.filter(([id]) => hasSection(schema, id)).map(([id, title]) => (
            <Box
              as="button"
              color={wrong.has(id) ? "red.fg" : "fg.muted"}
              key={id}
              onClick={() => {
                const section = document.getElementById(`section-${id}`);
                section?.scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
                section?.querySelector<HTMLElement>("input, select, textarea, button")?.focus({ preventScroll: true });
              }}
              textDecoration="underline"
              textUnderlineOffset="3px"
            >
              {title}
              {wrong.has(id) && ` (${wrong.get(id)})`}
            </Box>
          ))}
        </Flex>
        <Flex display={{ base: "flex", lg: "none" }} gap={2} mt={2} role="group" aria-label="What is shown">
          {(["form", "yaml"] as const).map((each) => (
            <Button aria-pressed={shown === each} flex={1} key={each} onClick={() => setShown(each)} size="xs" variant={shown === each ? "solid" : "outline"}>
              {each === "form" ? "Form" : "YAML"}
            </Button>
          ))}
        </Flex>
        <Separator mt={2} />
      </Box>
      {saving && <SavePreset document={settled} name={name.slice(0, 63)} onClose={() => setSaving(false)} />}
      {said.map((each) => (
        <Alert.Root key={each} mb={3} role="status" size="sm" status="info">
          <Alert.Indicator />
          <Alert.Title flex={1} fontWeight="normal" overflowWrap="anywhere">
            {each}
          </Alert.Title>
          <Button aria-label="Close the note" onClick={() => setSaid(said.filter((other) => other !== each))} size="2xs" variant="ghost">
            ✕
          </Button>
        </Alert.Root>
      ))}
      {unkept && <Problem error={new Error("This browser keeps nothing: what you type is lost when this page is closed. Download it.")} />}
      {(problemOfRun || refused) && <Problem error={new Error(problemOfRun || refused)} />}
      <Grid alignItems="start" gap={5} templateColumns={{ base: "minmax(0, 1fr)", lg: "minmax(0, 1fr) minmax(0, 1fr)" }}>
        <Box aria-label="Form" as="fieldset" border={0} display={{ base: shown === "form" ? "block" : "none", lg: "block" }} minW={0} {...{ disabled: reading === null || reading.problem !== null }}>
          {reading !== null && reading.problem !== null && (
            <Alert.Root mb={3} role="alert" status="warning">
              <Alert.Indicator />
              <Alert.Title fontWeight="normal" overflowWrap="anywhere">
                The form waits until the text can be read{reading.line !== null && ` (line ${reading.line})`}: {reading.problem}
              </Alert.Title>
            </Alert.Root>
          )}
          <Sections offer={offer} />
        </Box>
        <Box display={{ base: shown === "yaml" ? "block" : "none", lg: "block" }} minW={0} position={{ lg: "sticky" }} top={{ lg: "7.5rem" }}>
          <CodeEditor editor={editor} label={`${name}.yaml`} marks={marks} onChange={change} text={text} />
          <Text color="fg.muted" fontSize="xs" mt={1}>
            {isStandalone() ? "Runs on this machine unless it names another target. " : "Becomes a run of the DAG training_job, as you. "}
            Kept in this browser until it runs. Escape, then Tab leaves the editor.
          </Text>
          <Box as="section" aria-label="Mistakes" fontSize="sm" maxH={{ lg: "22vh" }} mt={2} overflowY="auto" tabIndex={0}>
            {marks.map((each, number) => (
              <Box borderColor={each.severity === "error" ? "red.solid" : "orange.solid"} borderLeftWidth="3px" key={number} mb={2} pl={2}>
                <Text whiteSpace="pre-wrap" wordBreak="break-word">
                  {each.text}
                </Text>
                {each.line !== null && (
                  <StyledLink as="button" onClick={() => goTo(each.line!)} textDecoration="underline">
                    line {each.line}
                  </StyledLink>
                )}
              </Box>
            ))}
          </Box>
        </Box>
      </Grid>
    </FormProvider>
  );
}
