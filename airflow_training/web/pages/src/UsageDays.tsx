// How much was used on each day: bars, and the table that says the same.
import { Box, Flex, Heading, Table, Text } from "@chakra-ui/react";
import { useState } from "react";

import type { UsageAnswer } from "./api.ts";
import { Choice } from "./parts.tsx";

export type Sum = UsageAnswer["sums"][number];

/** What a sum says, and how it is written. */
export interface Amount {
  name: string;
  /** What has to be requested for it; empty: it is there without that. */
  asked: string;
  of: (sum: Sum) => number;
  text: (value: number) => string;
}

/** So narrow a bar can still be seen and pointed at; what has no room is scrolled. */
const LEAST_WIDTH = 3;
const MOST_GAPS = 60;

/** `amounts`: those that the table of sums shows; `days`: all of them, the first one first. */
export function UsageDays({ amounts, days }: { amounts: readonly Amount[]; days: readonly Sum[] }) {
  const [chosen, setChosen] = useState("");
  const amount = amounts.find(({ name }) => name === chosen) ?? amounts.find(({ asked }) => asked === "GPU") ?? amounts[0]!;
  const values = days.map(amount.of);
  const most = Math.max(...values);
  const used = days.filter((_, day) => values[day]! > 0);
  const highest = days[values.indexOf(most)];
  if (days.length < 2 || !highest || most <= 0) return null;
  const told = `${amount.name} of each day from ${days[0]!.name} to ${days.at(-1)!.name}: most on ${highest.name}, ${amount.text(most)}`;
  return (
    <Box as="section" mb={5}>
      <Flex align="center" columnGap={3} flexWrap="wrap" justify="space-between" mb={2} rowGap={2}>
        <Heading as="h2" size="sm">
          By day (UTC)
        </Heading>
        {amounts.length > 1 && <Choice label="Bars of" onChange={setChosen} options={amounts.map(({ name }) => [name, name])} value={amount.name} w="12rem" />}
      </Flex>
      <Box borderRadius="md" borderWidth="1px" overflowX="auto" p={3} tabIndex={0}>
        <Box minW={`${days.length * LEAST_WIDTH}px`}>
          <Flex align="flex-end" aria-label={told} borderBottomWidth="1px" gap={days.length > MOST_GAPS ? 0 : "2px"} h="5rem" role="img">
            {days.map((each, day) => (
              <Flex _hover={{ bg: "bg.muted" }} align="flex-end" flex="1" h="100%" key={each.name} maxW="4rem" title={`${each.name}: ${amount.text(values[day]!)}`}>
                <Box bg="blue.solid" borderTopRadius={days.length > MOST_GAPS ? 0 : "2px"} h={`${(100 * values[day]!) / most}%`} minH={values[day] ? "2px" : 0} w="100%" />
              </Flex>
            ))}
          </Flex>
          <Flex color="fg.muted" fontSize="xs" justify="space-between" maxW={`${4 * days.length}rem`} mt={1}>
            <Text>{days[0]!.name}</Text>
            <Text>{days.at(-1)!.name}</Text>
          </Flex>
        </Box>
      </Box>
      <Box as="details" fontSize="sm" mt={1}>
        <Box as="summary" color="fg.muted" cursor="pointer" width="fit-content">
          Most: {amount.text(most)} on {highest.name}. The days as a table
        </Box>
        <Table.ScrollArea borderRadius="md" borderWidth="1px" maxH="40vh" mt={2} tabIndex={0}>
          <Table.Root size="sm" stickyHeader>
            <Table.Header>
              <Table.Row>
                {["Day (UTC)", "Runs", ...amounts.map(({ name }) => name)].map((name, number) => (
                  <Table.ColumnHeader key={name} textAlign={number ? "end" : "start"}>
                    {name}
                  </Table.ColumnHeader>
                ))}
              </Table.Row>
            </Table.Header>
            <Table.Body>
              {used.map((each) => (
                <Table.Row key={each.name}>
                  <Table.Cell whiteSpace="nowrap">{each.name}</Table.Cell>
                  <Table.Cell textAlign="end">{each.runs}</Table.Cell>
                  {amounts.map(({ name, of, text }) => (
                    <Table.Cell fontVariantNumeric="tabular-nums" key={name} textAlign="end">
                      {text(of(each))}
                    </Table.Cell>
                  ))}
                </Table.Row>
              ))}
            </Table.Body>
          </Table.Root>
        </Table.ScrollArea>
      </Box>
    </Box>
  );
}
