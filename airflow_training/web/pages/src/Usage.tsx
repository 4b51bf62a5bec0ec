// Who used how much in a span of time: by user, team or job.
import { Box, Button, Flex, Heading, Input, NativeSelect, Table, Text } from "@chakra-ui/react";
import { useQuery } from "@tanstack/react-query";
import { useSearchParams } from "react-router-dom";

import { address, get, type UsageAnswer } from "./api.ts";
import { Loading, Problem } from "./parts.tsx";
import { UsageDays, type Amount, type Sum } from "./UsageDays.tsx";
import { daySpan, hours, lastDays, money } from "./words.ts";

const BY = { user: "User", team: "Team", job: "Job" } as const;
const SPANS: readonly [string, number][] = [
  ["Today", 1],
  ["7 days", 7],
  ["30 days", 30],
  ["90 days", 90],
  ["1 year", 365],
];
const USUAL_DAYS = 30;

const AMOUNTS: readonly Amount[] = [
  { name: "Instance hours", asked: "", of: (sum) => sum.instance_seconds / 3600, text: hours },
  { name: "CPU hours", asked: "CPU", of: (sum) => sum.cpu_hours, text: hours },
  { name: "GPU hours", asked: "GPU", of: (sum) => sum.gpu_hours, text: hours },
  { name: "Memory, GiB hours", asked: "memory", of: (sum) => sum.memory_gib_hours, text: hours },
];

export function Usage() {
  const [query, setQuery] = useSearchParams();
  const asked = query.get("by") ?? "";
  const by = asked in BY ? (asked as keyof typeof BY) : "user";
  const usual = lastDays(USUAL_DAYS, new Date());
  const from = query.get("from") ?? usual.from;
  const to = query.get("to") ?? usual.to;
  const span = daySpan(from, to);
  const wanted = { by, ...span };
  const { data, error } = useQuery({
    enabled: span !== null,
    queryKey: ["usage", by, from, to],
    queryFn: () => get<UsageAnswer>("usage", wanted),
    placeholderData: (before) => before,
    refetchInterval: 60_000,
  });
  const set = (values: Record<string, string>) =>
    setQuery((before) => new URLSearchParams({ ...Object.fromEntries(before), ...values }), { replace: true });
  return (
    <Box p={{ base: 2, md: 4 }}>
      <Flex align="center" flexWrap="wrap" gap={3} justify="space-between" mb={4}>
        <Heading as="h1" size="lg">
          Usage
        </Heading>
        <Flex align="center" flexWrap="wrap" gap={2}>
          <NativeSelect.Root size="sm" w="7rem">
            <NativeSelect.Field aria-label="By" onChange={(event) => set({ by: event.currentTarget.value })} value={by}>
              {Object.entries(BY).map(([value, name]) => (
                <option key={value} value={value}>
                  By {name.toLowerCase()}
                </option>
              ))}
            </NativeSelect.Field>
            <NativeSelect.Indicator />
          </NativeSelect.Root>
          <Day name="From" onChoose={(day) => set({ from: day, to })} value={from} />
          <Day name="To" onChoose={(day) => set({ from, to: day })} value={to} />
          <Button asChild size="sm" variant="outline">
            <a download href={address("usage.csv", wanted)}>
              CSV
            </a>
          </Button>
        </Flex>
      </Flex>
      <Flex flexWrap="wrap" gap={2} mb={4}>
        {SPANS.map(([name, days]) => {
          const values = lastDays(days, new Date());
          const chosen = values.from === from && values.to === to;
          return (
            <Button aria-pressed={chosen} key={name} onClick={() => set(values)} size="xs" variant={chosen ? "solid" : "outline"}>
              {name}
            </Button>
          );
        })}
      </Flex>
      {span === null && <Text role="alert">Choose days of one year at most, the first not after the last one.</Text>}
      {error && <Problem error={error} />}
      {span !== null && !data && !error && <Loading />}
      {data && !error && span !== null && <Sums answer={data} />}
    </Box>
  );
}

function Day({ name, onChoose, value }: { name: string; onChoose: (day: string) => void; value: string }) {
  return (
    <Input
      aria-label={name}
      css={{ _dark: { colorScheme: "dark" } }}
      onChange={(event) => onChoose(event.currentTarget.value)}
      size="sm"
      type="date"
      value={value}
      w="9.5rem"
    />
  );
}

function Sums({ answer }: { answer: UsageAnswer }) {
  if (answer.sums.length === 0) return <Text color="fg.muted">No training that you may read ran in these days.</Text>;
  const { currency, days, total } = answer;
  const requested = AMOUNTS.filter(({ asked, of }) => !asked || of(total) > 0);
  const missing = AMOUNTS.filter((each) => !requested.includes(each)).map(({ asked }) => asked);
  const cost: Amount = { name: `Cost, ${currency}`, asked: "", of: (sum) => Number(sum.cost), text: (value) => money(value) };
  const shown = currency === null ? requested : [...requested, cost];
  const heads = [BY[answer.by], ...(answer.by === "job" ? ["DAG"] : []), "Runs", ...shown.map(({ name }) => name)];
  return (
    <>
      <UsageDays amounts={shown} days={days} />
      <Table.ScrollArea borderRadius="md" borderWidth="1px" tabIndex={0}>
        <Table.Root size="sm">
          <Table.Header>
            <Table.Row>
              {heads.map((name, number) => (
                <Table.ColumnHeader key={name} textAlign={number >= heads.length - shown.length - 1 ? "end" : "start"}>
                  {name}
                </Table.ColumnHeader>
              ))}
            </Table.Row>
          </Table.Header>
          <Table.Body>
            {answer.sums.map((each) => (
              <Table.Row key={`${each.dag_id}/${each.name}`}>
                <Table.Cell fontWeight="medium" wordBreak="break-word">
                  {each.name || <Text color="fg.muted">none known</Text>}
                </Table.Cell>
                {answer.by === "job" && <Table.Cell wordBreak="break-word">{each.dag_id ?? "command line"}</Table.Cell>}
                <Numbers amounts={shown} sum={each} />
              </Table.Row>
            ))}
          </Table.Body>
          <Table.Footer>
            <Table.Row fontWeight="medium">
              <Table.Cell colSpan={answer.by === "job" ? 2 : 1}>All</Table.Cell>
              <Numbers amounts={shown} sum={total} />
            </Table.Row>
          </Table.Footer>
        </Table.Root>
      </Table.ScrollArea>
      <Text color="fg.muted" fontSize="sm" maxW="4xl" mt={3}>
        Of all runs that you may read. CPU, memory and GPU are what instances requested, times how long they ran, whatever they
        really used of it.
        {currency !== null && " The cost is that of the same, by the prices of each moment; what has no price costs nothing."}
        {missing.length > 0 && ` Nobody requested any ${missing.join(" or ")}.`}
        {total.unrequested_seconds > 0 &&
          ` ${hours(total.unrequested_seconds / 3600)} of the instance hours are of instances that requested nothing: they add nothing to CPU, memory and GPU.`}
      </Text>
    </>
  );
}

function Numbers({ amounts, sum }: { amounts: readonly Amount[]; sum: Sum }) {
  return (
    <>
      <Table.Cell textAlign="end">{sum.runs}</Table.Cell>
      {amounts.map(({ name, of, text }, number) => (
        <Table.Cell
          fontVariantNumeric="tabular-nums"
          key={name}
          textAlign="end"
          title={number === 0 ? `${Math.round(sum.instance_seconds)} instance-seconds` : undefined}
        >
          {text(of(sum))}
        </Table.Cell>
      ))}
    </>
  );
}
