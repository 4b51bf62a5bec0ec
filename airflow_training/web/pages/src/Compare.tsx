// Several runs beside each other: their curves in one chart each, and where they stand and differ.
import { Box, Button, CloseButton, Flex, Link as StyledLink, SimpleGrid, Table, Text } from "@chakra-ui/react";
import { useQueries } from "@tanstack/react-query";
import { useEffect, useState, type ReactNode } from "react";
import { Link, useSearchParams } from "react-router-dom";

import { get, ofTraining, type ConfigurationAnswer, type Detail, type SeriesPage } from "./api.ts";
import { Chart } from "./Chart.tsx";
import { AXES, ChartControls, useChosen, type Chosen } from "./ChartControls.tsx";
import { differences, labelsOf, valuesOf, type RunName } from "./compared.ts";
import { hasSamples, having, pointsOf, smoothed, type Curve } from "./curves.ts";
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
}

/** A run is told by its first instance that has the metric: the chief, or rank 0. */
export function Compare({ runs }: { runs: readonly RunName[] }) {
  const [chosen, choose] = useChosen();
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  const [samples, setSamples] = useState(false);
  const details = useQueries({
    queries: runs.map(({ dag, uid }) => ({
      queryKey: ["detail", uid],
      queryFn: () => get<Detail>(ofTraining(dag, uid)),
      refetchInterval: (query: { state: { data?: Detail } }) => (query.state.data?.held ? REFRESH_MS : (false as const)),
    })),
  });
  const held = (place: number) => (details[place]?.data?.held ? REFRESH_MS : (false as const));
  const names = useQueries({
    queries: runs.map(({ dag, uid }, place) => ({
      queryKey: ["names", uid],
      queryFn: () => get<SeriesPage>(ofTraining(dag, uid, "/series")),
      enabled: details[place]?.data !== undefined,
      refetchInterval: held(place),
    })),
  });
  const waits = details.some((each, place) => each.isPending || (each.data && names[place]!.isPending));
  const found = details.flatMap(({ data }, place) => (data ? [{ detail: data, label: "", place }] : []));
  const labels = labelsOf(found.map(({ detail }) => detail.summary));
  const compared: Compared[] = found.map((each, number) => ({ ...each, label: labels[number]! }));
  const metrics = ordered([...new Set(names.flatMap((each) => each.data?.names ?? []))]);
  if (waits && metrics.length === 0) return <Loading />;
  return (
    <Box>
      <Missing problems={details.map((each) => (each.data ? null : (each.error?.message ?? null)))} runs={runs} />
      {metrics.length > 0 && <ChartControls chosen={chosen} onChoose={choose} samples={samples} />}
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
          />
        ))}
      </SimpleGrid>
      {compared.length > 0 && <Facts compared={compared} metrics={metrics} runs={runs} />}
    </Box>
  );
}

function useWithout(runs: readonly RunName[]) {
  const [, setQuery] = useSearchParams();
  return (uid: string) => {
    const rest = runs.filter((each) => each.uid !== uid).map((each) => `${each.dag}/${each.uid}`);
    setQuery(rest.length > 0 ? { compare: rest.join(",") } : {});
  };
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

function useFirst(compared: readonly Compared[], name: string) {
  return useQueries({
    queries: compared.map(({ detail: { held, summary } }) => ({
      queryKey: ["first", summary.uid, name],
      queryFn: () => get<SeriesPage>(ofTraining(summary.dag, summary.uid, "/series"), { name, points: 1000, first: 1 }),
      refetchInterval: held ? REFRESH_MS : (false as const),
    })),
  }).map((answer) => answer.data?.series[0]);
}

function Metric({
  chosen: { axis, weight, logarithmic },
  compared,
  hidden,
  name,
  onHide,
  onSamples,
}: {
  chosen: Chosen;
  compared: readonly Compared[];
  hidden: ReadonlySet<string>;
  name: string;
  onHide: (label: string, hidden: boolean) => void;
  onSamples: () => void;
}) {
  const series = useFirst(compared, name);
  const samples = series.some((each) => each && hasSamples(each));
  useEffect(() => {
    if (samples) onSamples();
  }, [samples]);
  const curves = compared.flatMap(({ detail, label, place }, number): Curve[] => {
    const first = series[number];
    return first ? [{ kind: "line", label, place, points: pointsOf(first, axis, seconds(detail.status.started_at) ?? 0) }] : [];
  });
  return (
    <Box as="figure" bg="bg.panel" borderRadius="md" borderWidth="1px" data-metric={name} minW={0} p={3}>
      <Text as="figcaption" fontSize="sm" fontWeight="medium" mb={1} overflowWrap="anywhere">
        {name}
      </Text>
      <Chart
        axis={AXES[axis]}
        clock={axis === "time"}
        curves={smoothed(curves, weight)}
        hidden={hidden}
        logarithmic={logarithmic}
        marks={[]}
        name={name}
        onHide={onHide}
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
  const cells = useFirst(compared, name).map((series) => {
    const told = series && valuesOf(series);
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
