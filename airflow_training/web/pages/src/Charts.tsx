// Every metric of every rank, one cursor over all charts.
import { Box, SimpleGrid, Text } from "@chakra-ui/react";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { get, ofTraining, type Detail, type SeriesPage } from "./api.ts";
import { Check, ChartControls, useChosen, type Chosen } from "./ChartControls.tsx";
import { having, MOST_CURVES, type Range } from "./curves.ts";
import { MetricChart, REFRESH_MS, SOME_POINTS } from "./MetricChart.tsx";
import { ordered } from "./metricOrder.ts";
import { Loading, Problem } from "./parts.tsx";
import { quantity } from "./words.ts";

export function Charts({ detail }: { detail: Detail }) {
  const path = ofTraining(detail.summary.dag, detail.summary.uid, "/series");
  const refetchInterval = detail.held ? REFRESH_MS : (false as const);
  const [chosen, setChosen] = useChosen();
  const [samples, setSamples] = useState(false);
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  const [hiddenRanks, setHiddenRanks] = useState<ReadonlySet<string>>(new Set());
  // of all charts, as the cursor is
  const [range, setRange] = useState<Range | null>(null);
  const choose = (next: Chosen) => {
    if (next.axis !== chosen.axis) setRange(null);
    setChosen(next);
  };
  const known = new Set(Object.values(detail.metrics).flatMap((each) => Object.keys(each)));
  const { data, error } = useQuery({
    queryKey: ["names", detail.summary.uid],
    queryFn: () => get<SeriesPage>(path),
    placeholderData: known.size > 0 ? { names: [...known], series: [], bands: [] } : undefined,
    refetchInterval,
  });
  if (error && !data) return <Problem error={error} />;
  if (!data) return <Loading />;
  if (data.names.length === 0) {
    return (
      <Text color="fg.muted">
        No metric is known yet. Scripts report them with `report(metrics=…)`; losses, rates and memory are found in logs too.
      </Text>
    );
  }
  const names = ordered(data.names);
  const shown = names.filter((name) => !hidden.has(name));
  return (
    <Box>
      <ChartControls chosen={chosen} onChoose={choose} samples={samples}>
        {names.map((name) => (
          <Check
            checked={!hidden.has(name)}
            key={name}
            label={name}
            onChange={(shown) => setHidden((before) => having(before, [name], !shown))}
          />
        ))}
      </ChartControls>
      <SimpleGrid alignItems="start" columns={{ base: 1, xl: Math.min(2, shown.length) }} gap={6}>
        {shown.map((name) => (
          <MetricChart
            chosen={chosen}
            detail={detail}
            hidden={hiddenRanks}
            key={name}
            name={name}
            onHidden={setHiddenRanks}
            onSamples={() => setSamples(true)}
            onWindow={setRange}
            path={path}
            range={range}
          />
        ))}
      </SimpleGrid>
      <Text color="fg.muted" fontSize="xs" mt={3}>
        Drag over a chart to look closer, double-click to see all; the keys +, -, left, right and Escape do the same. Points are reduced on the server so that each stretch keeps its first,
        smallest, largest and last one; of more than {MOST_CURVES} ranks you see the median, the 5 to 95 % band, the extremes and the three ranks
        that are farthest from the median. CSV saves about {quantity(SOME_POINTS)} points of each rank that is shown, and all of one that is shown
        alone.
      </Text>
    </Box>
  );
}
