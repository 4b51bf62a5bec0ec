// All runs that the user may see, of every DAG and of the command line.
import { Box, Button, Checkbox, CloseButton, Code, Flex, Heading, Input, Link as StyledLink, Table, Text } from "@chakra-ui/react";
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useDeferredValue, useEffect, useState } from "react";
import { Link, useNavigationType, useSearchParams } from "react-router-dom";

import { ApiError, get, type LossPage, type Summary, type SummaryPage } from "./api.ts";
import { MOST_RUNS } from "./compared.ts";
import { Compare, Tuning } from "./lazyParts.tsx";
import { comparing, named, nameOf, nextOrder, orderOf, sorted, STATE_GROUPS, statesOf, type Order } from "./listing.ts";
import { Choice, isStandalone, Loading, Problem, StateBadge, useNow } from "./parts.tsx";
import { Training } from "./RunTab.tsx";
import { newTrainingPage, runPage } from "./runPage.ts";
import { Sparkline } from "./Sparkline.tsx";
import { StopMany } from "./StopMany.tsx";
import { ago, colourOf, duration, moment, placeOf, quantity, seconds, untilTime } from "./words.ts";

const REFRESH_MS = 5000;
const MOST_CHOSEN = 50;
const MOST_LOSSES = 200;
/** Names of the columns, and what they sort by; those without stand in a line of their own where it is narrow. */
const COLUMNS: readonly (readonly [string, Order | null])[] = [
  ["Job", "job"],
  ["State", "state"],
  ["Progress", "progress"],
  ["Loss", "loss"],
  ["DAG", null],
  ["Run", null],
  ["Runtime", null],
  ["By", null],
  ["Submitted", "submitted"],
  ["Took", "took"],
];
/** Where it is narrow, what these say stands in the second line of a row. */
const WIDE_ONLY = new Set(["Loss", "DAG", "Run", "Runtime", "By", "Submitted", "Took"]);
const WIDE = { base: "none", lg: "table-cell" };
const NARROW = { "& th, & td": { px: { base: 1.5, lg: 2 } }, "& th": { fontSize: { base: "xs", lg: "sm" } } };

/** All of them, the curves of some beside each other, the trials of a tuning, or one that has no DAG run to be shown in. */
export function Trainings() {
  const [query, setQuery] = useSearchParams();
  const [run] = named(query.get("run") ?? "");
  if (run) {
    return (
      <Box p={{ base: 2, md: 4 }}>
        <StyledLink asChild variant="underline">
          <Link to={isStandalone() ? "/" : "/plugin/trainings"}>All trainings</Link>
        </StyledLink>
        <Training dag={run.dag} key={run.uid} uid={run.uid} />
      </Box>
    );
  }
  const tuning = query.get("tuning");
  if (tuning) return <Tuning key={tuning} name={tuning} />;
  const runs = named(query.get("compare") ?? "").slice(0, MOST_RUNS);
  if (runs.length === 0) return <List />;
  return (
    <Box p={{ base: 2, md: 4 }}>
      <Flex align="center" gap={4} mb={4}>
        <Heading as="h1" size="lg">
          {runs.length} trainings compared
        </Heading>
        <Button onClick={() => setQuery((before) => comparing(before, []))} size="sm" variant="outline">
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
  const since = query.get("since") ?? "";
  const order = orderOf(query.get("sort") ?? "");
  const asked = query.get("text") ?? "";
  // the address follows some time after a key, and by then more keys were pressed: only the way back changes what was typed
  const [typed, setTyped] = useState(asked);
  const navigation = useNavigationType();
  useEffect(() => {
    if (navigation === "POP") setTyped(asked);
  }, [navigation, asked]);
  const text = useDeferredValue(asked);
  const now = useNow(true);
  const { data, error, hasNextPage, fetchNextPage, isFetchingNextPage } = useInfiniteQuery({
    queryKey: ["list", state, text, since],
    queryFn: ({ pageParam }) =>
      get<SummaryPage>("trainings", { limit: 50, before: pageParam, state: statesOf(state), text, since }),
    initialPageParam: "",
    getNextPageParam: (page) => (page.more ? page.next : null),
    refetchInterval: REFRESH_MS,
    placeholderData: (before) => before,
  });
  const set = (values: Record<string, string>) =>
    setQuery((before) => {
      const next = new URLSearchParams({ ...Object.fromEntries(before), ...values });
      for (const [name, value] of Object.entries(values)) if (!value) next.delete(name);
      return next;
    }, { replace: true });
  const loaded = data?.pages.flatMap((page) => page.trainings) ?? [];
  const uids = loaded.map((each) => each.uid).slice(0, MOST_LOSSES);
  const { data: lines } = useQuery({
    queryKey: ["losses", uids],
    queryFn: () => get<LossPage>("trainings/losses", { uid: uids }),
    enabled: uids.length > 0,
    placeholderData: (before) => before,
    refetchInterval: 3 * REFRESH_MS,
  });
  const trainings = sorted(loaded, order, (each) => ({ losses: lines?.losses[each.uid], took: tookOf(each, now) }));
  const choose = (each: Summary, add: boolean) =>
    setChosen((before) => {
      const next = new Set(before);
      if (add) next.add(nameOf(each));
      else next.delete(nameOf(each));
      return next;
    });
  const filtered = state !== "" || text !== "" || since !== "";
  return (
    <Box p={{ base: 2, md: 4 }}>
      <Flex align="center" flexWrap="wrap" gap={3} justify="space-between" mb={4}>
        <Heading as="h1" size="lg">
          Trainings
        </Heading>
        <Flex align="center" flexWrap="wrap" gap={2}>
          <Button asChild colorPalette="blue" size="sm">
            <Link to={newTrainingPage()}>New training</Link>
          </Button>
          {chosen.size > 0 && (
            <Flex align="center" gap={1}>
              <Text aria-live="polite" fontSize="sm">
                {chosen.size} chosen
              </Text>
              <Button onClick={() => setChosen(new Set())} size="xs" variant="ghost">
                Clear
              </Button>
            </Flex>
          )}
          <Button
            disabled={chosen.size < 2 || chosen.size > MOST_RUNS}
            onClick={() => setQuery((before) => comparing(before, [...chosen]))}
            size="sm"
            title={`Choose 2 to ${MOST_RUNS} trainings below`}
            variant="outline"
          >
            Compare
          </Button>
          <Button
            colorPalette={chosen.size === 0 ? "gray" : "red"}
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
            onChange={(event) => {
              setTyped(event.currentTarget.value);
              set({ text: event.currentTarget.value });
            }}
            placeholder="Job, DAG, run or user"
            size="sm"
            value={typed}
            w={{ base: "10rem", md: "16rem" }}
          />
          <Choice
            label="State"
            onChange={(value) => set({ state: value })}
            options={[
              ["", "All states"],
              ...Object.entries(STATE_GROUPS).map(([name, { label }]) => [name, label] as const),
              // a link may ask for one state alone
              ...(state && !STATE_GROUPS[state.toLowerCase()] ? ([[state, state]] as const) : []),
            ]}
            value={STATE_GROUPS[state.toLowerCase()] ? state.toLowerCase() : state}
            w="9rem"
          />
        </Flex>
      </Flex>
      {since && (
        <Flex align="center" gap={1} mb={2}>
          <Text color="fg.muted" fontSize="sm">
            Only those that ended since {moment(since)}
          </Text>
          <CloseButton aria-label="Whenever they ended" onClick={() => set({ since: "" })} size="2xs" />
        </Flex>
      )}
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
      {error && data && (
        <Text color="orange.fg" fontSize="sm" mb={2} role="alert">
          {unanswered(error)}
        </Text>
      )}
      {!data && !error && <Loading />}
      {data && loaded.length === 0 && (filtered ? <NothingMatches onAll={() => set({ state: "", text: "", since: "" })} /> : <HowToBegin />)}
      {loaded.length > 0 && (
        <Table.ScrollArea tabIndex={0} borderRadius="md" borderWidth="1px" whiteSpace="normal">
          <Table.Root css={NARROW} size="sm">
            <Table.Header>
              <Table.Row>
                <Table.ColumnHeader w="2rem" />
                {COLUMNS.map(([name, by]) => (
                  <Table.ColumnHeader
                    aria-sort={by === null ? undefined : order?.by !== by ? "none" : order.down ? "descending" : "ascending"}
                    display={WIDE_ONLY.has(name) ? WIDE : undefined}
                    key={name}
                    whiteSpace="nowrap"
                  >
                    {by === null ? (
                      name
                    ) : (
                      <Box
                        as="button"
                        cursor="pointer"
                        fontWeight="inherit"
                        onClick={() => set({ sort: nextOrder(by, query.get("sort") ?? "") })}
                        textAlign="start"
                      >
                        {name}
                        <Text aria-hidden as="span" color={order?.by === by ? undefined : "fg.subtle"} display={order?.by === by ? undefined : { base: "none", lg: "inline" }}>
                          {order?.by !== by ? " ↕" : order.down ? " ↓" : " ↑"}
                        </Text>
                      </Box>
                    )}
                  </Table.ColumnHeader>
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
                  onChoose={(add) => choose(each, add)}
                />
              ))}
            </Table.Body>
          </Table.Root>
        </Table.ScrollArea>
      )}
      {hasNextPage && (
        <Flex align="center" gap={3} mt={3}>
          <Button loading={isFetchingNextPage} onClick={() => void fetchNextPage()} size="sm" variant="outline">
            Older ones
          </Button>
          {order && (
            <Text color="fg.muted" fontSize="sm">
              Sorted: the {quantity(loaded.length)} loaded
            </Text>
          )}
        </Flex>
      )}
    </Box>
  );
}

/** Beside what was read before: whether the server is away, or refuses. */
function unanswered(error: Error): string {
  const refused = error instanceof ApiError && error.status < 500;
  return refused ? `the server refuses: ${error.message}` : "the server does not answer; trying again";
}

function NothingMatches({ onAll }: { onAll: () => void }) {
  return (
    <Flex align="center" gap={3}>
      <Text color="fg.muted">No training matches.</Text>
      <Button onClick={onAll} size="xs" variant="outline">
        Show all
      </Button>
    </Flex>
  );
}

function HowToBegin() {
  return (
    <Box color="fg.muted">
      <Text mb={2}>No training was started yet. One begins</Text>
      <Box as="ul" listStyleType="disc" ps={5}>
        <li>
          with{" "}
          <StyledLink asChild textDecoration="underline">
            <Link to={newTrainingPage()}>the form for a new training</Link>
          </StyledLink>
          ,
        </li>
        <li>
          with <Code>airflow-training run job.yaml --ui</Code> on a machine,
        </li>
        <li>
          in Airflow with a job file in the folder <Code>jobs</Code>, which becomes a DAG, or the DAG <Code>training_job</Code>.
        </li>
      </Box>
    </Box>
  );
}

/** Seconds; null: it has not begun. */
function tookOf(each: Summary, now: number): number | null {
  const started = seconds(each.started_at);
  return started === null ? null : (seconds(each.finished_at) ?? now / 1000) - started;
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
  const took = duration(tookOf(each, now));
  const dag = each.dag_id ?? "command line";
  return (
    <>
      <Table.Row css={{ "& > td": { borderBottomWidth: { base: 0, lg: "1px" } } }}>
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
        <Table.Cell fontWeight="medium" overflowWrap="anywhere">
          <StyledLink asChild textDecoration="underline">
            <Link to={runPage(each)}>{each.job}</Link>
          </StyledLink>
          {placeOf(each) && (
            <Text color="fg.muted" fontSize="xs" fontWeight="normal">
              {placeOf(each)}
            </Text>
          )}
        </Table.Cell>
        <Table.Cell css={{ "& > *": { whiteSpace: "normal" } }}>
          <StateBadge phrase={each.phrase} size="sm" />
        </Table.Cell>
        <Table.Cell>
          <ProgressCell each={each} now={now} />
        </Table.Cell>
        <Table.Cell display={WIDE}>
          <Sparkline name="loss" values={losses} />
        </Table.Cell>
        <Table.Cell display={WIDE} overflowWrap="anywhere">
          {dag}
        </Table.Cell>
        <Table.Cell display={WIDE} fontSize="xs" maxW="16rem" minW="8rem" overflowWrap="anywhere">
          {each.run_id}
        </Table.Cell>
        <Table.Cell display={WIDE}>{each.runtime}</Table.Cell>
        <Table.Cell display={WIDE} overflowWrap="anywhere">
          {each.submitted_by}
        </Table.Cell>
        <Table.Cell display={WIDE} title={moment(each.submitted_at)} whiteSpace="nowrap">
          {ago(each.submitted_at, now)}
        </Table.Cell>
        <Table.Cell display={WIDE} whiteSpace="nowrap">
          {took}
        </Table.Cell>
      </Table.Row>
      <Table.Row display={{ base: "table-row", lg: "none" }}>
        <Table.Cell pt={0} />
        <Table.Cell color="fg.muted" colSpan={3} fontSize="xs" overflowWrap="anywhere" pt={0}>
          {[ago(each.submitted_at, now), took && `took ${took}`, dag, each.runtime, each.submitted_by, each.run_id].filter(Boolean).join(" · ")}
        </Table.Cell>
      </Table.Row>
    </>
  );
}

/** A bar, the step of the last one, and when it is expected there. */
function ProgressCell({ each, now }: { each: Summary; now: number }) {
  const { progress } = each;
  if (!progress) return null;
  const { eta_seconds: left, fraction, step, total_steps: total } = progress;
  const running = each.phrase === "running";
  const done = running || each.phrase === "succeeded";
  const told = `${quantity(step)}${total === null ? "" : ` of ${quantity(total)}`}`;
  return (
    <Box minW={{ base: "4rem", lg: "8rem" }}>
      {fraction !== null && (
        <Box
          aria-label={`${Math.floor(100 * fraction)} % of its steps`}
          bg="bg.emphasized"
          borderRadius="full"
          h="6px"
          maxW="10rem"
          mb={1}
          overflow="hidden"
          role="img"
        >
          <Box
            bg={done ? "green.solid" : "fg.subtle"}
            borderColor={`${colourOf(each.phrase)}.solid`}
            borderRightWidth={done ? 0 : "4px"}
            h="100%"
            w={`${100 * fraction}%`}
          />
        </Box>
      )}
      <Text color="fg.muted" fontSize="xs" fontVariantNumeric="tabular-nums" whiteSpace={{ lg: "nowrap" }}>
        {total === null ? `step ${told}` : told}
      </Text>
      {running && left !== null && (
        <Text color="fg.muted" display={{ base: "none", lg: "block" }} fontSize="xs" whiteSpace="nowrap">
          {untilTime(now + 1000 * left, now)}
        </Text>
      )}
    </Box>
  );
}
