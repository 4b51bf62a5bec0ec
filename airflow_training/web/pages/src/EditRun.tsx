// Another run of a training, with a document that is edited here: what is wrong with it is said while one types.
import { Alert, Box, Button, Code, Flex, Grid, Heading, Link, Text } from "@chakra-ui/react";
import { useEffect, useRef, useState } from "react";

import { Begun, useAgain } from "./Again.tsx";
import { ofTraining, post, type CheckAnswer, type Summary } from "./api.ts";
import { countOf, marksOf, type Mark } from "./marks.ts";
import { isStandalone, Loading, Problem } from "./parts.tsx";
import type { YamlEditor } from "./yamlEditor.ts";

const QUIET_MS = 300;

/** `kind`: which of the drafts of this training it is; what is typed is kept in this tab of the browser until it has run. */
export function EditRun({ draft, kind, onClose, summary }: { draft: string; kind: "document" | "single"; onClose: () => void; summary: Summary }) {
  const place = `training ${kind} ${summary.uid}`;
  const [start, setStart] = useState(() => sessionStorage.getItem(place) ?? draft);
  const [text, setText] = useState(start);
  const { checked, problem } = useCheck(summary, text);
  const { said, taken, send } = useAgain(summary);
  const editor = useRef<YamlEditor>(null);
  const marks = checked ? marksOf(checked) : [];

  const change = (next: string) => {
    setText(next);
    sessionStorage.setItem(place, next);
  };
  const discard = () => {
    sessionStorage.removeItem(place);
    setText(draft);
    setStart(draft);
  };
  const run = async () => {
    if (await send({ step: null, document: text })) sessionStorage.removeItem(place);
  };
  const name = `${summary.job}${kind === "single" ? "-single" : ""}.yaml`;
  return (
    <>
      <Flex align="center" flexWrap="wrap" gap={2} mb={2}>
        <Heading as="h3" mr="auto" size="sm">
          {kind === "single" ? "Run on one machine" : "Edit and run"}
        </Heading>
        {text !== draft && !taken && (
          <Button onClick={discard} size="xs" variant="outline">
            Discard changes
          </Button>
        )}
        <Button asChild size="xs" variant="outline">
          <a download={name} href={`data:text/yaml;charset=utf-8,${encodeURIComponent(text)}`}>
            Download
          </a>
        </Button>
        <Button onClick={onClose} size="xs" variant="outline">
          {taken ? "Close" : "Back"}
        </Button>
        <Button
          colorPalette="blue"
          disabled={taken !== null || !checked || checked.mistakes.length > 0}
          loading={said === "sending"}
          onClick={() => void run()}
          size="xs"
        >
          Run
        </Button>
      </Flex>
      <Text color="fg.muted" fontSize="sm" mb={2}>
        {isStandalone()
          ? "A new run begins on this machine, with the files beside the job file of this run."
          : "A new run begins in the DAG training_job, with this text and no other file."}
        {" This run stays as it is. Escape, then Tab leaves the editor."}
      </Text>
      {kind === "single" && (
        <Text fontSize="sm" mb={2}>
          On a laptop: download it to the files that it names, and type <Code wordBreak="break-all">airflow-training run {name}</Code>
        </Text>
      )}
      {taken && (
        <Alert.Root mb={2} role="status" status="success">
          <Alert.Indicator />
          <Alert.Title>
            <Begun taken={taken} />
          </Alert.Title>
        </Alert.Root>
      )}
      {said && said !== "sending" && <Problem error={new Error(said)} />}
      <Grid gap={3} templateColumns={{ base: "minmax(0, 1fr)", lg: "minmax(0, 2fr) minmax(0, 1fr)" }}>
        <CodeEditor editor={editor} label={name} marks={marks} onChange={change} text={start} />
        <Box as="section" aria-label="Mistakes" aria-live="polite" fontSize="sm">
          <Text fontWeight="semibold" mb={1}>
            {problem ? `not checked: ${problem}` : checked ? countOf(checked) : "checking"}
          </Text>
          {marks.map((each, number) => (
            <Box borderColor={each.severity === "error" ? "red.solid" : "orange.solid"} borderLeftWidth="3px" key={number} mb={2} pl={2}>
              <Text whiteSpace="pre-wrap" wordBreak="break-word">
                {each.text}
              </Text>
              {each.line !== null && (
                <Link as="button" onClick={() => editor.current?.goTo(each.line!)} textDecoration="underline">
                  line {each.line}
                </Link>
              )}
            </Box>
          ))}
        </Box>
      </Grid>
    </>
  );
}

/** What the server says of a text, asked when nobody types; null while it is not known. */
function useCheck({ dag, uid }: Summary, text: string): { checked: CheckAnswer | null; problem: string | null } {
  const [found, setFound] = useState<{ text: string; checked: CheckAnswer | null; problem: string | null } | null>(null);
  useEffect(() => {
    let current = true;
    const tell = (checked: CheckAnswer | null, problem: string | null) => current && setFound({ text, checked, problem });
    const timer = setTimeout(() => {
      post<CheckAnswer>(ofTraining(dag, uid, "/check"), { document: text }).then(
        (checked) => tell(checked, null),
        (problem: unknown) => tell(null, problem instanceof Error ? problem.message : String(problem)),
      );
    }, QUIET_MS);
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [dag, uid, text]);
  return found?.text === text ? found : { checked: null, problem: null };
}

/** A new `text` takes the place of what is in the editor. */
function CodeEditor({
  editor,
  label,
  marks,
  onChange,
  text,
}: {
  editor: { current: YamlEditor | null };
  label: string;
  marks: readonly Mark[];
  onChange: (text: string) => void;
  text: string;
}) {
  const box = useRef<HTMLDivElement>(null);
  const change = useRef(onChange);
  const [error, setError] = useState<Error | null>(null);
  const [open, setOpen] = useState(false);
  change.current = onChange;
  useEffect(() => {
    let gone = false;
    import("./yamlEditor.ts").then(({ openEditor }) => {
      if (gone || !box.current) return;
      editor.current = openEditor(box.current, { label, text, onChange: (next) => change.current(next) });
      setOpen(true);
    }, setError);
    return () => {
      gone = true;
      editor.current?.close();
      editor.current = null;
    };
  }, [editor, label, text]);
  const shown = JSON.stringify(marks);
  useEffect(() => editor.current?.show(JSON.parse(shown) as Mark[]), [editor, open, shown, text]);
  return (
    <Box minW={0}>
      {error && <Problem error={error} />}
      {!open && !error && <Loading />}
      <Box borderRadius="md" borderWidth={open ? "1px" : 0} overflow="hidden" ref={box} />
    </Box>
  );
}
