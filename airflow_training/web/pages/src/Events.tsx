// What happened to a run, as a story: the newest first, of all or of one kind; the rule that decided stands behind it.
import { Box, Checkbox, Code, Flex, Input, Text } from "@chakra-ui/react";
import { useQuery, type QueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";

import { get, ofTraining, type Detail, type EventAnswer, type EventPage } from "./api.ts";
import { Choice, Problem } from "./parts.tsx";
import { clock, moment } from "./words.ts";

const PAGE = 500;
const MOST = 10_000;
const LEVELS: Record<string, string> = { error: "red.fg", warning: "orange.fg" };
const SHOWN: Record<string, readonly string[]> = { "": ["info", "warning", "error"], warning: ["warning", "error"], error: ["error"] };

/** What is known already, and what came after it. */
async function story(detail: Detail, client: QueryClient, key: readonly string[]): Promise<readonly EventAnswer[]> {
  let found = client.getQueryData<readonly EventAnswer[]>(key) ?? [];
  for (;;) {
    const page = await get<EventPage>(
      ofTraining(detail.summary.dag, detail.summary.uid, "/events"),
      { after: found.at(-1)?.seq ?? 0, limit: PAGE },
    );
    if (page.events.length > 0) found = [...found, ...page.events];
    if (!page.more || found.length >= MOST) return found;
  }
}

/** The events of a run, oldest first. */
export function useEvents(detail: Detail): { events: readonly EventAnswer[]; error: Error | null; loading: boolean } {
  const key = ["events", detail.summary.uid];
  const { data, error, refetch } = useQuery({
    queryKey: key,
    queryFn: ({ client }) => story(detail, client, key),
    refetchInterval: detail.held ? 5000 : false,
    structuralSharing: false,
  });
  const state = `${detail.status.state} ${detail.status.condition} ${detail.seen}`;
  const [seen, setSeen] = useState(state);
  useEffect(() => {
    if (seen === state) return;
    setSeen(state);
    void refetch();
  }, [refetch, seen, state]);
  return { events: data ?? [], error: data ? null : error, loading: !data && !error };
}

export function Events({ error, events, loading }: ReturnType<typeof useEvents>) {
  const [level, setLevel] = useState("");
  const [text, setText] = useState("");
  const [rules, setRules] = useState(false);
  if (error) return <Problem error={error} />;
  if (loading) return null;
  if (events.length === 0) return <Text color="fg.muted">No event yet.</Text>;
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = events.filter((each) => {
    const told = `${who(each)} ${each.reason} ${each.message} ${each.rule ?? ""}`.toLowerCase();
    return SHOWN[level]!.includes(each.level) && words.every((word) => told.includes(word));
  });
  return (
    <>
      <Flex align="center" flexWrap="wrap" gap={3} mb={2}>
        <Input aria-label="Events that contain" onChange={(event) => setText(event.target.value)} placeholder="Instance, reason or words" size="sm" value={text} w="16rem" />
        <Choice
          label="Level of events"
          onChange={setLevel}
          options={[["", "All levels"], ["warning", "Warnings and errors"], ["error", "Errors"]]}
          value={level}
          w="12rem"
        />
        {events.some((each) => each.rule) && (
          <Checkbox.Root checked={rules} onCheckedChange={(event) => setRules(event.checked === true)} size="sm">
            <Checkbox.HiddenInput />
            <Checkbox.Control />
            <Checkbox.Label>Rules</Checkbox.Label>
          </Checkbox.Root>
        )}
      </Flex>
      {found.length === 0 ? (
        <Text color="fg.muted">No event matches.</Text>
      ) : (
        <Box as="ol" borderRadius="md" borderWidth="1px" fontSize="sm" listStyleType="none" maxH="50vh" overflowY="auto" p={2} tabIndex={0}>
          {[...found].reverse().map((each) => (
            <Flex as="li" gap={3} key={each.seq} py="2px">
              <Text color="fg.muted" flex="0 0 auto" fontVariantNumeric="tabular-nums" minW="5.5rem" title={moment(each.at)}>
                {clock(each.at)}
              </Text>
              <Text color={LEVELS[each.level]} minW={0} overflowWrap="anywhere">
                {each.role && <b>{who(each)} </b>}
                {each.message || each.reason}
                {each.message && (
                  <Text as="span" color="fg.muted" fontSize="xs">
                    {" "}
                    {each.reason}
                  </Text>
                )}
                {rules && each.rule && (
                  <>
                    {" "}
                    <Code size="xs">rule {each.rule}</Code>
                  </>
                )}
              </Text>
            </Flex>
          ))}
        </Box>
      )}
    </>
  );
}

function who(each: EventAnswer): string {
  return each.role ? `${each.role}${each.index === null ? "" : `-${each.index}`}` : "";
}
