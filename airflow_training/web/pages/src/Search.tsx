// Looks for a pattern in the logs of all instances, on the server.
import { Box, Button, Flex, Input, Text } from "@chakra-ui/react";
import Anser from "anser";
import { useEffect, useRef, useState } from "react";

import { search, type LogHit, type SearchEnd } from "./api.ts";

/** `role`: of this one alone. */
export function Search({ onHit, path, role }: { onHit: (hit: LogHit) => void; path: string; role?: string }) {
  const [pattern, setPattern] = useState("");
  const [hits, setHits] = useState<LogHit[] | null>(null);
  const [end, setEnd] = useState<SearchEnd | null>(null);
  const running = useRef<AbortController | null>(null);
  useEffect(() => () => running.current?.abort(), []);

  const start = async () => {
    running.current?.abort();
    const mine = new AbortController();
    running.current = mine;
    setHits([]);
    setEnd(null);
    try {
      for await (const found of search(`${path}/search${role ? `?role=${encodeURIComponent(role)}` : ""}`, pattern, mine.signal)) {
        if (mine.signal.aborted) return;
        if ("done" in found) setEnd(found);
        else setHits((before) => [...(before ?? []), found]);
      }
    } catch (error) {
      if (mine.signal.aborted) return;
      setEnd({ done: true, more: false, problem: error instanceof Error ? error.message : String(error) });
    }
  };
  const stop = () => {
    running.current?.abort();
    setHits(null);
  };

  return (
    <Box mb={3}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (pattern) void start();
        }}
      >
        <Flex align="center" flexWrap="wrap" gap={2}>
          <Input
            aria-label="Search all logs"
            flex="1 1 14rem"
            maxW="24rem"
            onChange={(event) => setPattern(event.currentTarget.value)}
            placeholder={`Search all ${role ? `of ${role}` : "instances"}: a regular expression`}
            size="sm"
            value={pattern}
          />
          <Button disabled={!pattern} size="sm" type="submit" variant="outline">
            Search
          </Button>
          {hits && (
            <Button onClick={stop} size="sm" variant="ghost">
              {end ? "Close" : "Cancel"}
            </Button>
          )}
          <Text color="fg.muted" fontSize="xs">
            newest attempts
          </Text>
        </Flex>
      </form>
      {hits && (
        <Box aria-label="Hits" as="section" borderRadius="md" borderWidth="1px" fontSize="xs" maxH="14rem" mt={2} overflowY="auto" p={2} tabIndex={0}>
          <Text aria-live="polite" color={end?.problem ? "red.fg" : "fg.muted"} mb={1}>
            {end?.problem || `${hits.length}${end?.more ? "+" : ""} ${hits.length === 1 ? "hit" : "hits"}${end ? "" : " so far"}`}
          </Text>
          {hits.map((hit) => (
            <Flex
              _hover={{ bg: "bg.emphasized" }}
              as="button"
              gap={3}
              key={`${hit.role}-${hit.index}-${hit.offset}`}
              onClick={() => onHit(hit)}
              textAlign="left"
              width="100%"
            >
              <Text color="fg.muted" flex="0 0 8rem">
                {hit.role}-{hit.index}:{hit.line}
              </Text>
              <Text fontFamily="mono" minW={0} wordBreak="break-all">
                {Anser.ansiToText(hit.text)}
              </Text>
            </Flex>
          ))}
        </Box>
      )}
    </Box>
  );
}
