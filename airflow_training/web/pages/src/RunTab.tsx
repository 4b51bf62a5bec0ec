// The tab "Training" of a DAG run or of a task, and the page of one run where there is no Airflow.
import { Box, Text } from "@chakra-ui/react";
import { useQuery } from "@tanstack/react-query";
import { useSearchParams } from "react-router-dom";

import { get, type SummaryPage } from "./api.ts";
import { Choice, Loading, Problem } from "./parts.tsx";
import { Run } from "./Run.tsx";

interface Props {
  /** Given by Airflow. */
  dagId?: string;
  runId?: string;
  taskId?: string;
  /** Given without Airflow; a run of a DAG has the query's `dag` too. */
  uid?: string;
}

export function RunTab({ dagId, runId, taskId, uid }: Props) {
  const [query] = useSearchParams();
  if (uid) return <Run dag={query.get("dag") ?? "~"} uid={uid} />;
  if (!dagId || !runId) return <Text p={4}>This page belongs to a DAG run.</Text>;
  return <OfDagRun dagId={dagId} runId={runId} taskId={taskId} />;
}

function OfDagRun({ dagId, runId, taskId }: { dagId: string; runId: string; taskId?: string }) {
  const [query, setQuery] = useSearchParams();
  const { data, error } = useQuery({
    queryKey: ["trainings", dagId, runId],
    queryFn: () =>
      get<SummaryPage>(
        `dags/${encodeURIComponent(dagId)}/dagRuns/${encodeURIComponent(runId)}/trainings`,
      ),
    // the first one appears when `plan` has run, mapped groups one by one
    refetchInterval: (found) => (found.state.data?.trainings.length ? 15_000 : 3_000),
  });
  if (error && !data) return <Problem error={error} />;
  if (!data) return <Loading />;
  const mine = taskId ? data.trainings.filter((each) => taskId.startsWith(each.group_id ?? "")) : data.trainings;
  const chosen = mine.find((each) => each.uid === query.get("training")) ?? mine[0];
  if (!chosen) {
    return (
      <Text color="fg.muted" p={4}>
        No training belongs to this DAG run: it has none, or its task `plan` has not run yet.
      </Text>
    );
  }
  return (
    <Box>
      {mine.length > 1 && (
        <Box mt={3} mx={{ base: 0, md: 2 }}>
          <Choice
            label="Training"
            onChange={(training) => setQuery((before) => new URLSearchParams({ ...Object.fromEntries(before), training }))}
            options={mine.map((each) => {
              const place = each.map_index >= 0 ? `[${each.map_index}]` : "";
              return [each.uid, `${[each.job, each.group_id, place].filter(Boolean).join(" · ")} (${each.phrase})`];
            })}
            value={chosen.uid}
            w="28rem"
          />
        </Box>
      )}
      <Run dag={chosen.dag} key={chosen.uid} task={taskId} uid={chosen.uid} />
    </Box>
  );
}
