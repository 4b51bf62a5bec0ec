// What can be done to a training. A button asks first where work would be lost; that something was asked, here or by
// somebody else, is said until the loop has taken it up. An end can be asked for then too: nobody may be there to take it up.
import { Button, Field, Flex, Input, Text } from "@chakra-ui/react";
import { useEffect, useRef, useState } from "react";

import { act, type Action, type Detail } from "./api.ts";
import { Confirmation, ConfirmDialog } from "./ConfirmDialog.tsx";
import { Choice } from "./parts.tsx";
import { ago, askedText, lostBy } from "./words.ts";

const LABELS: Record<Action, string> = { pause: "Pause", resume: "Resume", scale: "Scale", stop: "Stop", kill: "Kill" };
const ENDS = new Set<Action>(["stop", "kill"]);

export function Buttons({ detail, now }: { detail: Detail; now: number }) {
  const [action, setAction] = useState<Action>("stop"); // kept while its dialog closes
  const [open, setOpen] = useState(false);
  const [received, setReceived] = useState<{ action: Action; seen: string } | null>(null);
  const [taken, setTaken] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const group = useRef<HTMLDivElement>(null);
  const pressed = useRef<HTMLButtonElement | null>(null);

  // the server then tells that it was asked, until the loop has acted on it: another `seen` says that it knows
  const { seen, summary: { phrase } } = detail;
  useEffect(() => setReceived(null), [phrase]);
  useEffect(() => {
    if (taken && received && seen !== received.seen) setReceived(null);
  }, [received, seen, taken]);
  // the button that was pressed may be gone with that: who has only a keyboard goes on with the ones that are there now
  const offered = detail.actions.join();
  useEffect(() => {
    if (pressed.current && !pressed.current.isConnected && document.activeElement === document.body) group.current?.focus();
  }, [offered]);

  // what anybody has asked, in this page or another, until the loop has taken it up
  const { asked } = detail;
  const waits = received?.action ?? asked?.action ?? null;
  const free = (each: Action) => waits === null || (!received && ENDS.has(each) && each !== waits);

  const send = async (action: Action, more: { role?: string; replicas?: number; reason?: string } = {}) => {
    setOpen(false);
    setError(null);
    setReceived({ action, seen: detail.seen });
    setTaken(false);
    try {
      await act(detail.summary, { action, seen: detail.seen, ...more });
      setTaken(true);
    } catch (problem) {
      setReceived(null);
      setError(problem instanceof Error ? problem.message : String(problem));
    }
  };

  const press = (action: Action, button: HTMLButtonElement) => {
    pressed.current = button;
    if (!free(action)) return;
    if (action === "resume") return void send(action);
    setAction(action);
    setOpen(true);
  };

  const said = error ?? (received ? `${LABELS[received.action].toLowerCase()}: received` : asked ? askedText(asked) : "");
  return (
    <Flex
      align="center"
      flexWrap={{ base: "wrap", md: "nowrap" }}
      position={offered || said ? undefined : "absolute"} // what is empty keeps no distance to what stands beside it
      w={{ base: offered || said ? "100%" : "auto", md: "auto" }}
    >
      <Text
        aria-live="polite"
        color={error ? "red.fg" : "fg.muted"}
        flexBasis={{ base: said ? "100%" : 0, md: "auto" }}
        fontSize="sm"
        mb={{ base: said ? 1 : 0, md: 0 }}
        maxW={{ md: "24rem" }}
        me={{ md: said ? 2 : 0 }}
      >
        {said}
        {!error && !received && asked && (
          <>
            <span aria-hidden> {ago(asked.at, now)}</span>: received
          </>
        )}
      </Text>
      <Flex aria-label="Actions" flex={{ base: 1, md: "none" }} gap={2} ref={group} role="group" tabIndex={-1}>
        {detail.actions.map((each) => (
          <Button
            aria-disabled={!free(each)} // not disabled: that would take the focus from it
            colorPalette={ENDS.has(each) ? "red" : "gray"}
            flex={{ base: 1, md: "none" }}
            key={each}
            onClick={({ currentTarget }) => press(each, currentTarget)}
            px={{ base: 1, md: 3.5 }}
            size="sm"
            variant={each === "stop" ? "solid" : "outline"}
          >
            {LABELS[each]}
          </Button>
        ))}
      </Flex>
      <ConfirmDialog finalFocus={() => pressed.current} onClose={() => setOpen(false)} open={open}>
        <ActionConfirmation action={action} detail={detail} now={now} onClose={() => setOpen(false)} onSend={send} />
      </ConfirmDialog>
    </Flex>
  );
}

function ActionConfirmation({
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
    <Confirmation
      cancel="Leave it"
      confirm={LABELS[action]}
      isHarmless={!ENDS.has(action)}
      onCancel={onClose}
      onConfirm={() => void onSend(action, scaling ? { role, replicas: Number(replicas) } : { reason })}
      title={`${LABELS[action]} ${detail.summary.job}?`}
    >
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
    </Confirmation>
  );
}
