// Several runs beside each other: their curves in one chart each, and where they stand and differ.
import { Box, Button, CloseButton, Flex, Link as StyledLink, SimpleGrid, Table, Text } from "@chakra-ui/react";
import { useQueries, type QueryFunctionContext } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState, type ReactNode } from "react";
import { Link, useSearchParams } from "react-router-dom";

import { get, ofTraining, type ConfigurationAnswer, type Detail, type SeriesAnswer, type SeriesPage } from "./api.ts";
import { Chart } from "./Chart.tsx";
import { AXES, ChartControls, useChosen, type Chosen } from "./ChartControls.tsx";
import { differences, labelsOf, partsOf, valuesOf, type RunName } from "./compared.ts";
import { extentOf, hasSamples, having, pointsOf, rangeAfter, smoothed, type Curve, type Range } from "./curves.ts";
import { comparing, nameOf } from "./listing.ts";
import { ordered } from "./metricOrder.ts";
import { strokeOf, usePalette } from "./palette.ts";
import { Loading, Section, StateBadge, useNow } from "./parts.tsx";
import { runPage } from "./runPage.ts";
import { duration, moment, quantity, seconds, valueText } from "./words.ts";

const REFRESH_MS = 5000;
const NONE = "–";

interface Compared {
  detail: Detail;
  label: string;
  /** Whose colour it has, from 0: it keeps that, whichever others are removed or cannot be read. */
  place: number;
  /** Of its metrics, by their names. */
  series: ReadonlyMap<string, SeriesAnswer>;
}

const NO_SERIES: ReadonlyMap<string, SeriesAnswer> = new Map();

/** What a run has told by now, and by which names. */
interface Metrics {
  names: readonly string[];
  series: readonly SeriesAnswer[];
}

/** The curves of all metrics of a run, by as few requests as the server takes; `known`: names of the answer before. */
async function metricsOf(path: string, known: readonly string[] | undefined): Promise<Metrics> {
  const first = known?.length ? known : (await get<SeriesPage>(path)).names;
  const pages = await Promise.all(partsOf(first).map((name) => get<SeriesPage>(path, { name, points: 1000, first: 1 })));
  // of a metric that is new the name has come, by which the next request asks for its curve
  return { names: pages[0]?.names ?? first, series: pages.flatMap((each) => each.series) };
}

/** A run is told by its first instance that has the metric: the chief, or rank 0. */
export function Compare({ runs }: { runs: readonly RunName[] }) {
  const [chosen, choose] = useChosen();
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  const [samples, setSamples] = useState(false);
  // of all charts, as the cursor is
  const [range, setRange] = useState<Range | null>(null);
  const details = useQueries({
    queries: runs.map(({ dag, uid }) => ({
      queryKey: ["detail", uid],
      queryFn: () => get<Detail>(ofTraining(dag, uid)),
      refetchInterval: (query: { state: { data?: Detail } }) => (query.state.data?.held ? REFRESH_MS : (false as const)),
    })),
  });
  const told = useQueries({
    queries: runs.map(({ dag, uid }, place) => ({
      queryKey: ["compared", uid],
      queryFn: ({ client, queryKey }: QueryFunctionContext) =>
        metricsOf(ofTraining(dag, uid, "/series"), client.getQueryData<Metrics>(queryKey)?.names),
      enabled: details[place]?.data !== undefined,
      refetchInterval: details[place]?.data?.held ? REFRESH_MS : (false as const),
    })),
  });
  const waits = details.some((each, place) => each.isPending || (each.data && told[place]!.isPending));
  const found = details.flatMap(({ data }, place) => (data ? [{ detail: data, label: "", place, series: seriesOf(told[place]!.data) }] : []));
  const labels = labelsOf(found.map(({ detail }) => detail.summary));
  const compared: Compared[] = found.map((each, number) => ({ ...each, label: labels[number]! }));
  const metrics = ordered([...new Set(told.flatMap((each) => each.data?.series.map(({ name }) => name) ?? []))]);
  if (waits && metrics.length === 0) return <Loading />;
  const onChoose = (next: Chosen) => {
    if (next.axis !== chosen.axis) setRange(null);
    choose(next);
  };
  return (
    <Box>
      <Missing problems={details.map((each) => (each.data ? null : (each.error?.message ?? null)))} runs={runs} />
      {metrics.length > 0 && <ChartControls chosen={chosen} onChoose={onChoose} samples={samples} />}
      {compared.length > 0 && metrics.length === 0 && <Text color="fg.muted">None of these runs has told a metric.</Text>}
      <SimpleGrid alignItems="start" columns={{ base: 1, xl: Math.min(2, metrics.length) }} gap={6} mb={6}>
        {metrics.map((name) => (
          <Metric
            chosen={chosen}
            compared={compared}
            hidden={hidden}
            key={name}
            name={name}
            onHide={(label, hides) => setHidden((before) => having(before, [label], hides))}
            onSamples={() => setSamples(true)}
            onWindow={setRange}
            range={range}
          />
        ))}
      </SimpleGrid>
      {compared.length > 0 && <Facts compared={compared} metrics={metrics} runs={runs} />}
    </Box>
  );
}

const SERIES = new WeakMap<Metrics, ReadonlyMap<string, SeriesAnswer>>();

/** The same map as long as the answer is the same. */
function seriesOf(told: Metrics | undefined): ReadonlyMap<string, SeriesAnswer> {
  if (!told) return NO_SERIES;
  const found = SERIES.get(told) ?? new Map(told.series.map((each) => [each.name, each]));
  SERIES.set(told, found);
  return found;
}

/** The same list as before, as long as all in it are. */
function useSame<T>(values: readonly T[]): readonly T[] {
  const kept = useRef(values);
  if (kept.current.length !== values.length || values.some((each, place) => each !== kept.current[place])) kept.current = values;
  return kept.current;
}

function useWithout(runs: readonly RunName[]) {
  const [, setQuery] = useSearchParams();
  return (uid: string) => setQuery((before) => comparing(before, runs.filter((each) => each.uid !== uid).map(nameOf)));
}

/** Those that cannot be read: each a line, the others are compared all the same. */
function Missing({ problems, runs }: { problems: readonly (string | null)[]; runs: readonly RunName[] }) {
  const remove = useWithout(runs);
  return runs.map(({ uid }, place) => {
    const problem = problems[place];
    return problem ? (
      <Flex align="center" bg="red.subtle" borderRadius="md" color="red.fg" fontSize="sm" gap={2} key={uid} mb={3} px={3} py={1} role="alert">
        <Text flex={1} overflowWrap="anywhere">
          {uid}: {problem}
        </Text>
        <Button onClick={() => remove(uid)} size="xs" variant="ghost">
          Remove
        </Button>
      </Flex>
    ) : null;
  });
}

function Metric({
  chosen: { axis, weight, logarithmic },
  compared,
  hidden,
  name,
  onHide,
  onSamples,
  onWindow,
  range,
}: {
  chosen: Chosen;
  compared: readonly Compared[];
  hidden: ReadonlySet<string>;
  name: string;
  onHide: (label: string, hidden: boolean) => void;
  onSamples: () => void;
  onWindow: (range: Range | null) => void;
  range: Range | null;
}) {
  const drawn = compared.flatMap(({ detail, label, place, series }) => {
    const own = series.get(name);
    return own ? [{ label, own, place, start: seconds(detail.status.started_at) ?? 0 }] : [];
  });
  const samples = drawn.some(({ own }) => hasSamples(own));
  useEffect(() => {
    if (samples) onSamples();
  }, [samples]);
  // drawn anew where one of them has changed, not whenever another metric or the time does
  const curves = useMemo(
    () => drawn.map(({ label, own, place, start }): Curve => ({ kind: "line", label, place, points: pointsOf(own, axis, start) })),
    [axis, useSame(drawn.flatMap(({ label, own, place, start }) => [label, own, place, start]))],
  );
  const lines = useMemo(() => smoothed(curves, weight), [curves, weight]);
  return (
    <Box as="figure" bg="bg.panel" borderRadius="md" borderWidth="1px" data-metric={name} minW={0} p={3}>
      <Flex align="center" as="figcaption" justify="space-between" mb={1}>
        <Text fontSize="sm" fontWeight="medium" overflowWrap="anywhere">
          {name}
        </Text>
        {range && (
          <Button onClick={() => onWindow(null)} size="2xs" variant="ghost">
            All
          </Button>
        )}
      </Flex>
      <Chart
        axis={AXES[axis]}
        clock={axis === "time"}
        curves={lines}
        hidden={hidden}
        logarithmic={logarithmic}
        marks={[]}
        name={name}
        onHide={onHide}
        onKey={(key) => {
          const all = extentOf(curves.map((each) => each.points));
          const next = all ? rangeAfter(key, range, all) : undefined;
          if (next !== undefined) onWindow(next);
          return next !== undefined;
        }}
        onWindow={onWindow}
        range={range}
      />
    </Box>
  );
}

/** A column for each run: where it stands, what its metrics were, and what it was configured with that others were not. */
function Facts({ compared, metrics, runs }: { compared: readonly Compared[]; metrics: readonly string[]; runs: readonly RunName[] }) {
  const palette = usePalette();
  const remove = useWithout(runs);
  const now = useNow(compared.some(({ detail }) => detail.held));
  const configured = useQueries({
    queries: compared.map(({ detail: { summary } }) => ({
      queryKey: ["configuration", summary.uid],
      queryFn: () => get<ConfigurationAnswer>(ofTraining(summary.dag, summary.uid, "/configuration")),
    })),
  });
  const differing = differences(configured.map((each) => each.data));
  const of = (what: (detail: Detail) => ReactNode) => compared.map(({ detail }) => what(detail));
  const took = ({ status }: Detail) => {
    const started = seconds(status.started_at);
    return started === null ? NONE : duration((seconds(status.finished_at) ?? now / 1000) - started);
  };
  return (
    <Section title="Runs">
      <Table.ScrollArea borderRadius="md" borderWidth="1px" tabIndex={0}>
        <Table.Root css={{ "& td, & th": { verticalAlign: "top" } }} size="sm">
          <Table.Header>
            <Table.Row>
              <Table.ColumnHeader {...NAMES} />
              {compared.map(({ detail: { summary }, label, place }) => (
                <Table.ColumnHeader key={summary.uid} minW="9rem">
                  <Flex align="center" gap={2}>
                    <Box aria-hidden bg={strokeOf(palette, place).colour} borderRadius="full" flexShrink={0} h="10px" w="10px" />
                    <StyledLink asChild minW={0} overflowWrap="anywhere" textDecoration="underline" whiteSpace="normal">
                      <Link to={runPage(summary)}>{label}</Link>
                    </StyledLink>
                    {runs.length > 1 && <CloseButton aria-label={`Leave out ${label}`} ml="auto" onClick={() => remove(summary.uid)} size="2xs" />}
                  </Flex>
                </Table.ColumnHeader>
              ))}
            </Table.Row>
          </Table.Header>
          <Table.Body>
            <Fields cells={of(({ summary }) => <StateBadge phrase={summary.phrase} size="sm" />)} name="State" />
            <Fields cells={of(({ progress }) => (progress.step === null ? NONE : quantity(progress.step)))} name="Step" />
            <Fields cells={of(took)} name="Took" />
            <Fields cells={of(({ summary }) => moment(summary.submitted_at))} name="Submitted" />
            {metrics.map((name) => (
              <MetricRow compared={compared} key={name} name={name} />
            ))}
            <Part columns={compared.length + 1}>
              {differing.length > 0
                ? "Configured differently"
                : configured.some((each) => each.isPending)
                  ? "Reading how they were configured"
                  : "Configured alike"}
            </Part>
            {differing.map(([field, values]) => (
              <Fields cells={values.map((each) => each ?? NONE)} key={field} mono name={field} />
            ))}
          </Table.Body>
        </Table.Root>
      </Table.ScrollArea>
      <Text color="fg.muted" fontSize="xs" mt={2}>
        Of each metric: the newest value, and below it the least and the greatest one, of the run's first instance that tells it.
      </Text>
    </Section>
  );
}

const NAMES = { bg: "bg.panel", left: 0, maxW: { base: "8rem", md: "18rem" }, minW: "8rem", position: "sticky", whiteSpace: "normal", zIndex: 1 } as const;

function Fields({ cells, mono = false, name }: { cells: readonly ReactNode[]; mono?: boolean; name: string }) {
  return (
    <Table.Row>
      <Table.Cell {...NAMES} as="th" color="fg.muted" fontWeight="normal" overflowWrap="anywhere" textAlign="start">
        {name}
      </Table.Cell>
      {cells.map((cell, place) => (
        <Table.Cell fontFamily={mono ? "mono" : undefined} fontSize={mono ? "xs" : undefined} fontVariantNumeric="tabular-nums" key={place} overflowWrap="anywhere" whiteSpace="normal">
          {cell}
        </Table.Cell>
      ))}
    </Table.Row>
  );
}

function Part({ children, columns }: { children: ReactNode; columns: number }) {
  return (
    <Table.Row bg="bg.subtle">
      <Table.Cell colSpan={columns} fontWeight="medium">
        {children}
      </Table.Cell>
    </Table.Row>
  );
}

function MetricRow({ compared, name }: { compared: readonly Compared[]; name: string }) {
  const cells = compared.map(({ series }) => {
    const own = series.get(name);
    const told = own && valuesOf(own);
    if (!told) return NONE;
    return (
      <>
        {valueText(name, told.last)}
        <Text color="fg.muted" fontSize="xs" whiteSpace="nowrap">
          {valueText(name, told.least)} to {valueText(name, told.greatest)}
        </Text>
      </>
    );
  });
  return <Fields cells={cells} name={name} />;
}
