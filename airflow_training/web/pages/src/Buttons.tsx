// What can be done to a training. A button asks first where work would be lost, and says "received" until the loop
// has acted.
import { Button, CloseButton, Dialog, Field, Flex, Input, Portal, Text } from "@chakra-ui/react";
import { useEffect, useState } from "react";

import { act, type Action, type Detail } from "./api.ts";
import { Choice } from "./parts.tsx";
import { lostBy } from "./words.ts";

const LABELS: Record<Action, string> = { pause: "Pause", resume: "Resume", scale: "Scale", stop: "Stop", kill: "Kill" };
const ENDS = new Set<Action>(["stop", "kill"]);

export function Buttons({ detail, now }: { detail: Detail; now: number }) {
  const [open, setOpen] = useState<Action | null>(null);
  const [received, setReceived] = useState<{ action: Action; seen: string } | null>(null);
  const [error, setError] = useState<string | null>(null);

  // a request counts as acted on when the run is in another state than the one it was made in
  const { phrase } = detail.summary;
  useEffect(() => setReceived(null), [phrase]);

  const send = async (action: Action, more: { role?: string; replicas?: number; reason?: string } = {}) => {
    setOpen(null);
    setError(null);
    setReceived({ action, seen: detail.seen });
    try {
      await act(detail.summary, { action, seen: detail.seen, ...more });
      if (action === "scale") setReceived(null); // the state need not change
    } catch (problem) {
      setReceived(null);
      setError(problem instanceof Error ? problem.message : String(problem));
    }
  };

  return (
    <Flex align="center" flexWrap="wrap" gap={2}>
      <Text aria-live="polite" color={error ? "red.fg" : "fg.muted"} fontSize="sm">
        {error ?? (received && `${LABELS[received.action].toLowerCase()}: received`)}
      </Text>
      {detail.actions.map((action) => (
        <Button
          colorPalette={ENDS.has(action) ? "red" : "gray"}
          disabled={received !== null}
          key={action}
          onClick={() => (action === "resume" ? void send(action) : setOpen(action))}
          size="sm"
          variant={action === "stop" ? "solid" : "outline"}
        >
          {LABELS[action]}
        </Button>
      ))}
      {open && <Confirmation action={open} detail={detail} now={now} onClose={() => setOpen(null)} onSend={send} />}
    </Flex>
  );
}

function Confirmation({
  action,
  detail,
  now,
  onClose,
  onSend,
}: {
  action: Action;
  detail: Detail;
  now: number;
  onClose: () => void;
  onSend: (action: Action, more: { role?: string; replicas?: number; reason?: string }) => Promise<void>;
}) {
  const [reason, setReason] = useState("");
  const [role, setRole] = useState(detail.roles[0]?.name ?? "");
  const chosen = detail.roles.find((each) => each.name === role);
  const [replicas, setReplicas] = useState(String(chosen?.replicas ?? 1));
  const scaling = action === "scale";
  return (
    <Dialog.Root onOpenChange={({ open }) => !open && onClose()} open placement="center">
      <Portal>
        <Dialog.Backdrop />
        <Dialog.Positioner>
          <Dialog.Content>
            <Dialog.Header>
              <Dialog.Title>
                {LABELS[action]} {detail.summary.job}?
              </Dialog.Title>
            </Dialog.Header>
            <form
              onSubmit={(event) => {
                event.preventDefault();
                void onSend(action, scaling ? { role, replicas: Number(replicas) } : { reason });
              }}
            >
              <Dialog.Body>
                <Text mb={4}>{lostBy(action, detail, now)}</Text>
                {scaling ? (
                  <Flex gap={3}>
                    <Field.Root>
                      <Field.Label>Role</Field.Label>
                      <Choice
                        label="Role"
                        onChange={(name) => {
                          setRole(name);
                          setReplicas(String(detail.roles.find((each) => each.name === name)?.replicas ?? 1));
                        }}
                        options={detail.roles.map((each) => [each.name, each.name])}
                        value={role}
                      />
                    </Field.Root>
                    <Field.Root>
                      <Field.Label>Replicas</Field.Label>
                      <Input
                        max={chosen?.max_replicas ?? undefined}
                        min={chosen?.min_replicas ?? 1}
                        onChange={(event) => setReplicas(event.currentTarget.value)}
                        required
                        type="number"
                        value={replicas}
                      />
                    </Field.Root>
                  </Flex>
                ) : (
                  ENDS.has(action) && (
                    <Field.Root>
                      <Field.Label>Reason, kept in the run's story</Field.Label>
                      <Input onChange={(event) => setReason(event.currentTarget.value)} value={reason} />
                    </Field.Root>
                  )
                )}
              </Dialog.Body>
              <Dialog.Footer>
                <Button onClick={onClose} variant="outline">
                  Leave it
                </Button>
                <Button autoFocus colorPalette={ENDS.has(action) ? "red" : "blue"} type="submit">
                  {LABELS[action]}
                </Button>
              </Dialog.Footer>
            </form>
            <Dialog.CloseTrigger asChild>
              <CloseButton aria-label="Close" size="sm" />
            </Dialog.CloseTrigger>
          </Dialog.Content>
        </Dialog.Positioner>
      </Portal>
    </Dialog.Root>
  );
}
