// The trials of a tuning beside each other: what each tried, how it stands, and which is the best so far.
import { Badge, Box, Button, Flex, Heading, Link as StyledLink, Table, Text } from "@chakra-ui/react";
import { useQuery } from "@tanstack/react-query";
import { Link, useSearchParams } from "react-router-dom";

import { get } from "./api.ts";
import { MOST_RUNS } from "./compared.ts";
import { comparing, nameOf } from "./listing.ts";
import { goalOf, ordered } from "./metricOrder.ts";
import { Choice, isStandalone, Loading, Problem, StateBadge, useTitle } from "./parts.tsx";
import { newTrainingPage, runPage } from "./runPage.ts";
import type { TrialAnswer, TuningPage } from "./schema.ts";
import { valueText } from "./words.ts";

const REFRESH_MS = 5000;
const NONE = "–";

export function Tuning({ name }: { name: string }) {
  const [query, setQuery] = useSearchParams();
  const metric = query.get("metric") ?? "";
  const goal = query.get("goal") === "min" || query.get("goal") === "max" ? query.get("goal")! : goalOf(metric);
  const { data, error } = useQuery({
    queryKey: ["tuning", name, metric, goal],
    queryFn: () => get<TuningPage>(`tunings/${encodeURIComponent(name)}`, { metric, goal }),
    refetchInterval: (asked) => (asked.state.data && asked.state.data.trials.length >= asked.state.data.planned && asked.state.data.trials.every(({ summary }) => summary.finished_at !== null) ? false : REFRESH_MS),
    placeholderData: (before) => before,
    // the first run may not be there yet
    retry: 5,
  });
  const set = (values: Record<string, string>) =>
    setQuery(
      (before) => {
        const next = new URLSearchParams(before);
        for (const [key, value] of Object.entries(values)) next.set(key, value);
        return next;
      },
      { replace: true },
    );
  const job = data?.trials[0]?.summary.job ?? name;
  useTitle(`Trials of ${job}`);
  const metrics = ordered(data?.metrics ?? []);
  const params = Object.keys(data?.trials[0]?.params ?? {});
  const best = data?.trials.find(({ number }) => number === data.best);
  const inOrder = sorted(data?.trials ?? [], goal);
  const compared = inOrder.slice(0, MOST_RUNS).map(({ summary }) => nameOf(summary));
  const missing = query.get("missing") ?? "";
  const over = data?.trials.filter(({ summary }) => summary.finished_at !== null).length ?? 0;
  return (
    <Box p={{ base: 2, md: 4 }}>
      <StyledLink asChild variant="underline">
        <Link to={isStandalone() ? "/" : "/plugin/trainings"}>All trainings</Link>
      </StyledLink>
      <Heading as="h1" mt={2} overflowWrap="anywhere" size="lg">
        Trials of {job}
      </Heading>
      {missing && <Problem error={new Error(missing)} />}
      {error && !data && <Problem error={error} />}
      {!data && !error && <Loading />}
      {data && (
        <>
          <Flex align="center" flexWrap="wrap" gap={3} my={3}>
            <Text color="fg.muted" fontSize="sm">
              {over} of {data.planned} trials have ended.{data.trials.length < data.planned && ` ${data.planned - data.trials.length} have no run yet, or one that was removed.`}
            </Text>
            <Choice
              label="Compare by the metric"
              onChange={(value) => set({ metric: value, goal: goalOf(value) })}
              options={[...(metrics.includes(metric) ? [] : [[metric, metric === "" ? "choose a metric" : `${metric} (not told yet)`] as const]), ...metrics.map((each) => [each, each] as const)]}
              value={metric}
              w="14rem"
            />
            <Choice
              label="What is better"
              onChange={(value) => set({ goal: value })}
              options={[
                ["max", "more is better"],
                ["min", "less is better"],
              ]}
              value={goal}
              w="11rem"
            />
            <Button asChild={compared.length > 1} disabled={compared.length < 2} size="sm" variant="outline">
              {compared.length > 1 ? <Link to={`?${comparing(new URLSearchParams(), compared).toString()}`}>Compare {compared.length === data.trials.length ? "all" : `${compared.length} of them`}</Link> : "Compare"}
            </Button>
            {best && (
              <Button asChild size="sm" variant="outline">
                <Link to={newTrainingPage({ run: nameOf(best.summary) })}>New training with the best</Link>
              </Button>
            )}
          </Flex>
          <Table.ScrollArea borderRadius="md" borderWidth="1px" tabIndex={0}>
            <Table.Root aria-label="Trials" size="sm">
              <Table.Header>
                <Table.Row>
                  {["Trial", ...params, "State", ...(metric === "" ? [] : [metric])].map((each, place) => (
                    <Table.ColumnHeader key={place}>{each}</Table.ColumnHeader>
                  ))}
                </Table.Row>
              </Table.Header>
              <Table.Body>
                {inOrder.map((each) => (
                  <Table.Row bg={each === best ? "green.subtle" : undefined} key={each.number}>
                    <Table.Cell whiteSpace="nowrap">
                      <StyledLink asChild textDecoration="underline">
                        <Link to={runPage(each.summary)}>{each.number + 1}</Link>
                      </StyledLink>
                      {each === best && (
                        <Badge colorPalette="green" ml={2}>
                          best
                        </Badge>
                      )}
                    </Table.Cell>
                    {params.map((param) => (
                      <Table.Cell fontVariantNumeric="tabular-nums" key={param} overflowWrap="anywhere">
                        {wordsOf(each.params[param])}
                      </Table.Cell>
                    ))}
                    <Table.Cell>
                      <StateBadge phrase={each.summary.phrase} size="sm" />
                    </Table.Cell>
                    {metric !== "" && <Table.Cell fontVariantNumeric="tabular-nums">{each.value === null ? NONE : valueText(metric, each.value)}</Table.Cell>}
                  </Table.Row>
                ))}
              </Table.Body>
            </Table.Root>
          </Table.ScrollArea>
          <Text color="fg.muted" fontSize="xs" mt={2}>
            Each trial is a run of its own. The best is the one that succeeded with the best newest value of the metric.
          </Text>
        </>
      )}
    </Box>
  );
}

const wordsOf = (value: unknown) => (value === undefined ? NONE : typeof value === "string" ? value : JSON.stringify(value));

/** The best value first; those without one last, in their order. */
function sorted(trials: readonly TrialAnswer[], goal: string): readonly TrialAnswer[] {
  const sign = goal === "min" ? 1 : -1;
  return [...trials].sort((one, other) => {
    if (one.value === null || other.value === null) return Number(one.value === null) - Number(other.value === null) || one.number - other.number;
    return sign * (one.value - other.value) || one.number - other.number;
  });
}
