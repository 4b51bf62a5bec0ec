// Starts the training's job once more: from the beginning, or from one of its checkpoints.
import { Box, Button, Link as StyledLink, Text } from "@chakra-ui/react";
import { useQuery } from "@tanstack/react-query";
import { useRef, useState } from "react";
import { Link } from "react-router-dom";

import { get, ofTraining, post, type RerunOffer, type RerunRequest, type RerunAnswer, type Detail, type Summary, type SummaryPage } from "./api.ts";
import { Confirmation, ConfirmDialog } from "./ConfirmDialog.tsx";
import { isStandalone } from "./parts.tsx";
import { runPage } from "./runPage.ts";
import { quantity } from "./words.ts";

/** Whether this user may start the job again from here; null until that is known. */
export function useRerunOffer({ dag, uid }: Summary): RerunOffer | null {
  const { data } = useQuery({ queryKey: ["again", uid], queryFn: () => get<RerunOffer>(ofTraining(dag, uid, "/again")) });
  return data ?? null;
}

/** `step`: of the checkpoint that the new run goes on from. */
export function AgainWindow({
  detail,
  finalFocus,
  onClose,
  open,
  step,
}: {
  detail: Detail;
  /** What has the focus when it is closed. */
  finalFocus: () => HTMLElement | null;
  onClose: () => void;
  open: boolean;
  step?: number;
}) {
  return (
    <ConfirmDialog finalFocus={finalFocus} onClose={onClose} open={open}>
      <AgainDialog detail={detail} onClose={onClose} step={step} />
    </ConfirmDialog>
  );
}

export function AgainButton({ detail, label }: { detail: Detail; label: string }) {
  const [open, setOpen] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  return (
    <>
      <Button onClick={() => setOpen(true)} ref={button} size="sm" variant="outline">
        {label}
      </Button>
      <AgainWindow detail={detail} finalFocus={() => button.current} onClose={() => setOpen(false)} open={open} />
    </>
  );
}

/** Where a run is that was just begun. */
export function Begun({ taken }: { taken: RerunAnswer }) {
  // a DAG run is there at once; a process needs a moment, in which its page would be none
  const { data } = useQuery({
    queryKey: ["begun", taken.run_id],
    queryFn: () => get<SummaryPage>("trainings", { limit: 1, text: taken.run_id }),
    enabled: isStandalone(),
    refetchInterval: (found) => (found.state.data?.trainings.length ? false : 1000),
  });
  if (isStandalone() && !data?.trainings.length)
    return `Received: ${taken.run_id} begins. What keeps it from beginning stands in this run's events.`;
  return (
    <>
      Received:{" "}
      <StyledLink asChild textDecoration="underline">
        <Link to={runPage(taken)}>{taken.run_id}</Link>
      </StyledLink>
    </>
  );
}

/** What sends the wish for another run, once; `said`: how that stands, until it is `taken`. */
export function useAgain({ dag, uid }: Summary) {
  const [said, setSaid] = useState<string | null>(null);
  const [taken, setTaken] = useState<RerunAnswer | null>(null);
  const sent = useRef(false);
  const send = async (asked: RerunRequest): Promise<boolean> => {
    if (sent.current) return false;
    sent.current = true;
    setSaid("sending");
    try {
      setTaken(await post<RerunAnswer>(ofTraining(dag, uid, "/again"), asked));
      setSaid(null);
      return true;
    } catch (problem) {
      sent.current = false;
      setSaid(problem instanceof Error ? problem.message : String(problem));
      return false;
    }
  };
  return { said, taken, send };
}

function AgainDialog({ detail, onClose, step }: { detail: Detail; onClose: () => void; step?: number }) {
  const { summary } = detail;
  const { said, taken, send } = useAgain(summary);
  const from = step === undefined ? "from the beginning" : `from the checkpoint of step ${quantity(step)}`;
  const how = isStandalone()
    ? "by a process of `airflow-training run` on this machine, in the folder and environment of this server"
    : "as a new DAG run with the same parameters (conf), by the DAG as it is now; it runs all that the DAG has";
  return (
    <Confirmation
      cancel={taken ? "Close" : "Cancel"}
      confirm={taken ? null : "Run again"}
      isHarmless
      loading={said === "sending"}
      onCancel={onClose}
      onConfirm={() => void send({ step: step ?? null, document: null })}
      title={`Run ${summary.job} again ${from}?`}
    >
      <Text>
        The job begins {how}. This run stays as it is.
      </Text>
      <Box aria-live="polite" mt={3} wordBreak="break-word">
        {taken ? <Begun taken={taken} /> : said}
      </Box>
    </Confirmation>
  );
}
