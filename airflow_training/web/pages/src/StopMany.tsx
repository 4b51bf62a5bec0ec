// Stops the runs that are chosen in the list, each as it was seen here: one that has changed meanwhile says so.
import { Table, Text } from "@chakra-ui/react";
import { useQueries } from "@tanstack/react-query";
import { useRef, useState } from "react";

import { act, get, ofTraining, type Detail } from "./api.ts";
import type { RunName } from "./compared.ts";
import { Confirmation, ConfirmDialog } from "./ConfirmDialog.tsx";
import { useNow } from "./parts.tsx";
import { lostBy } from "./words.ts";

export function StopMany({ onClose, runs }: { onClose: () => void; runs: readonly RunName[] }) {
  const now = useNow(false);
  const [said, setSaid] = useState<Record<string, string>>({});
  const sent = useRef(false);
  const [done, setDone] = useState(false);
  const details = useQueries({
    queries: runs.map(({ dag, uid }) => ({
      queryKey: ["detail to stop", uid],
      queryFn: () => get<Detail>(ofTraining(dag, uid)),
      gcTime: 0, // what is stopped is what is seen now
      refetchOnReconnect: false,
    })),
  });
  const found = details.flatMap((each) => (each.data ? [each.data] : []));
  const able = found.filter((each) => each.actions.includes("stop"));
  const stop = async () => {
    if (sent.current) return;
    sent.current = true;
    await Promise.all(
      able.map(async ({ seen, summary }) => {
        const say = (text: string) => setSaid((before) => ({ ...before, [summary.uid]: text }));
        say("sending");
        try {
          await act(summary, { action: "stop", seen });
          say("received");
        } catch (problem) {
          say(problem instanceof Error ? problem.message : String(problem));
        }
      }),
    );
    setDone(true);
  };
  return (
    <ConfirmDialog onClose={onClose} open size="lg">
      <Confirmation
        cancel={done ? "Close" : "Leave them"}
        confirm={done ? null : `Stop ${able.length}`}
        disabled={able.length === 0 || found.length < details.filter((each) => !each.error).length}
        isLong
        loading={sent.current}
        onCancel={onClose}
        onConfirm={() => void stop()}
        title={`Stop ${runs.length === 1 ? "this training" : `these ${runs.length} trainings`}?`}
      >
        <Table.Root size="sm">
          <Table.Body>
            {details.map((each, place) => (
              <Table.Row key={runs[place]!.uid}>
                <Table.Cell fontWeight="medium" minW="8rem" verticalAlign="top" wordBreak="break-word">
                  {each.data ? each.data.summary.job : runs[place]!.uid}
                  <Text color="fg.muted" fontSize="xs" fontWeight="normal">
                    {each.data?.summary.run_id}
                  </Text>
                </Table.Cell>
                <Table.Cell aria-live="polite">{said[runs[place]!.uid] ?? toldOf(each.data, each.error, now)}</Table.Cell>
              </Table.Row>
            ))}
          </Table.Body>
        </Table.Root>
      </Confirmation>
    </ConfirmDialog>
  );
}

function toldOf(detail: Detail | undefined, error: Error | null, now: number): string {
  if (error) return error.message;
  if (!detail) return "…";
  if (!detail.actions.includes("stop")) return `${detail.summary.phrase}: there is nothing to stop here, or you may not`;
  return lostBy("stop", detail, now);
}
