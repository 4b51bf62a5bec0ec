// Every instance: where it is, how far, how fast, what it uses, and when it was last heard from.
import { Badge, Box, Flex, Input, Link, Table, Text } from "@chakra-ui/react";
import { useEffect, useLayoutEffect, useRef, useState, type ReactNode } from "react";

import type { Detail, Instance } from "./api.ts";
import { instancesWith, isSilent, metricColumns, rankOf, rowWindow } from "./instances.ts";
import { useNow } from "./parts.tsx";
import { serverTime } from "./serverClock.ts";
import { ago, colourOfInstance, cpuText, gpuText, memoryText, moment, quantity, why } from "./words.ts";

/** More of them are found by words, and only those in sight are drawn. */
const MANY_ROWS = 100;
/** Of each of many, in pixels: as high as one that says why it is not well. */
const ROW_HEIGHT = 54;
const FIRST_SIZE = 600;

/** Of very many instances: a field to find some, and a table that draws what is in sight. */
export function Instances({ detail, onLog }: { detail: Detail; onLog: (instance: string) => void }) {
  const [text, setText] = useState("");
  const { instances } = detail.status;
  if (instances.length === 0) return <Text color="fg.muted">No instance was created yet.</Text>;
  if (instances.length <= MANY_ROWS) return <InstanceTable detail={detail} instances={instances} onLog={onLog} />;
  const found = instancesWith(text, instances);
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
          {quantity(found.length)} of {quantity(instances.length)}, those that do not run first
        </Text>
      </Flex>
      <InstanceTable detail={detail} instances={found} key={text} many onLog={onLog} />
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

const MANY_CELLS = {
  ...CELLS,
  "& tr:not(.space)": { height: `${ROW_HEIGHT}px` },
  "& tr.space > td": { border: "none", p: 0 },
  "& td, & th": { ...CELLS["& td, & th"], py: 0 },
} as const;

interface Column {
  name: string;
  /** Empty: there is nothing to say. */
  cell: (instance: Instance, name: string) => ReactNode;
}

interface TableProps {
  detail: Detail;
  instances: readonly Instance[];
  /** Rows are of one height, and those out of sight are left out. */
  many?: boolean;
  onLog: (instance: string) => void;
}

function InstanceTable({ detail, instances, many = false, onLog }: TableProps) {
  const [view, setView] = useState({ size: FIRST_SIZE, top: 0 });
  const { first, end } = many ? rowWindow({ ...view, count: instances.length, row: ROW_HEIGHT }) : { first: 0, end: instances.length };
  const { heads, widths } = useWidestColumns(many);
  const now = serverTime(useNow(detail.held));
  const began = new Set(detail.attempts.map((each) => `${each.role}-${each.index}`));
  const columns = columnsOf(detail, now).filter(({ cell }) => instances.some((each) => cell(each, `${each.role}-${each.index}`) !== ""));
  const look = (element: HTMLElement) => {
    const { clientHeight: size, scrollTop: top } = element;
    const next = rowWindow({ count: instances.length, row: ROW_HEIGHT, size, top });
    const focused = document.activeElement?.closest("tr[aria-rowindex]");
    const place = element.contains(focused ?? null) ? Number(focused?.getAttribute("aria-rowindex")) - 2 : next.first;
    // with a row that leaves its focus would go to the page, which keys would scroll then
    if (place < next.first || place >= next.end) element.focus({ preventScroll: true });
    setView((before) => (before.size === size && before.top === top ? before : { size, top }));
  };
  const area = useRef<HTMLDivElement | null>(null);
  useEffect(() => {
    const element = area.current;
    if (!many || !element) return undefined;
    // the first time at once: a window may be very tall
    const observer = new ResizeObserver(() => setView({ size: element.clientHeight, top: element.scrollTop }));
    observer.observe(element);
    return () => observer.disconnect();
  }, [many]);
  return (
    <Table.ScrollArea
      borderRadius="md"
      borderWidth="1px"
      maxH="60vh"
      onScroll={many ? (event) => look(event.currentTarget) : undefined}
      ref={area}
      tabIndex={0}
    >
      <Table.Root aria-rowcount={many ? instances.length + 1 : undefined} size="sm" stickyHeader>
        <Table.Header>
          <Table.Row aria-rowindex={many ? 1 : undefined} ref={heads}>
            {["Instance", "State", ...columns.map(({ name }) => name)].map((name, number) => (
              <Table.ColumnHeader key={name} left={number === 0 ? 0 : undefined} minW={widths[number] && `${widths[number]}px`} px={2} zIndex={number === 0 ? 2 : undefined}>
                {name}
              </Table.ColumnHeader>
            ))}
          </Table.Row>
        </Table.Header>
        <Table.Body css={many ? MANY_CELLS : CELLS}>
          <Space rows={first} />
          {instances.slice(first, end).map((each, place) => {
            const name = `${each.role}-${each.index}`;
            const told = why(each);
            return (
              <tr aria-rowindex={many ? first + place + 2 : undefined} key={name}>
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
                    <Text color="fg.muted" fontSize="xs" lineClamp={many ? 1 : 2} title={each.message || told} wordBreak="break-word">
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
          <Space rows={instances.length - end} />
        </Table.Body>
      </Table.Root>
    </Table.ScrollArea>
  );
}

/** In the place of rows that are out of sight. */
function Space({ rows }: { rows: number }) {
  if (rows === 0) return null;
  return (
    <tr aria-hidden className="space">
      <td style={{ height: `${rows * ROW_HEIGHT}px` }} />
    </tr>
  );
}

/** How wide each column has been: else they would move with what is in sight. */
function useWidestColumns(many: boolean): { heads: (row: HTMLTableRowElement | null) => void; widths: readonly number[] } {
  const [row, setRow] = useState<HTMLTableRowElement | null>(null);
  const [widths, setWidths] = useState<readonly number[]>([]);
  useLayoutEffect(() => {
    if (!many || !row) return;
    const now = [...row.cells].map((each) => each.offsetWidth);
    const same = now.length === widths.length && now.every((width, number) => width <= widths[number]!);
    if (!same) setWidths(now.map((width, number) => (now.length === widths.length ? Math.max(width, widths[number]!) : width)));
  });
  return { heads: setRow, widths };
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
