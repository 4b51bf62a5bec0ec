// The tab "Training" of a DAG run or of a task, and the page of one run where there is no Airflow.
import { Alert, Box, Button, Link as StyledLink, Portal, Text } from "@chakra-ui/react";
import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { Link, useSearchParams } from "react-router-dom";

import { get, type ApiError, type SummaryPage } from "./api.ts";
import { asMapIndex, roleOf, trainingsOf } from "./choice.ts";
import { useDetail } from "./live.ts";
import { Choice, isStandalone, Loading, Problem } from "./parts.tsx";
import { Run } from "./Run.tsx";
import { pageAlone } from "./runPage.ts";
import { placeOf } from "./words.ts";

/** Pixels that the page of a run needs, and a link to it. */
const ROOM = { link: 200, page: 480 };

interface Props {
  /** Given by Airflow. */
  dagId?: string;
  runId?: string;
  taskId?: string;
  mapIndex?: string;
  /** Given without Airflow; a run of a DAG has the query's `dag` too. */
  uid?: string;
}

interface Task {
  id: string;
  mapIndex: number | null;
}

export function RunTab({ dagId, runId, taskId, mapIndex, uid }: Props) {
  const [query] = useSearchParams();
  if (uid) return <Training dag={query.get("dag") ?? "~"} uid={uid} />;
  if (!dagId || !runId) return <Text p={4}>This page belongs to a DAG run.</Text>;
  return <OfDagRun dagId={dagId} runId={runId} task={taskId ? { id: taskId, mapIndex: asMapIndex(mapIndex) } : null} />;
}

function OfDagRun({ dagId, runId, task }: { dagId: string; runId: string; task: Task | null }) {
  const [query, setQuery] = useSearchParams();
  const [place, room] = useRoom();
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
  const mine = task ? trainingsOf(data.trainings, task.id, task.mapIndex) : data.trainings;
  const chosen = mine.find((each) => each.uid === query.get("training")) ?? mine[0];
  if (!chosen) {
    return (
      <Text color="fg.muted" p={4}>
        {query.has("training") && data.trainings.length === 0
          ? "The training is being prepared: Airflow has not run the task plan of this DAG run yet. It is shown here as soon as it has."
          : `No training belongs to this ${task ? "task" : "DAG run"}: it has none, or its task plan has not run yet.`}
      </Text>
    );
  }
  return (
    <Box ref={place}>
      <FullWidthLink query={query} room={room} run={chosen} />
      {mine.length > 1 && (
        <Box mt={3} mx={{ base: 0, md: 2 }}>
          <Choice
            label="Training"
            onChange={(training) => setQuery((before) => new URLSearchParams({ ...Object.fromEntries(before), training }))}
            options={mine.map((each) => [each.uid, `${[each.job, placeOf(each)].filter(Boolean).join(" · ")} (${each.phrase})`])}
            value={chosen.uid}
            w="28rem"
          />
        </Box>
      )}
      <Training dag={chosen.dag} key={chosen.uid} task={task} uid={chosen.uid} />
    </Box>
  );
}

/** Beside Airflow's grid a tab may have little room, on a phone none in sight: the same page has all of it where no DAG run is shown. */
function FullWidthLink({ query, room, run }: { query: URLSearchParams; room: number; run: { dag: string; uid: string } }) {
  if (room >= ROOM.page) return null;
  const link = <Link to={pageAlone(run, query)}>Open at full width</Link>;
  if (room >= ROOM.link) {
    return (
      <StyledLink asChild fontSize="sm" mt={2} variant="underline">
        {link}
      </StyledLink>
    );
  }
  return (
    <Portal>
      <Button asChild bottom={4} boxShadow="md" position="fixed" right={4} size="sm" zIndex="banner">
        {link}
      </Button>
    </Portal>
  );
}

/** How wide the part of an element is that is in sight, in pixels. */
function useRoom(): [(element: Element | null) => void, number] {
  const [element, setElement] = useState<Element | null>(null);
  const [room, setRoom] = useState(Infinity);
  useEffect(() => {
    if (!element) return undefined;
    const measure = () => {
      const { left, right } = element.getBoundingClientRect();
      setRoom(Math.max(0, Math.min(right, window.innerWidth) - Math.max(left, 0)));
    };
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    observer.observe(document.documentElement); // what moves it aside need not change its size
    return () => observer.disconnect();
  }, [element]);
  return [setElement, room];
}

/** The run itself, and why it is not shown or goes on no more. */
export function Training({ dag, uid, task = null }: { dag: string; uid: string; task?: Task | null }) {
  const { detail, error } = useDetail(dag, uid);
  const role = task && detail ? roleOf(detail.roles.map(({ name }) => name), task.id, task.mapIndex) : undefined;
  return (
    <Box>
      {detail && error && error.status !== 401 && <NoLonger error={error} />}
      <Run dag={dag} task={role} uid={uid} />
      {!detail && error && (
        <StyledLink asChild m={4} variant="underline">
          <Link to={isStandalone() ? "/" : "/plugin/trainings"}>All trainings</Link>
        </StyledLink>
      )}
    </Box>
  );
}

/** The server has shown the run, and now refuses to. That nobody is signed in is said for all pages. */
function NoLonger({ error }: { error: ApiError }) {
  const titles: Record<number, string> = {
    403: "You may no longer read this training",
    404: "This training was deleted",
  };
  return (
    <Alert.Root my={4} role="alert" status="warning">
      <Alert.Indicator />
      <Alert.Content>
        <Alert.Title>{titles[error.status] ?? error.message}</Alert.Title>
        <Alert.Description>What is shown below is the last that was known of it.</Alert.Description>
      </Alert.Content>
    </Alert.Root>
  );
}
