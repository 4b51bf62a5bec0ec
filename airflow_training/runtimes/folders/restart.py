"""Begin an attempt inside the place of one that has failed and waits: the same agent goes on with another order."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from typing import Protocol

from airflow_training.agent.files import AttemptFolder
from airflow_training.agent.order import VERSION
from airflow_training.runtimes.folders.attempt_state import AgentLiveness, AttemptState
from airflow_training.runtimes.folders.orders import give_order
from airflow_training.runtimes.folders.paths import RunFolder, attempt_of, locked
from airflow_training.runtimes.port import InstanceRef, InstanceSpec, Outcome

__all__ = ["AttemptWriter", "restart_in_place"]


class AttemptWriter(Protocol):
    """Reads and writes the attempts of one run, as a runtime does it."""

    @property
    def run(self) -> RunFolder:
        """The folder of the run."""

    def read(self, folder: AttemptFolder) -> AttemptState | None:
        """Return how an attempt stands; None where nothing was ever ordered."""

    def find(self, ref: InstanceRef) -> tuple[AttemptFolder, AttemptState] | None:
        """Return the attempt that `ref` means: the object itself, or without a uid its numbers."""

    def write_next(
        self, folder: AttemptFolder, spec: InstanceSpec, *, uid: str, after: AttemptFolder
    ) -> Outcome | None:
        """Write an attempt that begins where `after` waits; return the outcome where that cannot be."""


def restart_in_place(
    attempts: AttemptWriter,
    instance: InstanceRef,
    spec: InstanceSpec,
    *,
    seconds: float,
    poll_seconds: float,
) -> Outcome:
    """Begin the attempt of `spec` in the place of `instance`; blocks until it has begun, for `seconds` at most.

    Whatever keeps it from doing so is told as `refused`: an agent of its own can still be made.
    """
    ref, run = spec.ref, attempts.run
    folder = run.attempt(ref.role, ref.index, attempt_of(ref))
    with locked(folder.create_lock):
        begun = attempts.read(folder)
        if begun is not None and begun.recorded and not begun.deleted:
            return Outcome(ref=replace(ref, uid=begun.uid), result="adopted")
        refusal = run.refuse_or_own(ref.run.generation)
        found = None if refusal else attempts.find(instance)
        if found is None or found[1].life is not AgentLiveness.WAITING or found[1].deleted:
            return Outcome(ref=ref, result="refused", message=refusal or _NOTHING_WAITS)
        old, standing = found
        if standing.order.version != VERSION:
            message = "the agent that waits understands orders of another version"
            return Outcome(ref=ref, result="refused", message=message)
        numbers = (n for n, each in run.attempts(ref.role, ref.index) if each.spec.exists())
        if max(numbers) > attempt_of(ref):
            return Outcome(ref=ref, result="refused", message="a newer attempt exists")
        uid = begun.uid if begun is not None and not begun.deleted else uuid.uuid4().hex
        problem = attempts.write_next(folder, spec, uid=uid, after=old)
        if problem is not None:
            return replace(problem, result="refused")
        give_order(old, standing.uid, "restart", attempt=folder.path.name, next=uid)
        until = time.monotonic() + seconds
        waits = True
        while waits and time.monotonic() < until:
            before = attempts.read(old)
            waits = before is not None and before.life is AgentLiveness.WAITING
            # looked at after the one that it follows: that leaves last
            new = attempts.read(folder)
            if new is not None and new.recorded:
                return Outcome(ref=replace(ref, uid=uid), result="created")
            time.sleep(poll_seconds)
        # nothing of it may begin later, beside another that is made instead
        message = "the agent that waits does not answer" if waits else f"{_NOTHING_WAITS} any more"
        return Outcome(ref=replace(ref, uid=uid), result="refused", message=message)


_NOTHING_WAITS = "nothing waits there"
