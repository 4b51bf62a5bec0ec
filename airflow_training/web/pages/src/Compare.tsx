// The curves of several runs in one chart each.
import { Box, Flex, SimpleGrid, Text } from "@chakra-ui/react";
import { useQueries } from "@tanstack/react-query";
import { useState } from "react";

import { get, ofTraining, type Detail, type SeriesPage } from "./api.ts";
import { Chart } from "./Chart.tsx";
import { pointsOf, type Curve } from "./curves.ts";
import { Choice, Loading, Problem } from "./parts.tsx";
import { seconds } from "./words.ts";

export const MOST_RUNS = 8;
const AXES = { step: "Step", minutes: "Minutes since the start" } as const;

export interface RunName {
  dag: string;
  uid: string;
}

/** A run is told by its first instance that has the metric: the chief, or rank 0. */
export function Compare({ runs }: { runs: readonly RunName[] }) {
  const [axis, setAxis] = useState<keyof typeof AXES>("step");
  const details = useQueries({
    queries: runs.map(({ dag, uid }) => ({ queryKey: ["detail", uid], queryFn: () => get<Detail>(ofTraining(dag, uid)) })),
  });
  const names = useQueries({
    queries: runs.map(({ dag, uid }) => ({ queryKey: ["names", uid], queryFn: () => get<SeriesPage>(ofTraining(dag, uid, "/series")) })),
  });
  const problem = [...details, ...names].find((each) => each.error)?.error;
  if (problem) return <Problem error={problem} />;
  if ([...details, ...names].some((each) => !each.data)) return <Loading />;
  const found = details.map((each) => each.data!);
  const metrics = [...new Set(names.flatMap((each) => each.data!.names))].sort();
  if (metrics.length === 0) return <Text color="fg.muted">None of these runs has told a metric.</Text>;
  return (
    <Box>
      <Flex mb={4}>
        <Choice label="Axis" onChange={(value) => setAxis(value as typeof axis)} options={Object.entries(AXES)} value={axis} w="14rem" />
      </Flex>
      <SimpleGrid columns={{ base: 1, xl: Math.min(2, metrics.length) }} gap={6}>
        {metrics.map((name) => (
          <Metric axis={axis} details={found} key={name} name={name} />
        ))}
      </SimpleGrid>
    </Box>
  );
}

function Metric({ axis, details, name }: { axis: keyof typeof AXES; details: readonly Detail[]; name: string }) {
  const answers = useQueries({
    queries: details.map(({ summary }) => ({
      queryKey: ["first", summary.uid, name],
      queryFn: () => get<SeriesPage>(ofTraining(summary.dag, summary.uid, "/series"), { name, points: 1000, first: 1 }),
    })),
  });
  const jobs = new Set(details.map((each) => each.summary.job));
  const curves = answers.flatMap((answer, place): Curve[] => {
    const { summary, status } = details[place]!;
    const first = answer.data?.series[0];
    if (!first) return [];
    const points = pointsOf(first, axis, seconds(status.started_at) ?? 0);
    return [{ kind: "line", label: jobs.size > 1 ? `${summary.job} ${summary.run_id}` : summary.run_id, points }];
  });
  return (
    <Box as="figure" bg="bg.panel" borderRadius="md" borderWidth="1px" data-metric={name} minW={0} p={3}>
      <Text as="figcaption" fontSize="sm" fontWeight="medium" mb={1}>
        {name}
      </Text>
      <Chart axis={AXES[axis]} clock={false} curves={curves} logarithmic={false} marks={[]} name={name} />
    </Box>
  );
}
