// The page of one training: what it is doing, why it failed, what can be done, and everything else in tabs.
import { Alert, Box, Code, Flex, Heading, Link, Progress, Tabs, Text } from "@chakra-ui/react";
import { useSearchParams } from "react-router-dom";

import type { Cause, Detail } from "./api.ts";
import { AgainButton, useRerunOffer } from "./Again.tsx";
import { Buttons } from "./Buttons.tsx";
import { Configuration } from "./Configuration.tsx";
import { Data } from "./Data.tsx";
import { Environment } from "./Environment.tsx";
import { Charts, Checkpoints } from "./lazyParts.tsx";
import { useDetail } from "./live.ts";
import { Logs } from "./Logs.tsx";
import { Overview } from "./Overview.tsx";
import { Plan } from "./Plan.tsx";
import { Predictions } from "./Predictions.tsx";
import { Copied, Fact, Loading, Problem, StateBadge, useNow, useTitle } from "./parts.tsx";
import { TabStrip } from "./TabStrip.tsx";
import {
  duration,
  expectedStart,
  failureOf,
  headline,
  isOver,
  money,
  placeOf,
  quantity,
  restartsText,
  seconds,
  titleOf,
  untilTime,
  whatToDo,
  why,
  whyHere,
  type ExpectedStart,
} from "./words.ts";

const TABS = ["overview", "charts", "data", "predictions", "logs", "checkpoints", "plan", "environment", "configuration"] as const;
type Tab = (typeof TABS)[number];
/** Of the address: which run the page shows. */
const WHICH = new Set(["dag", "run", "training"]);
/** With what else the top uses of it. */
type Status = Detail["status"] & { advice: string[]; expected_start: ExpectedStart | null };

/** `task`: the page is the tab of this task, which shows its role's logs first. */
export function Run({ dag, uid, task }: { dag: string; uid: string; task?: string }) {
  const { detail, error, lost } = useDetail(dag, uid);
  const [query, setQuery] = useSearchParams();
  if (error && !detail) return <Problem error={error} />;
  if (!detail) return <Loading />;
  const role = task ? detail.roles.find((each) => task.split(".").includes(each.name))?.name : undefined;
  const { plan } = detail.status;
  const tabs = TABS.filter((each) => each !== "plan" || plan);
  const asked = query.get("tab");
  const tab: Tab = tabs.find((each) => each === asked) ?? (role ? "logs" : "overview");

  const show = (next: Tab, values: Record<string, string> = {}) =>
    setQuery((before) => {
      const kept = [...before].filter(([name]) => WHICH.has(name));
      return new URLSearchParams({ ...Object.fromEntries(kept), tab: next, ...values });
    });

  return (
    <Box p={{ base: 0, md: 2 }}>
      <Top detail={detail} lost={lost} />
      {detail.status.root_cause && (
        <CauseBox
          cause={detail.status.root_cause}
          status={detail.status as Status}
          onLine={(cause) =>
            show("logs", {
              instance: `${cause.role}-${cause.index}`,
              attempt: String(cause.attempt ?? 0),
              ...(cause.offset === null ? {} : { offset: String(cause.offset) }),
            })
          }
        />
      )}
      <Tabs.Root lazyMount onValueChange={({ value }) => show(value as Tab)} size="sm" unmountOnExit value={tab}>
        <TabStrip chosen={tab} names={tabs} />
        <Tabs.Content value="overview">
          <Overview detail={detail} onLog={(instance) => show("logs", { instance })} />
        </Tabs.Content>
        <Tabs.Content value="charts">
          <Charts detail={detail} />
        </Tabs.Content>
        <Tabs.Content value="data">
          <Data detail={detail} />
        </Tabs.Content>
        <Tabs.Content value="predictions">
          <Predictions detail={detail} />
        </Tabs.Content>
        <Tabs.Content value="logs">
          <Logs detail={detail} role={role} />
        </Tabs.Content>
        <Tabs.Content value="checkpoints">
          <Checkpoints detail={detail} />
        </Tabs.Content>
        {plan && (
          <Tabs.Content value="plan">
            <Plan over={isOver(detail.summary.phrase)} plan={plan} step={detail.progress.step} />
          </Tabs.Content>
        )}
        <Tabs.Content value="environment">
          <Environment detail={detail} />
        </Tabs.Content>
        <Tabs.Content value="configuration">
          <Configuration summary={detail.summary} />
        </Tabs.Content>
      </Tabs.Root>
    </Box>
  );
}

function Top({ detail, lost }: { detail: Detail; lost: boolean }) {
  const { cost, summary, progress, restarts } = detail;
  const status = detail.status as Status;
  const moving = !isOver(summary.phrase);
  const now = useNow(moving);
  const offer = useRerunOffer(summary);
  useTitle(titleOf(detail));
  const started = seconds(status.started_at);
  const ended = seconds(status.finished_at) ?? now / 1000;
  const broke = summary.phrase === "failed" || summary.phrase === "stopped";
  const told = status.root_cause ? "" : moving ? whyHere(status) : why(status);
  return (
    <Box as="header" mb={4} mt={3}>
      <Flex align="center" columnGap={3} flexWrap="wrap" justifyContent="space-between" rowGap={2}>
        <Flex align="center" columnGap={3} flex={{ base: "1 1 100%", md: "1 1 20rem" }} flexWrap="wrap" minW={0} rowGap={1}>
          <Heading as="h2" size="lg" wordBreak="break-word">
            {summary.job}
          </Heading>
          {placeOf(summary) && <Text color="fg.muted">{placeOf(summary)}</Text>}
          <Box aria-live="polite">
            <StateBadge phrase={summary.phrase} size="lg" />
          </Box>
          {told && (
            <Text color="fg.muted" minW={0} overflowWrap="anywhere">
              {told}
            </Text>
          )}
          {lost && <Text color="orange.fg">the server does not answer; trying again</Text>}
        </Flex>
        <Flex align="center" flexWrap="wrap" gap={2} w={{ base: "100%", md: "auto" }}>
          <Buttons detail={detail} now={now} />
          {!moving && offer?.possible && <AgainButton detail={detail} label="Run again" />}
        </Flex>
      </Flex>
      {moving && status.expected_start && (
        <Text color="fg.muted" fontSize="sm" mt={1}>
          Expected start: {expectedStart(status.expected_start)}
        </Text>
      )}
      {progress.fraction !== null && (
        <Progress.Root aria-label="Steps done" colorPalette={broke ? "gray" : "green"} max={1} mt={3} size="sm" value={Math.min(1, progress.fraction)}>
          <Progress.Track>
            {/* of a run that broke off, the place where it did */}
            <Progress.Range {...(broke ? { bg: "fg.subtle", borderColor: summary.phrase === "failed" ? "red.solid" : "fg.muted", borderRightWidth: "6px" } : {})} />
          </Progress.Track>
        </Progress.Root>
      )}
      <Box columnGap={{ base: 4, md: 8 }} display={{ base: "grid", md: "flex" }} flexWrap="wrap" gridTemplateColumns="1fr 1fr" mt={3} rowGap={2}>
        {progress.step !== null && (
          <Fact name={broke ? "Ended at step" : "Step"}>
            {quantity(progress.step)}
            {progress.total_steps !== null && ` of ${quantity(progress.total_steps)}`}
          </Fact>
        )}
        {started !== null && <Fact name="Elapsed">{duration(ended - started)}</Fact>}
        {moving && progress.eta_seconds !== null && (
          <Fact name="Expected end">{untilTime(Date.parse(status.observed_at) + 1000 * progress.eta_seconds, now)}</Fact>
        )}
        {progress.samples_per_second != null && <Fact name="Samples/s">{quantity(progress.samples_per_second)}</Fact>}
        {cost && (
          <Fact name={cost.final ? "Cost" : "Cost till now"}>
            <span title={`${cost.amount} ${cost.currency}: what its instances requested, by the prices of each moment`}>{`${money(cost.amount)} ${cost.currency}`}</span>
          </Fact>
        )}
        <Fact name="Restarts">{restartsText(restarts)}</Fact>
        {progress.slowest && <Fact name="Slowest">{progress.slowest}</Fact>}
        <Fact name="Runtime">{summary.runtime}</Fact>
        {summary.submitted_by && <Fact name="Submitted by">{summary.submitted_by}</Fact>}
        <Fact name="Run" wide>
          <Copied name="run id" text={summary.run_id} />
        </Fact>
      </Box>
    </Box>
  );
}

/** Why it failed comes before everything else: who, how and why, the line that proves it, what to do, and what the next run may do better. */
function CauseBox({ cause, status, onLine }: { cause: Cause; status: Status; onLine: (cause: Cause) => void }) {
  const { what, limit } = failureOf({ message: status.state === "Failed" ? status.message : "" }, cause.evidence);
  const told = what || why(cause);
  const proof = told.includes(headline(cause.evidence)) && !cause.evidence.trim().includes("\n") ? "" : cause.evidence;
  const advice = whatToDo(cause.advice, [told, cause.evidence]);
  return (
    <Alert.Root alignItems="flex-start" mb={5} role="alert" status="error">
      <Alert.Indicator />
      <Alert.Content minW={0}>
        <Alert.Title fontWeight="bold" overflowWrap="anywhere">
          {told}
        </Alert.Title>
        <Alert.Description width="100%">
          {proof && (
            <Code as="pre" display="block" my={2} overflowWrap="anywhere" p={2} whiteSpace="pre-wrap">
              {proof}
            </Code>
          )}
          {advice && <Text>What to do: {advice}</Text>}
          {status.advice.map((each) => (
            <Text key={each}>Next time: {each}</Text>
          ))}
          {cause.role && cause.index !== null && (
            <Link as="button" mt={1} onClick={() => onLine(cause)} textDecoration="underline">
              Open the log of {cause.role}-{cause.index}, attempt {cause.attempt ?? 0}
            </Link>
          )}
          <Text color="fg.muted" fontSize="xs" mt={1}>
            {cause.id} ({cause.category}, {Math.round(100 * cause.confidence)} % sure){limit && `. Not tried again: ${limit}`}
          </Text>
        </Alert.Description>
      </Alert.Content>
    </Alert.Root>
  );
}
