// What the script predicted during the training, step by step: matrices, histograms, tables and pictures.
import { Box, Button, Code, Flex, Heading, Image, Slider, Table, Text } from "@chakra-ui/react";
import { useQueries, useQuery } from "@tanstack/react-query";
import { Fragment, useEffect, useState } from "react";
import { useSearchParams } from "react-router-dom";

import { address, get, ofTraining, type ConfigurationAnswer, type Detail } from "./api.ts";
import { Fact, Loading, Problem } from "./parts.tsx";
import type { Confusion, Histogram, PredictionFile, PredictionPage, PredictionTable } from "./schema.ts";
import { keyOf, placeOf, stepsOf, versionOf, type StepFiles } from "./steps.ts";
import { bytes, cellText, moment, quantity } from "./words.ts";

const REFRESH_MS = 5000;
const PAGE_ROWS = 50;
const MOST_FILES = 8;

export function Predictions({ detail }: { detail: Detail }) {
  const path = ofTraining(detail.summary.dag, detail.summary.uid, "/predictions");
  const [query, setQuery] = useSearchParams();
  const { data, error } = useQuery({
    queryKey: ["predictions", detail.summary.uid, detail.status.state],
    queryFn: () => get<PredictionPage>(path, { limit: 1000 }),
    placeholderData: (before) => before,
    refetchInterval: detail.held ? REFRESH_MS : false,
  });
  const groups = data ? stepsOf(data.files) : [];
  const chosen = groups.find((each) => keyOf(each) === query.get("predictions"));
  const followed = useFollowed(chosen ? undefined : groups.at(-1), path, detail.summary.uid);
  if (error && !data) return <Problem error={error} />;
  if (!data) return <Loading />;
  const group = chosen ?? followed;
  const place = placeOf(groups, group ? keyOf(group) : null);
  if (!group) return <Nothing detail={detail} />;
  const show = (next: number) =>
    setQuery(
      (before) => {
        const chosen = new URLSearchParams(before);
        // at the newest one the page moves on with the training
        if (next === groups.length - 1) chosen.delete("predictions");
        else chosen.set("predictions", keyOf(groups[next]!));
        return chosen;
      },
      { replace: true },
    );
  return (
    <>
      <Flex align="center" columnGap={4} flexWrap="wrap" mb={5} rowGap={2}>
        <Heading as="h3" minW="9rem" size="md" wordBreak="break-all">
          {group.label}
        </Heading>
        {groups.length > 1 && (
          <Flex align="center" flex="1" gap={4} minW="16rem">
            <Button aria-label="Earlier" disabled={place === 0} onClick={() => show(place - 1)} size="xs" variant="outline">
              ‹
            </Button>
            <Slider.Root
              aria-label={["Step"]}
              flex="1"
              getAriaValueText={({ value }) => groups[value]?.label ?? ""}
              max={groups.length - 1}
              maxW="40rem"
              min={0}
              minW="4rem"
              onValueChange={({ value }) => show(value[0]!)}
              size="sm"
              value={[place]}
            >
              <Slider.Control>
                <Slider.Track>
                  <Slider.Range />
                </Slider.Track>
                <Slider.Thumbs />
              </Slider.Control>
            </Slider.Root>
            <Button aria-label="Later" disabled={place === groups.length - 1} onClick={() => show(place + 1)} size="xs" variant="outline">
              ›
            </Button>
            <Text color="fg.muted" fontSize="sm" whiteSpace="nowrap">
              {place === groups.length - 1 ? "the newest" : `${place + 1} of ${groups.length}`}
            </Text>
          </Flex>
        )}
      </Flex>
      {group.files.slice(0, MOST_FILES).map((file) => (
        <File file={file} key={`${file.role}-${file.index} ${file.name} ${file.at}`} path={path} uid={detail.summary.uid} />
      ))}
      {(group.files.length > MOST_FILES || data.more) && (
        <Text color="fg.muted" fontSize="xs">
          {group.files.length > MOST_FILES && `The first ${MOST_FILES} of ${group.files.length} files of this step. `}
          {data.more && `The newest ${data.files.length} files of this training.`}
        </Text>
      )}
    </>
  );
}

/** The newest step whose tables are here: where steps come faster than tables load, the page stays at one until the next is whole. */
function useFollowed(newest: StepFiles | undefined, path: string, uid: string): StepFiles | undefined {
  const [{ awaited, shown }, setState] = useState<{ awaited?: StepFiles; shown?: StepFiles }>({});
  const next = newest && (awaited ?? newest);
  const tables = useQueries({
    queries: (next?.files ?? [])
      .slice(0, MOST_FILES)
      .filter((file) => file.kind !== "picture")
      .map((file) => tableQuery(path, uid, { role: file.role, index: file.index, name: file.name }, file.at, 0)),
  });
  const arrived = tables.every((each) => !each.isPending);
  useEffect(
    () => setState(!newest ? {} : awaited && arrived ? { awaited: newest, shown: awaited } : (before) => ({ ...before, awaited: awaited ?? newest })),
    // groups are made anew by each answer: what they hold tells whether they are others
    [arrived, awaited && versionOf(awaited), newest && versionOf(newest)],
  );
  return newest && (shown ?? next);
}

function tableQuery(path: string, uid: string, of: { role: string; index: number; name: string }, at: string | null, offset: number) {
  return {
    queryKey: ["prediction", uid, of, at, offset],
    queryFn: () => get<PredictionTable>(path + "/table", { ...of, offset, limit: PAGE_ROWS }),
    retry: false,
    staleTime: Infinity,
  };
}

function Nothing({ detail }: { detail: Detail }) {
  const { dag, uid } = detail.summary;
  const { data, isPending } = useQuery({
    queryKey: ["configuration", uid],
    queryFn: () => get<ConfigurationAnswer>(ofTraining(dag, uid, "/configuration")),
  });
  if (isPending) return <Loading />;
  if (data?.has_package)
    return (
      <Text color="fg.muted">
        {detail.held ? "Nothing is predicted yet: that comes after each epoch" : "Nothing was predicted: that is done after each epoch"}, for the files in <Code>spec.trainer.data.test</Code>.
      </Text>
    );
  return (
    <Box color="fg.muted">
      <Text>
        The script has not predicted anything yet. What it writes into the folder <Code>TRAINING_PREDICTIONS_DIR</Code> is shown here: CSV, JSON
        lines, Parquet and PNG, with the step in the name.
      </Text>
      <Code as="pre" display="block" mt={2} overflowX="auto" p={3} tabIndex={0} whiteSpace="pre">
        {'folder = Path(os.environ["TRAINING_PREDICTIONS_DIR"])\nframe.to_csv(folder / f".step-{step:06}.tmp")\n(folder / f".step-{step:06}.tmp").rename(folder / f"step-{step:06}.csv")'}
      </Code>
    </Box>
  );
}

function File({ file, path, uid }: { file: PredictionFile; path: string; uid: string }) {
  const of = { role: file.role, index: file.index, name: file.name };
  return (
    <Box as="section" aria-label={file.name} borderRadius="md" borderWidth="1px" mb={4} p={3}>
      <Flex align="baseline" columnGap={4} flexWrap="wrap" justify="space-between" mb={3}>
        <Text fontFamily="mono" fontSize="sm" wordBreak="break-all">
          {file.name}
        </Text>
        <Text color="fg.muted" fontSize="xs">
          {file.role}-{file.index}, {bytes(file.bytes)}
          {file.at && `, ${moment(file.at)}`}
        </Text>
      </Flex>
      {file.kind === "picture" ? (
        <Picture name={file.name} source={address(`${path}/picture`, { ...of, at: file.at })} />
      ) : (
        <Rows at={file.at} of={of} path={path} uid={uid} />
      )}
    </Box>
  );
}

function Picture({ name, source }: { name: string; source: string }) {
  const [broken, setBroken] = useState(false);
  if (broken) return <Text color="fg.muted">This file cannot be shown as a picture.</Text>;
  return <Image alt={name} bg="white" maxH="70vh" maxW="100%" objectFit="contain" onError={() => setBroken(true)} src={source} />;
}

function Rows({ at, of, path, uid }: { at: string | null; of: { role: string; index: number; name: string }; path: string; uid: string }) {
  const [offset, setOffset] = useState(0);
  const { data, error } = useQuery({
    ...tableQuery(path, uid, of, at, offset),
    placeholderData: (before) => before,
  });
  if (error && !data) return <Problem error={error} />;
  if (!data) return <Loading />;
  const rows = `${quantity(data.rows_read)} ${data.rows_read === 1 ? "row" : "rows"}`;
  const note = [data.cut ? `The first ${rows}: a page reads no more of a large file.` : `${rows}.`, data.problem && `What follows cannot be read: ${data.problem}.`];
  return (
    <>
      {data.confusion && <Matrix of={data.confusion} />}
      {data.histogram && <Bars of={data.histogram} />}
      {data.rows.length > 0 && (
        <Table.ScrollArea borderRadius="md" borderWidth="1px" maxH="40vh" position="relative" tabIndex={0}>
          <Table.Root size="sm" stickyHeader>
            <Table.Header>
              <Table.Row>
                {data.columns.map((name, column) => (
                  <Table.ColumnHeader key={column} maxW="20rem" wordBreak="break-word">
                    {name}
                  </Table.ColumnHeader>
                ))}
              </Table.Row>
            </Table.Header>
            <Table.Body>
              {data.rows.map((row, number) => (
                <Table.Row key={number}>
                  {row.map((cell, column) => (
                    <Table.Cell fontVariantNumeric="tabular-nums" key={column} maxW="20rem" title={cellText(cell) === cell ? undefined : (cell ?? undefined)} wordBreak="break-word">
                      {cellText(cell)}
                    </Table.Cell>
                  ))}
                </Table.Row>
              ))}
            </Table.Body>
          </Table.Root>
        </Table.ScrollArea>
      )}
      <Flex align="center" flexWrap="wrap" gap={3} justify="space-between" mt={2}>
        <Text color="fg.muted" fontSize="xs" wordBreak="break-word">
          {note.filter(Boolean).join(" ")}
        </Text>
        {data.rows_read > PAGE_ROWS && (
          <Flex align="center" gap={2}>
            <Button disabled={offset === 0} onClick={() => setOffset(Math.max(0, offset - PAGE_ROWS))} size="xs" variant="outline">
              Rows before
            </Button>
            <Text color="fg.muted" fontSize="xs">
              {quantity(offset + 1)} to {quantity(offset + data.rows.length)}
            </Text>
            <Button disabled={offset + PAGE_ROWS >= data.rows_read} onClick={() => setOffset(offset + PAGE_ROWS)} size="xs" variant="outline">
              Rows after
            </Button>
          </Flex>
        )}
      </Flex>
    </>
  );
}

/** A row for each label, a column for each prediction; the fuller a cell, the larger its part of the label. */
function Matrix({ of }: { of: Confusion }) {
  return (
    <Box mb={4}>
      <Flex columnGap={8} mb={3}>
        <Fact name="Accuracy">{(100 * of.accuracy).toFixed(1)} %</Fact>
        <Fact name="Classes">{of.others ? `${of.classes.length - 1} and others` : of.classes.length}</Fact>
      </Flex>
      <Box maxW="100%" overflowX="auto" tabIndex={0}>
        <Box as="table" borderSpacing="2px" css={{ borderCollapse: "separate" }} fontSize="xs" fontVariantNumeric="tabular-nums">
          <Box as="caption" captionSide="bottom" color="fg.muted" mt={1} textAlign="start">
            Rows: label. Columns: prediction. The diagonal is right.
          </Box>
          <thead>
            <tr>
              <Corner />
              {of.classes.map((name) => (
                <Name key={name} name={name} scope="col" />
              ))}
            </tr>
          </thead>
          <tbody>
            {of.counts.map((row, label) => {
              const all = row.reduce((sum, each) => sum + each, 0);
              return (
                <tr key={of.classes[label]}>
                  <Name name={of.classes[label]!} scope="row" />
                  {row.map((count, prediction) => (
                    <Cell
                      count={count}
                      key={prediction}
                      part={all ? count / all : 0}
                      right={label === prediction}
                      title={`${of.classes[label]} taken for ${of.classes[prediction]}: ${quantity(count)} of ${quantity(all)}`}
                    />
                  ))}
                </tr>
              );
            })}
          </tbody>
        </Box>
      </Box>
    </Box>
  );
}

function Corner() {
  return <td />;
}

function Name({ name, scope }: { name: string; scope: "col" | "row" }) {
  return (
    <th scope={scope}>
      <Text fontWeight="medium" maxW="8rem" px={1} textAlign={scope === "row" ? "end" : "center"} title={name} truncate>
        {name}
      </Text>
    </th>
  );
}

function Cell({ count, part, right, title }: { count: number; part: number; right: boolean; title: string }) {
  const colour = right ? "green" : "red";
  return (
    <td title={title}>
      <Box borderRadius="xs" minW="3rem" overflow="hidden" position="relative" px={1} py={1} textAlign="center">
        <Box bg={`${colour}.muted`} inset={0} opacity={count === 0 ? 0 : 0.25 + 0.75 * part} position="absolute" />
        <Box color={count === 0 ? "fg.muted" : "fg"} position="relative">
          {count === 0 ? "·" : quantity(count)}
        </Box>
      </Box>
    </td>
  );
}

function Bars({ of }: { of: Histogram }) {
  const most = Math.max(1, ...of.predictions, ...(of.labels ?? []));
  const kinds: [string, string, number[]][] = [["predictions", "blue", of.predictions]];
  if (of.labels) kinds.push(["labels", "orange", of.labels]);
  const first = of.edges[0]!;
  const last = of.edges.at(-1)!;
  return (
    <Box mb={4}>
      <Flex columnGap={8} flexWrap="wrap" mb={3}>
        {of.mean_absolute_error !== null && <Fact name="Mean absolute error">{quantity(of.mean_absolute_error)}</Fact>}
        {of.not_finite > 0 && <Fact name="NaN or infinite">{quantity(of.not_finite)} predictions</Fact>}
        {kinds.map(([name, colour]) => (
          <Flex align="center" fontSize="xs" gap={1} key={name}>
            <Box bg={`${colour}.solid`} borderRadius="xs" h="0.7rem" w="0.7rem" />
            {name} ({colour})
          </Flex>
        ))}
      </Flex>
      <Flex
        align="flex-end"
        aria-label={`Histogram of ${kinds.map(([name]) => name).join(" and ")} from ${quantity(first)} to ${quantity(last)}`}
        borderBottomWidth="1px"
        gap="2px"
        h="9rem"
        maxW="50rem"
        role="img"
      >
        {of.predictions.map((_, bin) => (
          <Fragment key={bin}>
            {kinds.map(([name, colour, counts]) => (
              <Box
                bg={`${colour}.solid`}
                flex="1"
                h={`${(100 * counts[bin]!) / most}%`}
                key={name}
                minH={counts[bin] ? "1px" : 0}
                minW="1px"
                title={`${quantity(of.edges[bin])} to ${quantity(of.edges[bin + 1])}: ${quantity(counts[bin])} ${name}`}
              />
            ))}
          </Fragment>
        ))}
      </Flex>
      <Flex color="fg.muted" fontSize="xs" justify="space-between" maxW="50rem">
        <Text>{quantity(first)}</Text>
        <Text>{quantity(last)}</Text>
      </Flex>
    </Box>
  );
}
