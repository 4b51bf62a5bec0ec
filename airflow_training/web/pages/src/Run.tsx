// The page of one training: what it is doing, why it failed, what can be done, and everything else in tabs.
import { Alert, Box, Code, Flex, Heading, Link, Progress, Tabs, Text } from "@chakra-ui/react";
import { useSearchParams } from "react-router-dom";

import type { Cause, Detail } from "./api.ts";
import { AgainButton, useAgainOffer } from "./Again.tsx";
import { Buttons } from "./Buttons.tsx";
import { Charts } from "./Charts.tsx";
import { Checkpoints } from "./Checkpoints.tsx";
import { Configuration } from "./Configuration.tsx";
import { Data } from "./Data.tsx";
import { Environment } from "./Environment.tsx";
import { useDetail } from "./live.ts";
import { Logs } from "./Logs.tsx";
import { Overview } from "./Overview.tsx";
import { Plan } from "./Plan.tsx";
import { Predictions } from "./Predictions.tsx";
import { Fact, Loading, Problem, StateBadge, useNow } from "./parts.tsx";
import { duration, quantity, seconds, why } from "./words.ts";

const TABS = ["overview", "charts", "data", "predictions", "logs", "checkpoints", "plan", "environment", "configuration"] as const;
type Tab = (typeof TABS)[number];
const ENDED = new Set(["stopped", "failed", "succeeded"]);

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
      const training = before.get("training");
      return new URLSearchParams({ ...(training ? { training } : {}), tab: next, ...values });
    });

  return (
    <Box p={{ base: 0, md: 2 }}>
      <Top detail={detail} lost={lost} />
      {detail.status.root_cause && (
        <CauseBox
          cause={detail.status.root_cause}
          told={detail.status.state === "Failed" ? why(detail.status) : ""}
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
        <Tabs.List mb={4} overflowX="auto" overflowY="hidden">
          {tabs.map((each) => (
            <Tabs.Trigger flexShrink={0} key={each} textTransform="capitalize" value={each}>
              {each}
            </Tabs.Trigger>
          ))}
        </Tabs.List>
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
            <Plan plan={plan} />
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
  const { summary, status, progress, restarts } = detail;
  const moving = !ENDED.has(summary.phrase);
  const now = useNow(moving);
  const offer = useAgainOffer(summary);
  const started = seconds(status.started_at);
  const ended = seconds(status.finished_at) ?? now / 1000;
  const told = why({ reason: status.reason === status.state ? "" : status.reason, message: status.message });
  return (
    <Box as="header" mb={4} mt={3}>
      <Flex align="center" flexWrap="wrap" gap={3} justify="space-between">
        <Flex align="center" flexWrap="wrap" gap={3}>
          <Heading as="h2" size="lg" wordBreak="break-word">
            {summary.job}
          </Heading>
          <Box aria-live="polite">
            <StateBadge phrase={summary.phrase} size="lg" />
          </Box>
          {lost && <Text color="orange.fg">the server does not answer; trying again</Text>}
        </Flex>
        <Flex align="center" flexWrap="wrap" gap={2}>
          <Buttons detail={detail} now={now} />
          {!moving && offer?.possible && <AgainButton detail={detail} label="Run again" />}
        </Flex>
      </Flex>
      {told && !status.root_cause && (
        <Text color="fg.muted" mt={1} wordBreak="break-word">
          {told}
        </Text>
      )}
      {progress.fraction !== null && (
        <Progress.Root
          aria-label="Steps done"
          colorPalette={summary.phrase === "failed" ? "red" : "green"}
          max={1}
          mt={3}
          size="sm"
          value={Math.min(1, progress.fraction)}
        >
          <Progress.Track>
            <Progress.Range />
          </Progress.Track>
        </Progress.Root>
      )}
      <Flex columnGap={8} flexWrap="wrap" mt={3} rowGap={2}>
        {progress.step !== null && (
          <Fact name="Step">
            {quantity(progress.step)}
            {progress.total_steps !== null && ` of ${quantity(progress.total_steps)}`}
          </Fact>
        )}
        {started !== null && <Fact name="Elapsed">{duration(ended - started)}</Fact>}
        {moving && progress.eta_seconds !== null && <Fact name="Expected end">in {duration(progress.eta_seconds)}</Fact>}
        {progress.samples_per_second != null && <Fact name="Samples/s">{quantity(progress.samples_per_second)}</Fact>}
        <Fact name="Restarts">
          {restarts.used}
          {restarts.allowed !== null && ` of ${restarts.allowed}`}
        </Fact>
        {progress.slowest && <Fact name="Slowest">{progress.slowest}</Fact>}
        <Fact name="Runtime">{summary.runtime}</Fact>
        {summary.submitted_by && <Fact name="Submitted by">{summary.submitted_by}</Fact>}
        <Fact name="Run">{summary.run_id}</Fact>
      </Flex>
    </Box>
  );
}

/** Why it failed comes before everything else: who, how and why, the line that proves it, what to do. `told`: as the run says it. */
function CauseBox({ cause, told, onLine }: { cause: Cause; told: string; onLine: (cause: Cause) => void }) {
  return (
    <Alert.Root alignItems="flex-start" mb={5} role="alert" status="error">
      <Alert.Indicator />
      <Alert.Content minW={0}>
        <Alert.Title wordBreak="break-word">{told || why(cause)}</Alert.Title>
        <Alert.Description width="100%">
          {cause.evidence && !told.includes(cause.evidence) && (
            <Code as="pre" display="block" my={2} p={2} whiteSpace="pre-wrap" wordBreak="break-all">
              {cause.evidence}
            </Code>
          )}
          {cause.advice && <Text>{cause.advice}</Text>}
          <Text color="fg.muted" fontSize="xs" mt={1}>
            {cause.id} ({cause.category}, {Math.round(100 * cause.confidence)} % sure)
          </Text>
          {cause.role && cause.index !== null && (
            <Link as="button" mt={1} onClick={() => onLine(cause)} textDecoration="underline">
              Open the log of {cause.role}-{cause.index}, attempt {cause.attempt ?? 0}
            </Link>
          )}
        </Alert.Description>
      </Alert.Content>
    </Alert.Root>
  );
}
