// Another run of a training, with a document that is edited here: what is wrong with it is said while one types.
import { Alert, Box, Button, Code, Flex, Grid, Heading, Link, Text } from "@chakra-ui/react";
import { useRef, useState } from "react";

import { Begun, useAgain } from "./Again.tsx";
import { ofTraining, type Summary } from "./api.ts";
import { CodeEditor } from "./CodeEditor.tsx";
import { countOf, marksOf } from "./marks.ts";
import { isStandalone, Problem } from "./parts.tsx";
import { useCheck } from "./useCheck.ts";
import type { YamlEditor } from "./yamlEditor.ts";

/** `kind`: which of the drafts of this training it is; what is typed is kept in this tab of the browser until it has run. */
export function EditRun({ draft, kind, onClose, summary }: { draft: string; kind: "document" | "single"; onClose: () => void; summary: Summary }) {
  const place = `training ${kind} ${summary.uid}`;
  const [text, setText] = useState(() => sessionStorage.getItem(place) ?? draft);
  const { checked, problem } = useCheck(ofTraining(summary.dag, summary.uid, "/check"), text);
  const { said, taken, send } = useAgain(summary);
  const editor = useRef<YamlEditor>(null);
  const marks = checked ? marksOf(checked) : [];

  const change = (next: string) => {
    setText(next);
    sessionStorage.setItem(place, next);
  };
  const discard = () => {
    setText(draft);
    editor.current?.replace(draft);
    sessionStorage.removeItem(place);
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
        <CodeEditor editor={editor} label={name} marks={marks} onChange={change} text={text} />
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
