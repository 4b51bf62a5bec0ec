// What the run has saved: how it lies there, whether it was read back, and from where it can be restored.
import { Alert, Badge, Box, Button, Checkbox, Code, Flex, Link as StyledLink, List, Table, Text } from "@chakra-ui/react";
import { useQuery } from "@tanstack/react-query";
import { useRef, useState } from "react";
import { Link } from "react-router-dom";

import { AgainWindow, useRerunOffer } from "./Again.tsx";
import { get, ofTraining, type Detail } from "./api.ts";
import { countOf, firstRows, thatExist } from "./checkpointRows.ts";
import { Copied, Fact, Loading, Problem, Section, useNow } from "./parts.tsx";
import { runPage } from "./runPage.ts";
import type { CheckpointLineage, CheckpointPage, ResumedFrom, SavedCheckpoint } from "./schema.ts";
import { ago, bytes, duration, moment, quantity } from "./words.ts";

const REFRESH_MS = 5000;
const COLOURS: Record<SavedCheckpoint["state"], string> = {
  "read back": "green",
  "partly read back": "blue",
  "not read back": "gray",
  damaged: "red",
};
/** A browser takes seconds for thousands of rows. */
const MOST_ROWS = 100;
const WIDE_ONLY = { base: "none", md: "table-cell" } as const;
/** Of the table's body: a style for each cell of very many would cost most of the time that the page takes. */
const CELLS = {
  "& td": { borderBottomWidth: "1px", px: 2, py: 2.5, textAlign: "start", verticalAlign: "top" },
  "& td.wide": { display: WIDE_ONLY },
  "& td.size": { whiteSpace: "nowrap" },
  "& tr.gone": { color: "fg.muted" },
  "& .step": { fontVariantNumeric: "tabular-nums" },
  "& .step > b": { display: "block", fontWeight: "medium" },
  "& small": { color: "fg.muted", display: "block", fontSize: "xs" },
  "& small.narrow": { display: { base: "block", md: "none" } },
  "& small.told": { mt: 1 },
  "& small.damaged": { color: "red.fg" },
  // beside what is said of it, or below that where there is little room
  "& .state": { alignItems: "flex-start", display: "flex", flexDirection: { base: "column", md: "row" }, gap: 2, justifyContent: "space-between" },
  "& .state > div": { minW: 0, overflowWrap: "anywhere", whiteSpace: "normal" },
} as const;

export function Checkpoints({ detail }: { detail: Detail }) {
  const { dag, uid } = detail.summary;
  const { data, error } = useQuery({
    queryKey: ["checkpoints", uid, detail.status.state],
    queryFn: () => get<CheckpointPage>(ofTraining(dag, uid, "/checkpoints")),
    placeholderData: (before) => before,
    refetchInterval: detail.held ? REFRESH_MS : false,
  });
  const offer = useRerunOffer(detail.summary);
  const [all, setAll] = useState(false);
  const [history, setHistory] = useState(false);
  const [step, setStep] = useState<number>();
  const [asks, setAsks] = useState(false);
  const button = useRef<HTMLButtonElement | null>(null);
  if (error && !data) return <Problem error={error} />;
  if (!data) return <Loading />;
  const removed = countOf(data.lineages) - countOf(thatExist(data.lineages));
  const there = history ? data.lineages : thatExist(data.lineages);
  const saved = countOf(there);
  const lineages = all ? there : firstRows(there, MOST_ROWS);
  const shown = countOf(lineages);
  const restore = (of: number, pressed: HTMLButtonElement) => {
    button.current = pressed;
    setStep(of);
    setAsks(true);
  };
  if (!data.asked && data.lineages.length === 0) return <Nothing />;
  return (
    <>
      <Flex flexWrap="wrap" gap={{ base: 3, md: 8 }} mb={4}>
        <Fact name="Saved">{data.every}</Fact>
        <Fact name="Kept">
          the newest {data.keep}
          {data.keep_every !== null && ` and every ${data.keep_every}th`}
        </Fact>
        <Fact name="Where">
          <Copied name="address" text={(data.lineages.length === 1 && rootOf(data.lineages[0]!)) || data.uri} />
        </Fact>
        {data.resumed_from.length > 0 && (
          <Fact name="Began with" wide>
            {data.resumed_from.map((each) => (
              <Source each={each} key={each.instance} />
            ))}
          </Fact>
        )}
      </Flex>
      {data.passed_over.length > 0 && (
        <Alert.Root alignItems="start" mb={4} status="warning">
          <Alert.Indicator />
          <Box minW={0}>
            <Alert.Title>It began with an older checkpoint than the newest</Alert.Title>
            {data.passed_over.map((each) => (
              <Alert.Description display="block" key={each} overflowWrap="anywhere">
                {each}
              </Alert.Description>
            ))}
          </Box>
        </Alert.Root>
      )}
      {data.lineages.length === 0 && (
        <Text color="fg.muted" mb={4}>
          No checkpoint was committed yet.
        </Text>
      )}
      {lineages.map((each) => (
        <Lineage alone={data.lineages.length === 1} key={each.number} lineage={each} onRestore={offer?.possible ? restore : null} />
      ))}
      {lineages.length < data.lineages.length || shown < saved ? (
        <Flex align="center" gap={3} mb={4}>
          <Text color="fg.muted" fontSize="sm">
            {quantity(shown)} of {quantity(saved)} checkpoints, the newest first
          </Text>
          <Button onClick={() => setAll(true)} size="xs" variant="outline">
            Show all
          </Button>
        </Flex>
      ) : null}
      {removed > 0 && (
        <Checkbox.Root checked={history} mb={4} onCheckedChange={({ checked }) => setHistory(checked === true)} size="sm">
          <Checkbox.HiddenInput />
          <Checkbox.Control />
          <Checkbox.Label>{`Show ${quantity(removed)} removed or left behind`}</Checkbox.Label>
        </Checkbox.Root>
      )}
      <AgainWindow detail={detail} finalFocus={() => button.current} onClose={() => setAsks(false)} open={asks} step={step} />
      <Text color="fg.muted" fontSize="sm">
        What is said here is what the run has told; nobody has looked at the store since. A restore reads and compares everything before any of it is
        used. To compare every byte now: <Code wordBreak="break-all">airflow-training checkpoints verify {uid}</Code>
      </Text>
    </>
  );
}

function Source({ each }: { each: ResumedFrom }) {
  return (
    <Box>
      step {quantity(each.step)}
      {each.instance && ` for ${each.instance}`} of{" "}
      {each.run ? (
        <StyledLink asChild textDecoration="underline">
          <Link to={runPage(each.run)}>{each.text}</Link>
        </StyledLink>
      ) : (
        each.text
      )}
    </Box>
  );
}

/** Where all of it lies. */
function rootOf({ checkpoints: [first] }: CheckpointLineage): string | undefined {
  return first?.instance ? first.uri.replace(/\/[^/]+\/?$/, "") : first?.uri;
}

type Restore = (step: number, pressed: HTMLButtonElement) => void;

/** `alone`: there is no other, from which a heading would tell it. */
function Lineage({ alone, lineage, onRestore }: { alone: boolean; lineage: CheckpointLineage; onRestore: Restore | null }) {
  const now = useNow(false);
  const own = lineage.checkpoints.some((each) => each.instance);
  const began = lineage.began_at && `${moment(lineage.began_at)}, ${ago(lineage.began_at, now)}`;
  const table = (
    <>
      {lineage.checkpoints.length === 0 && <Text color="fg.muted">Nothing that was saved since is there.</Text>}
      {lineage.checkpoints.length > 0 && (
        <Table.ScrollArea borderRadius="md" borderWidth="1px" tabIndex={0}>
          <Table.Root size="sm">
            <Table.Header>
              <Table.Row>
                <Table.ColumnHeader px={2}>Step</Table.ColumnHeader>
                {own && <Table.ColumnHeader display={WIDE_ONLY} px={2}>Instance</Table.ColumnHeader>}
                {["Committed", "Size", "Saving took"].map((name) => (
                  <Table.ColumnHeader display={WIDE_ONLY} key={name} px={2}>
                    {name}
                  </Table.ColumnHeader>
                ))}
                <Table.ColumnHeader px={2}>Read back</Table.ColumnHeader>
              </Table.Row>
            </Table.Header>
            <Table.Body css={CELLS}>
              {lineage.checkpoints.map((each) => (
                <Saved each={each} key={`${each.uri} ${each.step} ${each.at}`} now={now} onRestore={onRestore} own={own} />
              ))}
            </Table.Body>
          </Table.Root>
        </Table.ScrollArea>
      )}
      {lineage.turns.length > 0 && (
        <List.Root fontSize="sm" mt={2} ps={5}>
          {lineage.turns.map((each) => (
            <List.Item color="orange.fg" key={each.at + each.text} overflowWrap="anywhere">
              {moment(each.at)}: {each.text}
            </List.Item>
          ))}
        </List.Root>
      )}
    </>
  );
  const root = rootOf(lineage);
  if (alone) return <Box mb={4}>{table}</Box>;
  return (
    <Section
      aside={
        <Text color="fg.muted" fontSize="xs">
          {began}
        </Text>
      }
      title={`Training ${lineage.began}`}
    >
      {root && (
        <Box color="fg.muted" fontSize="xs" mb={1}>
          <Copied name="address" text={root} />
        </Box>
      )}
      {table}
    </Section>
  );
}

function Saved({ each, now, onRestore, own }: { each: SavedCheckpoint; now: number; onRestore: Restore | null; own: boolean }) {
  const took = each.seconds === null ? "" : short(each.seconds);
  const stood = each.stall_seconds === null ? "" : `training stood still for ${short(each.stall_seconds)}`;
  return (
    <tr className={each.kept ? undefined : "gone"}>
      <td className="step">
        <b>{quantity(each.step)}</b>
        {each.instance && <small className="narrow">{each.instance}</small>}
        <small className="narrow" title={moment(each.at)}>
          {ago(each.at, now)}
        </small>
        <small className="narrow">{[bytes(each.bytes), took && `in ${took}`].filter(Boolean).join(" ")}</small>
      </td>
      {own && <td className="wide">{each.instance}</td>}
      <td className="wide">
        {moment(each.at)}
        <small>{ago(each.at, now)}</small>
      </td>
      <td className="wide size">{bytes(each.bytes)}</td>
      <td className="wide">
        {took}
        <small>{stood}</small>
      </td>
      <td>
        <div className="state">
          <div>
            <Badge colorPalette={COLOURS[each.state]} size="sm">
              {each.state === "not read back" ? "not yet" : each.state}
            </Badge>
            <small className={each.state === "damaged" ? "told damaged" : "told"}>
              {each.told}
              {!each.kept && " Removed, or left behind when training went back."}
            </small>
          </div>
          {onRestore && each.restorable && (
            <Button flexShrink={0} onClick={(event) => onRestore(each.step, event.currentTarget)} size="xs" variant="outline">
              Restore step {quantity(each.step)}
            </Button>
          )}
        </div>
      </td>
    </tr>
  );
}

/** Saves often take less than a second. */
function short(seconds: number): string {
  if (seconds < 1) return `${Number((1000 * seconds).toPrecision(2))} ms`;
  return seconds < 10 ? `${Number(seconds.toPrecision(2))} s` : duration(seconds);
}

function Nothing() {
  return (
    <Box color="fg.muted">
      <Text>
        This job keeps no checkpoints: what is not saved is lost when it ends. Say in the document where they go, and save in the script; the page on
        resumable training has the lines for each framework.
      </Text>
      <Code as="pre" display="block" mt={2} overflowX="auto" p={3} tabIndex={0} whiteSpace="pre">
        {"# job.yaml\nspec:\n  checkpoint: {uri: checkpoints}\n\n# train.py\nfrom airflow_training.checkpoints import restore, save\n\nstate = restore() or {\"step\": 0}\n...\nsave(state, step=state[\"step\"])"}
      </Code>
    </Box>
  );
}
