// What the run has saved: how it lies there, whether it was read back, and from where it can be restored.
import { Alert, Badge, Box, Code, Flex, Link as StyledLink, List, Table, Text } from "@chakra-ui/react";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router-dom";

import { AgainButton, useAgainOffer } from "./Again.tsx";
import { get, ofTraining, type Detail } from "./api.ts";
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
const NARROW_ONLY = { base: "block", md: "none" } as const;
const WIDE_ONLY = { base: "none", md: "table-cell" } as const;

export function Checkpoints({ detail }: { detail: Detail }) {
  const { dag, uid } = detail.summary;
  const { data, error } = useQuery({
    queryKey: ["checkpoints", uid, detail.status.state],
    queryFn: () => get<CheckpointPage>(ofTraining(dag, uid, "/checkpoints")),
    placeholderData: (before) => before,
    refetchInterval: detail.held ? REFRESH_MS : false,
  });
  if (error && !data) return <Problem error={error} />;
  if (!data) return <Loading />;
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
      {data.lineages.map((each) => (
        <Lineage alone={data.lineages.length === 1} detail={detail} key={each.number} lineage={each} page={data} />
      ))}
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

/** `alone`: there is no other, from which a heading would tell it. */
function Lineage({ alone, detail, lineage, page }: { alone: boolean; detail: Detail; lineage: CheckpointLineage; page: CheckpointPage }) {
  const now = useNow(false);
  const offer = useAgainOffer(detail.summary);
  const own = lineage.checkpoints.some((each) => each.instance);
  const began = lineage.began_at && `${moment(lineage.began_at)}, ${ago(lineage.began_at, now)}`;
  const table = (
    <>
      {lineage.checkpoints.length === 0 && <Text color="fg.muted">Nothing was saved since.</Text>}
      {lineage.checkpoints.length > 0 && (
        <Table.ScrollArea borderRadius="md" borderWidth="1px" tabIndex={0}>
          <Table.Root css={{ "& td": { verticalAlign: "top" } }} size="sm">
            <Table.Header>
              <Table.Row>
                <Table.ColumnHeader>Step</Table.ColumnHeader>
                {own && <Table.ColumnHeader display={WIDE_ONLY}>Instance</Table.ColumnHeader>}
                {["Committed", "Size", "Saving took"].map((name) => (
                  <Table.ColumnHeader display={WIDE_ONLY} key={name}>
                    {name}
                  </Table.ColumnHeader>
                ))}
                <Table.ColumnHeader>Read back</Table.ColumnHeader>
                <Table.ColumnHeader display={WIDE_ONLY} />
              </Table.Row>
            </Table.Header>
            <Table.Body>
              {lineage.checkpoints.map((each) => (
                <Saved detail={detail} each={each} key={each.uri + each.at} keep={page.keep} now={now} offered={offer?.possible ?? false} own={own} />
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

function Saved({
  detail,
  each,
  keep,
  now,
  offered,
  own,
}: {
  detail: Detail;
  each: SavedCheckpoint;
  keep: number;
  now: number;
  offered: boolean;
  own: boolean;
}) {
  const took = each.seconds === null ? "" : short(each.seconds);
  const stood = each.stall_seconds === null ? "" : `training stood still for ${short(each.stall_seconds)}`;
  const restore = offered && each.restorable && (
    <AgainButton detail={detail} label={`Restore step ${quantity(each.step)}`} size="xs" step={each.step} />
  );
  return (
    <Table.Row color={each.kept ? undefined : "fg.muted"}>
      <Table.Cell fontVariantNumeric="tabular-nums">
        <Text fontWeight="medium">{quantity(each.step)}</Text>
        <Box color="fg.muted" display={NARROW_ONLY} fontSize="xs">
          {each.instance && <Box>{each.instance}</Box>}
          <Box title={moment(each.at)}>{ago(each.at, now)}</Box>
          <Box>
            {[bytes(each.bytes), took && `in ${took}`].filter(Boolean).join(" ")}
          </Box>
        </Box>
      </Table.Cell>
      {own && <Table.Cell display={WIDE_ONLY}>{each.instance}</Table.Cell>}
      <Table.Cell display={WIDE_ONLY}>
        {moment(each.at)}
        <Text color="fg.muted" fontSize="xs">
          {ago(each.at, now)}
        </Text>
      </Table.Cell>
      <Table.Cell display={WIDE_ONLY} whiteSpace="nowrap">
        {bytes(each.bytes)}
      </Table.Cell>
      <Table.Cell display={WIDE_ONLY}>
        {took}
        <Text color="fg.muted" fontSize="xs">
          {stood}
        </Text>
      </Table.Cell>
      <Table.Cell overflowWrap="anywhere" whiteSpace="normal">
        <Badge colorPalette={COLOURS[each.state]} size="sm">
          {each.state === "not read back" ? "not yet" : each.state}
        </Badge>
        <Text color={each.state === "damaged" ? "red.fg" : "fg.muted"} fontSize="xs" mt={1}>
          {each.told}
          {!each.kept && ` Only the newest ${keep} stay: this one may be gone.`}
        </Text>
        <Box display={NARROW_ONLY} mt={2}>
          {restore}
        </Box>
      </Table.Cell>
      <Table.Cell display={WIDE_ONLY} textAlign="right">
        {restore}
      </Table.Cell>
    </Table.Row>
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
