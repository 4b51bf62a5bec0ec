// Every instance: where it is, how far, how fast, what it uses, and when it was last heard from.
import { Badge, Box, Button, Flex, Input, Link, Table, Text } from "@chakra-ui/react";
import { useState, type ReactNode } from "react";

import type { Detail, Instance } from "./api.ts";
import { instancesWith, isSilent, metricColumns, rankOf } from "./instances.ts";
import { useNow } from "./parts.tsx";
import { serverTime } from "./serverClock.ts";
import { ago, colourOfInstance, cpuText, gpuText, memoryText, moment, quantity, why } from "./words.ts";

/** A browser takes seconds for thousands of rows. */
const MOST_ROWS = 100;

/** Of very many instances: a part, and a field to find others in. */
export function Instances({ detail, onLog }: { detail: Detail; onLog: (instance: string) => void }) {
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
  "& th": { bg: "bg", fontWeight: "medium", left: 0, position: "sticky" }, // the name stays in sight
  "& td.wide": { maxW: "24rem", minW: "8rem", whiteSpace: "normal" },
  "& .last": { color: "fg.muted" },
} as const;

interface Column {
  name: string;
  /** Empty: there is nothing to say. */
  cell: (instance: Instance, name: string) => ReactNode;
}

function InstanceTable({ detail, instances, onLog }: { detail: Detail; instances: readonly Instance[]; onLog: (instance: string) => void }) {
  const now = serverTime(useNow(detail.held));
  const began = new Set(detail.attempts.map((each) => `${each.role}-${each.index}`));
  const columns = columnsOf(detail, now).filter(({ cell }) => instances.some((each) => cell(each, `${each.role}-${each.index}`) !== ""));
  return (
    <Table.ScrollArea tabIndex={0} borderRadius="md" borderWidth="1px" maxH="60vh">
      <Table.Root size="sm" stickyHeader>
        <Table.Header>
          <Table.Row>
            {["Instance", "State", ...columns.map(({ name }) => name)].map((name, number) => (
              <Table.ColumnHeader key={name} left={number === 0 ? 0 : undefined} px={2} zIndex={number === 0 ? 2 : undefined}>
                {name}
              </Table.ColumnHeader>
            ))}
          </Table.Row>
        </Table.Header>
        <Table.Body css={CELLS}>
          {instances.map((each) => {
            const name = `${each.role}-${each.index}`;
            const told = why(each);
            return (
              <tr key={name}>
                <th scope="row">
                  {began.has(name) ? (
                    <Link aria-label={`Log of ${name}`} as="button" fontWeight="inherit" onClick={() => onLog(name)} textDecoration="underline" title="Its log">
                      {name}
                    </Link>
                  ) : (
                    name
                  )}
                </th>
                <td className="wide">
                  <Badge colorPalette={colourOfInstance(each.state)} title={`since ${moment(each.last_transition_at)}`}>
                    {each.state}
                  </Badge>
                  {told && each.state !== "running" && each.state !== "succeeded" && (
                    <Text color="fg.muted" fontSize="xs" lineClamp={2} title={each.message || told} wordBreak="break-word">
                      {told}
                    </Text>
                  )}
                </td>
                {columns.map(({ name: column, cell }) => (
                  <td key={column}>{cell(each, name)}</td>
                ))}
              </tr>
            );
          })}
        </Table.Body>
      </Table.Root>
    </Table.ScrollArea>
  );
}

/** All that there may be; those that are empty for every instance are left out. */
function columnsOf(detail: Detail, now: number): Column[] {
  const again = detail.status.instances.some(({ attempt }) => attempt > 0);
  const used = (text: (usage: Detail["usage"][string]) => string, more?: (usage: Detail["usage"][string]) => ReactNode): Column["cell"] =>
    (each, name) => {
      const usage = detail.usage[name];
      if (!usage || !text(usage)) return "";
      const running = each.state === "running";
      return (
        <span className={running ? undefined : "last"} title={`${running ? "as of" : "last,"} ${ago(usage.at, now)}`}>
          {running ? text(usage) : `last ${text(usage)}`}
          {more?.(usage)}
        </span>
      );
    };
  return [
    { name: "Attempt", cell: (each) => (again ? each.attempt : "") },
    { name: "Rank", cell: (each) => rankOf(each, detail.roles) ?? "" },
    {
      name: "Step",
      cell: ({ progress }) => {
        if (progress?.step === null || progress?.step === undefined) return "";
        return `${quantity(progress.step)}${progress.total_steps ? ` / ${quantity(progress.total_steps)}` : ""}`;
      },
    },
    { name: "Samples/s", cell: (each, name) => (detail.rates[name] === undefined || each.state === "pending" ? "" : quantity(detail.rates[name])) },
    ...metricColumns(detail.metrics).map((metric): Column => ({
      name: metric,
      cell: (_, name) => (detail.metrics[name]?.[metric] === undefined ? "" : quantity(detail.metrics[name]?.[metric])),
    })),
    {
      name: "Last heard",
      cell: (each, name) => {
        const at = detail.heard[name];
        if (at === undefined) return "";
        const silent = isSilent(each, at, now);
        return (
          <Box as="span" className={each.state === "running" ? undefined : "last"} color={silent ? "orange.fg" : undefined} fontWeight={silent ? "medium" : undefined} title={moment(at)}>
            {ago(at, now)}
          </Box>
        );
      },
    },
    { name: "CPU", cell: used(cpuText) },
    { name: "Memory", cell: used((usage) => (usage.memory_bytes ? memoryText(usage) : "")) }, // none: its processes are gone
    { name: "GPU", cell: used(gpuText, ({ gpu_errors: errors }) => errors.length > 0 && (
      <Text color="red.fg" fontSize="xs" lineClamp={2} title={errors.join("; ")} whiteSpace="normal" wordBreak="break-word">
        {errors[0]}
      </Text>
    )) },
    { name: "Node", cell: (each) => each.node },
    { name: "Address", cell: (each) => each.address },
  ];
}
