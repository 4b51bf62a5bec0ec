// What each instance has read: how evenly samples are spread, which files, how fast, and who waits.
import { Alert, Badge, Box, Code, Flex, Input, Link, NativeSelect, Progress, Table, Text, VisuallyHidden } from "@chakra-ui/react";
import { useQuery } from "@tanstack/react-query";
import { Fragment, useState } from "react";

import { get, ofTraining, type Detail } from "./api.ts";
import { Fact, Loading, Problem, Section } from "./parts.tsx";
import { compact, deviation, fraction, ordered, ORDERS, signed, type Order } from "./reading.ts";
import type { DataPage, FilePage, Imbalance, InstanceData } from "./schema.ts";
import { colourOfInstance, duration, moment, quantity } from "./words.ts";

const REFRESH_MS = 3000;
const MOST_ROWS = 256;
const MOST_FILES = 200;
const MOST_NAMED = 5;

const nameOf = (each: { role: string; index: number }) => `${each.role}-${each.index}`;

export function Data({ detail }: { detail: Detail }) {
  const path = ofTraining(detail.summary.dag, detail.summary.uid, "/data");
  const refetchInterval = detail.held ? REFRESH_MS : (false as const);
  const [chosen, setChosen] = useState("");
  const { data, error } = useQuery({
    queryKey: ["data", detail.summary.uid, detail.status.state],
    queryFn: () => get<DataPage>(path),
    placeholderData: (before) => before,
    refetchInterval,
  });
  if (error && !data) return <Problem error={error} />;
  if (!data) return <Loading />;
  const told = data.instances.some((each) => each.samples !== null || each.read !== null);
  return (
    <>
      {told ? <Reading data={data} onFiles={setChosen} /> : <Untold />}
      <Files chosen={chosen} data={data} onChoose={setChosen} path={`${path}/files`} refetchInterval={refetchInterval} uid={detail.summary.uid} />
      {data.stalls.length > 0 && (
        <Section title="Stalls">
          <Stalls data={data} />
        </Section>
      )}
    </>
  );
}

function Untold() {
  return (
    <Box color="fg.muted" mb={6}>
      <Text>The script has not told what it reads. It does so with the lines of progress that it writes:</Text>
      <Code as="pre" display="block" mt={2} overflowX="auto" p={3} tabIndex={0} whiteSpace="pre">
        {'report(step=step, samples=seen, files=[{"name": "part-03.npz", "read": 4096, "total": 50000}])'}
      </Code>
    </Box>
  );
}

function Reading({ data, onFiles }: { data: DataPage; onFiles: (instance: string) => void }) {
  const { imbalance } = data;
  const waiting = data.instances.filter((each) => each.stalled_seconds !== null);
  const stalled = data.instances.reduce((sum, each) => sum + each.stall_seconds, 0);
  const stalls = data.instances.reduce((sum, each) => sum + each.stall_count, 0);
  return (
    <>
      {waiting.length > 0 && (
        <Alert.Root mb={4} role="alert" status="warning">
          <Alert.Indicator />
          <Alert.Content>
            <Alert.Title>
              {waiting.length === 1 ? "1 instance waits" : `${waiting.length} instances wait`}: neither files, samples nor steps move
            </Alert.Title>
            <Alert.Description wordBreak="break-word">
              {ordered(waiting, "stalled")
                .slice(0, MOST_NAMED)
                .map((each) => `${nameOf(each)} for ${duration(each.stalled_seconds)}${each.step === null ? "" : ` at step ${quantity(each.step)}`}`)
                .join(", ")}
              {waiting.length > MOST_NAMED && ` and ${waiting.length - MOST_NAMED} more`}
            </Alert.Description>
          </Alert.Content>
        </Alert.Root>
      )}
      <Flex columnGap={8} flexWrap="wrap" mb={5} rowGap={2}>
        {data.samples !== null && <Fact name="Samples">{quantity(data.samples)}</Fact>}
        {data.samples_per_second !== null && <Fact name="Samples/s">{compact(data.samples_per_second)}</Fact>}
        {data.read_per_second !== null && <Fact name="Read/s">{compact(data.read_per_second)}</Fact>}
        {imbalance && (
          <Fact name="Imbalance">
            {imbalanceText(imbalance)}
          </Fact>
        )}
        <Fact name="Stalls">{stalls === 0 ? "none" : `${stalls}, ${duration(stalled)} in all`}</Fact>
      </Flex>
      {imbalance && (
        <Section title="Samples per rank">
          <Bars data={data} imbalance={imbalance} />
        </Section>
      )}
      <Instances data={data} onFiles={onFiles} />
    </>
  );
}

function imbalanceText({ least, most, percent }: Imbalance): string {
  return `${percent.toFixed(1)} %${percent >= 0.05 ? `: ${most} most, ${least} least` : ""}`;
}

function summaryOf(told: readonly InstanceData[]): string {
  const by = [...told].sort((one, other) => one.samples! - other.samples!);
  if (told.length === 1) return `Samples of ${nameOf(by[0]!)}: ${quantity(by[0]!.samples)}`;
  return `Samples of ${told.length} ranks, ${nameOf(by.at(-1)!)} has the most, ${nameOf(by[0]!)} the fewest`;
}

interface RankBars {
  told: readonly InstanceData[];
  /** Samples of a bar of full length. */
  most: number;
  /** Of all ranks. */
  mean: number;
}

/** The ranks of each role, all along the same axis, so that roles can be compared too. */
function Bars({ data, imbalance: { mean } }: { data: DataPage; imbalance: Imbalance }) {
  const told = data.instances.filter((each) => each.samples !== null);
  const most = Math.max(1, ...told.map((each) => each.samples!));
  const roles = [...new Set(told.map(({ role }) => role))].map((name) => ({
    name,
    ranks: told.filter(({ role }) => role === name),
  }));
  const Ranks = told.length <= 16 ? FewBars : ManyBars;
  return (
    <Box borderRadius="md" borderWidth="1px" overflowX="auto" p={3} tabIndex={0}>
      <Box columnGap={3} display="grid" fontSize="sm" gridTemplateColumns="auto 1fr auto" rowGap={1}>
        {roles.map(({ name, ranks }) => (
          <Fragment key={name}>
            {roles.length > 1 && (
              <Text color="fg.muted" gridColumn="1 / -1">
                {name}
                {data.imbalances[name] && `: imbalance ${imbalanceText(data.imbalances[name])}`}
              </Text>
            )}
            <Box alignItems="center" aria-label={summaryOf(ranks)} display="grid" fontVariantNumeric="tabular-nums" gridColumn="1 / -1" gridTemplateColumns="subgrid" mb={roles.length > 1 ? 2 : 0} role="img">
              <Ranks mean={mean} most={most} told={ranks} />
            </Box>
          </Fragment>
        ))}
      </Box>
      <Text color="fg.muted" fontSize="xs" mt={2}>
        {`Dashed: the mean of all, ${quantity(Math.round(mean))}. `}
        {told.some((each) => each.stalled_seconds !== null) && "Orange: waits."}
      </Text>
    </Box>
  );
}

/** Of few ranks: a line for each, with its name and its number. */
function FewBars({ mean, most, told }: RankBars) {
  return told.map((each) => [
    <Text key="name">{nameOf(each)}</Text>,
    <Box key="bar" position="relative" py="3px">
      <Box bg={each.stalled_seconds === null ? "blue.solid" : "orange.solid"} borderRightRadius="sm" h="1.1rem" minW="1px" w={`${(100 * each.samples!) / most}%`} />
      <Box borderColor="fg" borderInlineStartStyle="dashed" borderInlineStartWidth="1px" bottom={0} left={`${(100 * mean) / most}%`} position="absolute" top={0} />
    </Box>,
    <Text key="number" textAlign="end">
      {quantity(each.samples)}{" "}
      <Text as="span" color="fg.muted" display={{ base: "none", md: "inline" }}>
        {signed(deviation(each.samples, mean))}
      </Text>
    </Text>,
  ]);
}

/** A bar for each rank from zero upwards, and the mean as a line through all of them. */
function ManyBars({ mean, most, told }: RankBars) {
  return (
    <Box gridColumn="1 / -1">
      <Box h="9rem" minW={`${told.length * 2}px`} position="relative">
        <Flex align="flex-end" gap={told.length > 128 ? 0 : "2px"} h="100%">
          {told.map((each) => (
            <Box
              bg={each.stalled_seconds === null ? "blue.solid" : "orange.solid"}
              flex="1"
              h={`${(100 * each.samples!) / most}%`}
              key={nameOf(each)}
              maxW="12rem"
              minH="1px"
              minW="1px"
              title={`${nameOf(each)}: ${quantity(each.samples)} ${signed(deviation(each.samples, mean))}${each.stalled_seconds === null ? "" : ", waits"}`}
            />
          ))}
        </Flex>
        <Box borderColor="fg" borderTopStyle="dashed" borderTopWidth="1px" bottom={`${(100 * mean) / most}%`} left={0} position="absolute" right={0} />
      </Box>
      <Text color="fg.muted" fontSize="xs" mt={1}>
        {nameOf(told[0]!)}
        {told.length > 1 && ` to ${nameOf(told.at(-1)!)}`}
      </Text>
    </Box>
  );
}

function Instances({ data, onFiles }: { data: DataPage; onFiles: (instance: string) => void }) {
  const [order, setOrder] = useState<Order>("rank");
  const rows = ordered(data.instances, order);
  const select = (
    <NativeSelect.Root size="sm" w="13rem">
      <NativeSelect.Field aria-label="Order" onChange={(event) => setOrder(event.currentTarget.value as Order)} value={order}>
        {Object.entries(ORDERS).map(([name, label]) => (
          <option key={name} value={name}>
            {label}
          </option>
        ))}
      </NativeSelect.Field>
      <NativeSelect.Indicator />
    </NativeSelect.Root>
  );
  return (
    <Section aside={rows.length > 1 && select} title="Ranks">
      <Table.ScrollArea borderRadius="md" borderWidth="1px" maxH="50vh" position="relative" tabIndex={0}>
        <Table.Root size="sm" stickyHeader>
          <Table.Header>
            <Table.Row>
              {["Instance", "Rank", "Node", "State", "Step", "Samples", "to mean", "Samples/s", "Read", "Read/s", "Files", "Stalls"].map((name) => (
                <Table.ColumnHeader key={name} whiteSpace="nowrap">
                  {name}
                </Table.ColumnHeader>
              ))}
            </Table.Row>
          </Table.Header>
          <Table.Body>
            {rows.slice(0, MOST_ROWS).map((each) => (
              <Row each={each} key={nameOf(each)} mean={data.imbalance?.mean} onFiles={onFiles} />
            ))}
          </Table.Body>
        </Table.Root>
      </Table.ScrollArea>
      {rows.length > MOST_ROWS && (
        <Text color="fg.muted" fontSize="xs" mt={1}>
          The first {MOST_ROWS} of {rows.length} in this order.
        </Text>
      )}
    </Section>
  );
}

function Row({ each, mean, onFiles }: { each: InstanceData; mean: number | undefined; onFiles: (instance: string) => void }) {
  const name = nameOf(each);
  const numbers = [
    each.step === null ? "" : quantity(each.step),
    each.samples === null ? "" : quantity(each.samples),
    signed(deviation(each.samples, mean)),
    compact(each.samples_per_second),
    compact(each.read),
    compact(each.read_per_second),
  ];
  return (
    <Table.Row>
      <Table.Cell fontWeight="medium" whiteSpace="nowrap">
        {name}
      </Table.Cell>
      <Table.Cell>{each.rank ?? ""}</Table.Cell>
      <Table.Cell>{each.node}</Table.Cell>
      <Table.Cell whiteSpace="nowrap">
        {each.stalled_seconds === null ? (
          <Badge colorPalette={colourOfInstance(each.state)}>{each.state}</Badge>
        ) : (
          <Badge colorPalette="orange">waits for {duration(each.stalled_seconds)}</Badge>
        )}
      </Table.Cell>
      {numbers.map((text, column) => (
        <Table.Cell fontVariantNumeric="tabular-nums" key={column} whiteSpace="nowrap">
          {text}
        </Table.Cell>
      ))}
      <Table.Cell whiteSpace="nowrap">
        {each.files_known > 0 && (
          <Link as="button" onClick={() => onFiles(name)} textDecoration="underline">
            {quantity(each.files_done)} of {quantity(each.files_known)}
            <VisuallyHidden> files of {name}</VisuallyHidden>
          </Link>
        )}
      </Table.Cell>
      <Table.Cell whiteSpace="nowrap">{each.stall_count > 0 && `${each.stall_count}, ${duration(each.stall_seconds)}`}</Table.Cell>
    </Table.Row>
  );
}

function Files({
  chosen,
  data,
  onChoose,
  path,
  refetchInterval,
  uid,
}: {
  chosen: string;
  data: DataPage;
  onChoose: (instance: string) => void;
  path: string;
  refetchInterval: number | false;
  uid: string;
}) {
  const [text, setText] = useState("");
  const of = data.instances.find((each) => nameOf(each) === chosen);
  const found = useQuery({
    queryKey: ["files", uid, of ? chosen : "", text],
    queryFn: () => get<FilePage>(path, { role: of?.role, index: of?.index, text, limit: MOST_FILES }),
    placeholderData: (before) => before,
    refetchInterval,
  });
  if (found.error && !found.data) return <Problem error={found.error} />;
  const files = found.data?.files ?? [];
  if (files.length === 0 && !text && !of) return null;
  const filter = (
    <Flex flexWrap="wrap" gap={2}>
      <NativeSelect.Root size="sm" w="10rem">
        <NativeSelect.Field aria-label="Files of" onChange={(event) => onChoose(event.currentTarget.value)} value={of ? chosen : ""}>
          <option value="">All instances</option>
          {data.instances.map((each) => (
            <option key={nameOf(each)} value={nameOf(each)}>
              {nameOf(each)}
            </option>
          ))}
        </NativeSelect.Field>
        <NativeSelect.Indicator />
      </NativeSelect.Root>
      <Input
        aria-label="Files whose names contain"
        maxLength={200}
        onChange={(event) => setText(event.currentTarget.value)}
        placeholder="Name contains"
        size="sm"
        value={text}
        w="12rem"
      />
    </Flex>
  );
  return (
    <Section aside={filter} title="Files">
      <Table.ScrollArea borderRadius="md" borderWidth="1px" maxH="50vh" position="relative" tabIndex={0}>
        <Table.Root size="sm" stickyHeader>
          <Table.Header>
            <Table.Row>
              {["File", "Instance", "Node", "Read", "Progress"].map((name) => (
                <Table.ColumnHeader key={name}>{name}</Table.ColumnHeader>
              ))}
            </Table.Row>
          </Table.Header>
          <Table.Body>
            {files.map((each) => {
              const part = fraction(each.read, each.total);
              const told = each.read === null ? "not told" : `${compact(each.read)}${each.total === null ? "" : ` of ${compact(each.total)}`}`;
              return (
                <Table.Row key={`${nameOf(each)} ${each.name}`}>
                  <Table.Cell fontFamily="mono" fontSize="xs" minW="10rem" wordBreak="break-all">
                    {each.name}
                  </Table.Cell>
                  <Table.Cell whiteSpace="nowrap">{nameOf(each)}</Table.Cell>
                  <Table.Cell>{each.node}</Table.Cell>
                  <Table.Cell color={each.read === null ? "fg.muted" : undefined} fontVariantNumeric="tabular-nums" whiteSpace="nowrap">
                    {told}
                  </Table.Cell>
                  <Table.Cell minW="8rem" w="20%">
                    {part !== null && (
                      <Progress.Root aria-label={`Read of ${each.name}`} colorPalette={part === 1 ? "green" : "blue"} max={1} size="xs" value={part}>
                        <Progress.Track>
                          <Progress.Range />
                        </Progress.Track>
                      </Progress.Root>
                    )}
                  </Table.Cell>
                </Table.Row>
              );
            })}
          </Table.Body>
        </Table.Root>
      </Table.ScrollArea>
      {(files.length === 0 || found.data?.more) && (
        <Text color="fg.muted" fontSize="xs" mt={1}>
          {files.length === 0 ? "No file's name contains that." : `The first ${MOST_FILES}: choose an instance or a name to see others.`}
        </Text>
      )}
    </Section>
  );
}

function Stalls({ data }: { data: DataPage }) {
  return (
    <Table.ScrollArea borderRadius="md" borderWidth="1px" maxH="40vh" position="relative" tabIndex={0}>
      <Table.Root size="sm" stickyHeader>
        <Table.Header>
          <Table.Row>
            {["Instance", "Since", "How long", "At step"].map((name) => (
              <Table.ColumnHeader key={name}>{name}</Table.ColumnHeader>
            ))}
          </Table.Row>
        </Table.Header>
        <Table.Body>
          {data.stalls.map((each) => (
            <Table.Row key={nameOf(each) + each.started_at}>
              <Table.Cell whiteSpace="nowrap">{nameOf(each)}</Table.Cell>
              <Table.Cell whiteSpace="nowrap">{moment(each.started_at)}</Table.Cell>
              <Table.Cell whiteSpace="nowrap">
                {duration(each.seconds)}
                {!each.over && ", still"}
              </Table.Cell>
              <Table.Cell>{each.step === null ? "" : quantity(each.step)}</Table.Cell>
            </Table.Row>
          ))}
        </Table.Body>
      </Table.Root>
    </Table.ScrollArea>
  );
}
