// All runs that the user may see, of every DAG and of the command line.
import { Box, Button, Checkbox, Flex, Heading, Input, Link as StyledLink, Table, Text } from "@chakra-ui/react";
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useDeferredValue, useState } from "react";
import { Link, useSearchParams } from "react-router-dom";

import { get, type LossPage, type Summary, type SummaryPage } from "./api.ts";
import { MOST_RUNS, type RunName } from "./compared.ts";
import { Compare } from "./lazyParts.tsx";
import { Choice, isStandalone, Loading, Problem, StateBadge, useNow } from "./parts.tsx";
import { Sparkline } from "./Sparkline.tsx";
import { StopMany } from "./StopMany.tsx";
import { ago, duration, seconds } from "./words.ts";

const STATES = ["Pending", "Queued", "Starting", "Running", "Restarting", "Paused", "Succeeded", "Failed", "Stopped"];
const REFRESH_MS = 5000;
const MOST_CHOSEN = 50;
const MOST_LOSSES = 200;

/** Where a training's page is: a tab of its DAG run in Airflow, a page of its own without. */
function pageOf(each: Summary): string | null {
  if (isStandalone()) return `/runs/${each.uid}${each.dag_id ? `?dag=${encodeURIComponent(each.dag)}` : ""}`;
  if (!each.dag_id) return null;
  const run = `/dags/${encodeURIComponent(each.dag_id)}/runs/${encodeURIComponent(each.run_id)}`;
  return `${run}/plugin/training-run?training=${each.uid}`;
}

/** `digits/abc,~/def`: DAG and uid of each run; neither holds a slash or a comma. */
function named(text: string): RunName[] {
  return text
    .split(",")
    .filter((each) => each.includes("/"))
    .map((each) => {
      const place = each.indexOf("/");
      return { dag: each.slice(0, place), uid: each.slice(place + 1) };
    });
}

/** All of them, or the curves of some beside each other. */
export function Trainings() {
  const [query, setQuery] = useSearchParams();
  const runs = named(query.get("compare") ?? "").slice(0, MOST_RUNS);
  if (runs.length === 0) return <List />;
  return (
    <Box p={{ base: 2, md: 4 }}>
      <Flex align="center" gap={4} mb={4}>
        <Heading as="h1" size="lg">
          {runs.length} trainings compared
        </Heading>
        <Button onClick={() => setQuery({})} size="sm" variant="outline">
          All trainings
        </Button>
      </Flex>
      <Compare runs={runs} />
    </Box>
  );
}

function List() {
  const [query, setQuery] = useSearchParams();
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [stopping, setStopping] = useState(false);
  const state = query.get("state") ?? "";
  const text = useDeferredValue(query.get("text") ?? "");
  const now = useNow(true);
  const { data, error, hasNextPage, fetchNextPage, isFetchingNextPage } = useInfiniteQuery({
    queryKey: ["list", state, text],
    queryFn: ({ pageParam }) => get<SummaryPage>("trainings", { limit: 50, before: pageParam, state, text }),
    initialPageParam: "",
    getNextPageParam: (page) => (page.more ? page.next : null),
    refetchInterval: REFRESH_MS,
    placeholderData: (before) => before,
  });
  const set = (name: string, value: string) =>
    setQuery((before) => {
      const next = new URLSearchParams(before);
      if (value) next.set(name, value);
      else next.delete(name);
      return next;
    }, { replace: true });
  const trainings = data?.pages.flatMap((page) => page.trainings) ?? [];
  const uids = trainings.map((each) => each.uid).slice(0, MOST_LOSSES);
  const { data: lines } = useQuery({
    queryKey: ["losses", uids],
    queryFn: () => get<LossPage>("trainings/losses", { uid: uids }),
    enabled: uids.length > 0,
    placeholderData: (before) => before,
    refetchInterval: 3 * REFRESH_MS,
  });
  return (
    <Box p={{ base: 2, md: 4 }}>
      <Flex align="center" flexWrap="wrap" gap={3} justify="space-between" mb={4}>
        <Heading as="h1" size="lg">
          Trainings
        </Heading>
        <Flex flexWrap="wrap" gap={2}>
          <Button
            disabled={chosen.size < 2 || chosen.size > MOST_RUNS}
            onClick={() => setQuery({ compare: [...chosen].join(",") })}
            size="sm"
            title={`Choose 2 to ${MOST_RUNS} trainings below`}
            variant="outline"
          >
            Compare
          </Button>
          <Button
            colorPalette="red"
            disabled={chosen.size === 0}
            onClick={() => setStopping(true)}
            size="sm"
            title={`Choose up to ${MOST_CHOSEN} trainings below`}
            variant="outline"
          >
            Stop
          </Button>
          <Input
            aria-label="Filter by name"
            onChange={(event) => set("text", event.currentTarget.value)}
            placeholder="Job, DAG, run or user"
            size="sm"
            value={query.get("text") ?? ""}
            w={{ base: "10rem", md: "16rem" }}
          />
          <Choice
            label="State"
            onChange={(value) => set("state", value)}
            options={[["", "All states"], ...STATES.map((each) => [each, each] as const)]}
            value={state}
            w="9rem"
          />
        </Flex>
      </Flex>
      {stopping && (
        <StopMany
          onClose={() => {
            setStopping(false);
            setChosen(new Set());
          }}
          runs={named([...chosen].join(","))}
        />
      )}
      {error && !data && <Problem error={error} />}
      {!data && !error && <Loading />}
      {data && trainings.length === 0 && <Text color="fg.muted">No training {state || text ? "matches" : "was started yet"}.</Text>}
      {trainings.length > 0 && (
        <Table.ScrollArea tabIndex={0} borderRadius="md" borderWidth="1px">
          <Table.Root size="sm">
            <Table.Header>
              <Table.Row>
                <Table.ColumnHeader w="2rem" />
                {["Job", "State", "Loss", "DAG", "Run", "Runtime", "By", "Submitted", "Took"].map((name) => (
                  <Table.ColumnHeader key={name}>{name}</Table.ColumnHeader>
                ))}
              </Table.Row>
            </Table.Header>
            <Table.Body>
              {trainings.map((each) => (
                <Row
                  chosen={chosen.has(nameOf(each))}
                  each={each}
                  full={chosen.size >= MOST_CHOSEN}
                  key={each.uid}
                  losses={lines?.losses[each.uid]}
                  now={now}
                  onChoose={(add) =>
                    setChosen((before) => {
                      const next = new Set(before);
                      if (add) next.add(nameOf(each));
                      else next.delete(nameOf(each));
                      return next;
                    })
                  }
                />
              ))}
            </Table.Body>
          </Table.Root>
        </Table.ScrollArea>
      )}
      {hasNextPage && (
        <Button loading={isFetchingNextPage} mt={3} onClick={() => void fetchNextPage()} size="sm" variant="outline">
          Older ones
        </Button>
      )}
    </Box>
  );
}

function nameOf(each: Summary): string {
  return `${each.dag}/${each.uid}`;
}

function Row({
  chosen,
  each,
  full,
  losses,
  now,
  onChoose,
}: {
  chosen: boolean;
  each: Summary;
  full: boolean;
  losses: readonly (number | null)[] | undefined;
  now: number;
  onChoose: (add: boolean) => void;
}) {
  const page = pageOf(each);
  const started = seconds(each.started_at);
  const ended = seconds(each.finished_at) ?? now / 1000;
  return (
    <Table.Row>
      <Table.Cell>
        <Checkbox.Root
          checked={chosen}
          disabled={full && !chosen}
          onCheckedChange={(event) => onChoose(event.checked === true)}
          size="sm"
        >
          <Checkbox.HiddenInput aria-label={`Choose ${each.job} ${each.run_id}`} />
          <Checkbox.Control />
        </Checkbox.Root>
      </Table.Cell>
      <Table.Cell fontWeight="medium">
        {page ? (
          <StyledLink asChild textDecoration="underline">
            <Link to={page}>{each.job}</Link>
          </StyledLink>
        ) : (
          each.job
        )}
      </Table.Cell>
      <Table.Cell>
        <StateBadge phrase={each.phrase} size="sm" />
      </Table.Cell>
      <Table.Cell>
        <Sparkline name="loss" values={losses} />
      </Table.Cell>
      <Table.Cell>{each.dag_id ?? "command line"}</Table.Cell>
      <Table.Cell maxW="20rem" title={each.run_id} truncate>
        {each.run_id}
      </Table.Cell>
      <Table.Cell>{each.runtime}</Table.Cell>
      <Table.Cell>{each.submitted_by}</Table.Cell>
      <Table.Cell title={each.submitted_at} whiteSpace="nowrap">
        {ago(each.submitted_at, now)}
      </Table.Cell>
      <Table.Cell whiteSpace="nowrap">{started === null ? "" : duration(ended - started)}</Table.Cell>
    </Table.Row>
  );
}
