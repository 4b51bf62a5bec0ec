// The card on Airflow's first page: what runs, what waits, what failed today.
import { Box, Flex, Heading, Link as StyledLink, Stat } from "@chakra-ui/react";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router-dom";

import { get, type SummaryPage } from "./api.ts";
import { seconds } from "./words.ts";

const MOST = 200;
const REFRESH_MS = 30_000;
const DAY_SECONDS = 86_400;
const RUNNING = ["Starting", "Running", "Restarting"];
const WAITING = ["Pending", "Queued", "Paused"];

function useNewest(states: readonly string[]): SummaryPage["trainings"] | undefined {
  return useQuery({
    queryKey: ["card", ...states],
    queryFn: () => get<SummaryPage>("trainings", { limit: MOST, state: states }),
    refetchInterval: REFRESH_MS,
  }).data?.trainings;
}

export function Card() {
  const running = useNewest(RUNNING);
  const waiting = useNewest(WAITING);
  const failed = useNewest(["Failed"])?.filter((each) => (seconds(each.finished_at) ?? 0) > Date.now() / 1000 - DAY_SECONDS);
  return (
    <Box as="section" borderRadius="md" borderWidth="1px" p={4}>
      <Heading as="h2" mb={3} size="sm">
        <StyledLink asChild>
          <Link to="/plugin/trainings">Trainings</Link>
        </StyledLink>
      </Heading>
      <Flex columnGap={10} flexWrap="wrap" rowGap={3}>
        <Count name="Running" to="/plugin/trainings?state=Running" value={running?.length} />
        <Count name="Waiting" to="/plugin/trainings?state=Queued" value={waiting?.length} />
        <Count name="Failed in 24 hours" to="/plugin/trainings?state=Failed" value={failed?.length} />
      </Flex>
    </Box>
  );
}

function Count({ name, to, value }: { name: string; to: string; value: number | undefined }) {
  return (
    <Stat.Root flex="0 0 auto">
      <Stat.Label>{name}</Stat.Label>
      <Stat.ValueText>
        <StyledLink asChild>
          <Link to={to}>{value === undefined ? "–" : value >= MOST ? `${MOST}+` : value}</Link>
        </StyledLink>
      </Stat.ValueText>
    </Stat.Root>
  );
}
