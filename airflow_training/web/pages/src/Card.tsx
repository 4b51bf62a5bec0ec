// The card on Airflow's first page: what runs, what waits, what failed today.
import { Box, Flex, Heading, Link as StyledLink, Stat } from "@chakra-ui/react";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router-dom";

import { get, type StateCounts } from "./api.ts";
import { quantity } from "./words.ts";

const REFRESH_MS = 30_000;
const DAY_MS = 86_400_000;

export function Card() {
  const { data } = useQuery({
    queryKey: ["card"],
    queryFn: async () => {
      const since = new Date(Date.now() - DAY_MS).toISOString();
      return { since, counts: await get<StateCounts>("trainings/counts", { since }) };
    },
    refetchInterval: REFRESH_MS,
  });
  const counts = data?.counts;
  return (
    <Box as="section" borderRadius="md" borderWidth="1px" p={4}>
      <Heading as="h2" mb={3} size="sm">
        <StyledLink asChild>
          <Link to="/plugin/trainings">Trainings</Link>
        </StyledLink>
      </Heading>
      <Flex columnGap={10} flexWrap="wrap" rowGap={3}>
        <Count name="Running" to="state=running" value={counts?.running} />
        <Count name="Waiting" to="state=waiting" value={counts?.waiting} />
        <Count
          name="Failed in 24 hours"
          to={`state=failed${data ? `&since=${encodeURIComponent(data.since)}` : ""}`}
          value={counts?.ended["Failed"]}
        />
      </Flex>
    </Box>
  );
}

/** The link leads to exactly those that are counted. */
function Count({ name, to, value }: { name: string; to: string; value: number | undefined }) {
  return (
    <Stat.Root flex="0 0 auto">
      <Stat.Label>{name}</Stat.Label>
      <Stat.ValueText>
        <StyledLink asChild>
          <Link to={`/plugin/trainings?${to}`}>{quantity(value)}</Link>
        </StyledLink>
      </Stat.ValueText>
    </Stat.Root>
  );
}
