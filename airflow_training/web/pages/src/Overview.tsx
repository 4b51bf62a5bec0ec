// Where every instance is, when each attempt ran, what waits for what, and what happened.
import { Badge, Box, Button, Flex, Input, Link, Table, Text } from "@chakra-ui/react";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { get, ofTraining, type Detail, type EventAnswer, type EventPage, type Instance, type InstanceUsage } from "./api.ts";
import { instancesWith } from "./instances.ts";
import { Problem, Section, useNow } from "./parts.tsx";
import { ago, clock, colourOfInstance, cpuText, duration, gpuText, memoryText, quantity, seconds, why } from "./words.ts";

/** Of instances; a browser takes seconds for thousands of rows. */
const MOST_ROWS = 100;
const PAGE = 500;

export function Overview({ detail, onLog }: { detail: Detail; onLog: (instance: string) => void }) {
  return (
    <>
      <Section title="Instances">
        <Instances detail={detail} onLog={onLog} />
      </Section>
      {detail.roles.length > 1 && (
        <Section title="Roles">
          <Roles detail={detail} />
        </Section>
      )}
      {detail.attempts.length > 0 && (
        <Section title="Time line">
          <TimeLine detail={detail} />
        </Section>
      )}
      <Section title="Events">
        <Events detail={detail} />
      </Section>
    </>
  );
}

/** Of very many instances: a part, and a field to find others in. */
function Instances({ detail, onLog }: { detail: Detail; onLog: (instance: string) => void }) {
  const [all, setAll] = useState(false);
  const [text, setText] = useState("");
  const { instances } = detail.status;
  if (instances.length === 0) return <Text color="fg.muted">No instance was created yet.</Text>;
  if (instances.length <= MOST_ROWS) return <InstanceTable detail={detail} instances={instances} onLog={onLog} />;
  const found = instancesWith(text, instances);
  const shown = all ? found : found.slice(0, MOST_ROWS);
  return (
    <>
      <Flex align="center" flexWrap="wrap" gap={3} mb={2}>
        <Input
          aria-label="Find instances"
          maxW="18rem"
          onChange={(event) => setText(event.target.value)}
          placeholder="Name, state, node or reason"
          size="sm"
          value={text}
        />
        <Text aria-live="polite" color="fg.muted" fontSize="sm">
          {quantity(shown.length)} of {quantity(found.length)}, those that do not run first
        </Text>
        {shown.length < found.length && (
          <Button onClick={() => setAll(true)} size="xs" variant="outline">
            Show all
          </Button>
        )}
      </Flex>
      <InstanceTable detail={detail} instances={shown} onLog={onLog} />
    </>
  );
}

/** Of the table's body: a style for each cell of very many would cost most of the time that the page takes. */
const CELLS = {
  "& td, & th": { borderBottomWidth: "1px", fontVariantNumeric: "tabular-nums", px: 2, py: 2, textAlign: "start", whiteSpace: "nowrap" },
  "& th": { fontWeight: "medium" },
  "& td.wide": { maxW: "24rem", whiteSpace: "normal" },
} as const;

function InstanceTable({ detail, instances, onLog }: { detail: Detail; instances: readonly Instance[]; onLog: (instance: string) => void }) {
  const now = useNow(detail.held);
  const metrics = [...new Set(Object.values(detail.metrics).flatMap((each) => Object.keys(each)))].slice(0, 3);
  return (
    <Table.ScrollArea tabIndex={0} borderRadius="md" borderWidth="1px" maxH="60vh">
      <Table.Root size="sm" stickyHeader>
        <Table.Header>
          <Table.Row>
            {["Instance", "State", "Attempt", "Step", ...metrics, "CPU", "Memory", "GPU", "Node", "Address", "Since", ""].map((name) => (
              <Table.ColumnHeader key={name}>{name}</Table.ColumnHeader>
            ))}
          </Table.Row>
        </Table.Header>
        <Table.Body css={CELLS}>
          {instances.map((each) => {
            const name = `${each.role}-${each.index}`;
            const told = why(each);
            return (
              <tr key={name}>
                <th scope="row">{name}</th>
                <td className="wide">
                  <Badge colorPalette={colourOfInstance(each.state)}>{each.state}</Badge>
                  {told && each.state !== "running" && each.state !== "succeeded" && (
                    <Text color="fg.muted" fontSize="xs" lineClamp={2} title={each.message || told} wordBreak="break-word">
                      {told}
                    </Text>
                  )}
                </td>
                <td>{each.attempt}</td>
                <td>
                  {each.progress?.step === null || each.progress?.step === undefined
                    ? ""
                    : `${quantity(each.progress.step)}${each.progress.total_steps ? ` / ${quantity(each.progress.total_steps)}` : ""}`}
                </td>
                {metrics.map((metric) => (
                  <td key={metric}>
                    {detail.metrics[name]?.[metric] === undefined ? "" : quantity(detail.metrics[name]?.[metric])}
                  </td>
                ))}
                <UsageCells now={now} usage={each.state === "running" ? detail.usage[name] : undefined} />
                <td>{each.node}</td>
                <td>{each.address}</td>
                <td>{ago(each.last_transition_at, now)}</td>
                <td>
                  <Link aria-label={`Log of ${name}`} as="button" onClick={() => onLog(name)} textDecoration="underline">
                    log
                  </Link>
                </td>
              </tr>
            );
          })}
        </Table.Body>
      </Table.Root>
    </Table.ScrollArea>
  );
}

/** What an instance uses now; how old that is stands in the tooltips. */
function UsageCells({ now, usage }: { now: number; usage: InstanceUsage | undefined }) {
  const told = usage && `as of ${ago(usage.at, now)}`;
  const texts = usage ? [cpuText(usage), memoryText(usage), gpuText(usage)] : ["", "", ""];
  return texts.map((text, number) => (
    <td key={number} title={text ? told : undefined}>
      {text}
      {number === 2 && usage && usage.gpu_errors.length > 0 && (
        <Text color="red.fg" fontSize="xs" lineClamp={2} title={usage.gpu_errors.join("; ")} whiteSpace="normal" wordBreak="break-word">
          {usage.gpu_errors[0]}
        </Text>
      )}
    </td>
  ));
}

/** Roles in columns: each stands to the right of what it waits for. */
function Roles({ detail }: { detail: Detail }) {
  const roles = new Map(detail.roles.map((each) => [each.name, each]));
  const depth = (name: string): number =>
    Math.max(0, ...(roles.get(name)?.depends_on ?? []).map((each) => 1 + depth(each.role)));
  const columns: (typeof detail.roles)[] = [];
  for (const role of detail.roles) (columns[depth(role.name)] ??= []).push(role);
  return (
    <Flex align="stretch" gap={6} overflowX="auto" pb={2} tabIndex={0}>
      {columns.map((column, number) => (
        <Flex direction="column" gap={3} key={number}>
          {column.map((role) => (
            <Box bg="bg.panel" borderRadius="md" borderWidth="1px" key={role.name} minW="12rem" p={3}>
              <Flex gap={3} justify="space-between">
                <Text fontWeight="medium">
                  {role.name} × {role.replicas}
                </Text>
                <Badge>{detail.status.roles[role.name]?.state}</Badge>
              </Flex>
              {role.depends_on.map((each) => (
                <Text color="fg.muted" fontSize="xs" key={each.role + each.status} mt={1}>
                  waits for {each.role}: {each.status}
                </Text>
              ))}
            </Box>
          ))}
        </Flex>
      ))}
    </Flex>
  );
}

/** A row per instance, a bar per attempt, checkpoints as lines over all. */
function TimeLine({ detail }: { detail: Detail }) {
  const now = useNow(detail.held) / 1000;
  const times = detail.attempts.flatMap((each) => [seconds(each.started_at)!, seconds(each.finished_at) ?? now]);
  const first = Math.min(...times);
  const span = Math.max(1, Math.max(...times) - first);
  const place = (at: number) => `${(100 * (at - first)) / span}%`;
  const rows = new Map<string, typeof detail.attempts>();
  for (const each of detail.attempts) {
    const name = `${each.role}-${each.index}`;
    rows.set(name, [...(rows.get(name) ?? []), each]);
  }
  // of very many, those that were restarted come first: nothing happened to the others
  const shown = [...rows].sort(([, one], [, other]) => (rows.size > MOST_ROWS ? other.length - one.length : 0)).slice(0, MOST_ROWS);
  const states = new Map(detail.status.instances.map((each) => [`${each.role}-${each.index}`, each.state]));
  return (
    <Box>
      <Box borderRadius="md" borderWidth="1px" maxH="50vh" overflowY="auto" p={2} position="relative" tabIndex={0}>
        {shown.map(([name, attempts]) => (
          <Flex align="center" gap={3} h="1.5rem" key={name}>
            <Text flex="0 0 8rem" fontSize="xs" truncate>
              {name}
            </Text>
            <Box flex="1" h="1rem" position="relative">
              {attempts.map((each, number) => {
                const from = seconds(each.started_at)!;
                const to = seconds(each.finished_at) ?? now;
                const last = number === attempts.length - 1;
                const colour = each.finished_at && !last ? "orange" : colourOfInstance(states.get(name) ?? "");
                return (
                  <Box
                    bg={`${colour}.solid`}
                    borderRadius="sm"
                    h="100%"
                    key={`${each.epoch}.${each.job_attempt}.${each.attempt}`}
                    left={place(from)}
                    minW="2px"
                    position="absolute"
                    title={`${name}, attempt ${each.attempt}: ${clock(each.started_at)} to ${each.finished_at ? clock(each.finished_at) : "now"}, ${duration(to - from)}`}
                    width={`calc(${(100 * (to - from)) / span}% - 1px)`}
                  />
                );
              })}
              {detail.checkpoints.map((each) => (
                <Box
                  bg="purple.solid"
                  h="100%"
                  key={each.uri + each.at}
                  left={place(seconds(each.at)!)}
                  position="absolute"
                  title={`checkpoint of step ${each.step}, ${clock(each.at)}`}
                  width="2px"
                />
              ))}
            </Box>
          </Flex>
        ))}
      </Box>
      <Flex color="fg.muted" fontSize="xs" justify="space-between" mt={1}>
        <Text>{new Date(first * 1000).toLocaleTimeString()}</Text>
        <Text>
          {duration(span)}
          {rows.size > MOST_ROWS && `; ${MOST_ROWS} of ${rows.size} instances, the most restarted first`}
        </Text>
      </Flex>
    </Box>
  );
}

const LEVELS: Record<string, string> = { error: "red.fg", warning: "orange.fg" };

async function story(detail: Detail): Promise<EventAnswer[]> {
  const found: EventAnswer[] = [];
  for (;;) {
    const page = await get<EventPage>(
      ofTraining(detail.summary.dag, detail.summary.uid, "/events"),
      { after: found.at(-1)?.seq ?? 0, limit: PAGE },
    );
    found.push(...page.events);
    if (!page.more || found.length >= 20 * PAGE) return found;
  }
}

function Events({ detail }: { detail: Detail }) {
  const { data, error } = useQuery({
    queryKey: ["events", detail.summary.uid, detail.status.state, detail.status.condition],
    queryFn: () => story(detail),
    placeholderData: (before) => before,
    refetchInterval: detail.held ? 5000 : false,
  });
  if (error && !data) return <Problem error={error} />;
  const newest = [...(data ?? [])].reverse();
  return (
    <Box as="ol" borderRadius="md" borderWidth="1px" fontSize="sm" listStyleType="none" maxH="50vh" overflowY="auto" p={2} tabIndex={0}>
      {newest.map((each) => (
        <Flex as="li" gap={3} key={each.seq} py="2px">
          <Text color="fg.muted" flex="0 0 5.5rem" fontVariantNumeric="tabular-nums" title={each.at}>
            {clock(each.at)}
          </Text>
          <Text color={LEVELS[each.level]} minW={0} title={each.rule ? `rule: ${each.rule}` : undefined} wordBreak="break-word">
            {each.role && <b>{`${each.role}${each.index === null ? "" : `-${each.index}`} `}</b>}
            {each.reason}
            {each.message && `: ${each.message}`}
          </Text>
        </Flex>
      ))}
    </Box>
  );
}
