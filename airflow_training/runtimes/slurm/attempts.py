"""How attempts stand: what their agents wrote on the shared folder, and what their allocations became."""

from __future__ import annotations

import contextlib
import re
import signal
import time
from collections.abc import Mapping
from typing import Any

from airflow_training.agent.files import AttemptFolder, read_json, write_json
from airflow_training.agent.order import Order
from airflow_training.control import reasons
from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.folders.attempt_state import AgentLiveness, AttemptState
from airflow_training.runtimes.folders.paths import Attempt, RunFolder, attempt_of
from airflow_training.runtimes.port import InstanceRef
from airflow_training.runtimes.slurm.allocation_options import AllocationOptions
from airflow_training.runtimes.slurm.allocations import Allocation, AllocationBook
from airflow_training.runtimes.slurm.queue_view import QueuedJob, end_reason, is_near_end
from airflow_training.runtimes.slurm.queue_watch import QueueWatch, jobs_of

__all__ = ["AttemptReader", "placement_file"]

_OWN_END_SECONDS = 60.0
"""How long the reason of a SIGTERM is looked for."""
_OF_SRUN: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?i)oom[-_ ]kill|out[ _-]of[ _-]memory"), reasons.OUT_OF_MEMORY),
    (re.compile(r"(?i)due to time limit"), "SlurmTimeLimit"),
    (re.compile(r"(?i)due to preemption"), "SlurmPreempted"),
    (re.compile(r"(?i)node fail"), "SlurmNodeFail"),
)
"""What `srun` says of a step that ended under our agent."""


def placement_file(folder: AttemptFolder) -> Any:
    """Return the path of what says in which allocation an attempt is, as which step."""
    return folder.control / "placement.json"


class AttemptReader:
    """The attempts of one run."""

    def __init__(self, run: RunFolder, book: AllocationBook, queue: QueueWatch) -> None:
        self.run = run
        self.book = book
        self._queue = queue
        self._missed: dict[str, float] = {}
        """Uid -> when it was first seen without its step; steady seconds."""

    def placement(self, folder: AttemptFolder, uid: str) -> tuple[Allocation, str] | None:
        """Return the allocation of an attempt, and the uid that its step began with."""
        found = read_json(placement_file(folder)) or {}
        if found.get("uid") != uid:
            return None
        try:
            return self.book.find(found["allocation"]), str(found["step"])
        except KeyError:
            return None

    def read(self, folder: AttemptFolder) -> AttemptState | None:
        """Return how an attempt stands; None where nothing was ever ordered."""
        document = read_json(folder.spec)
        if document is None:
            return None
        order = Order.seen(document)

        def own(name: Any) -> dict[str, Any]:
            content = read_json(name) or {}
            return content if content.get("uid") == order.uid else {}

        placed = self.placement(folder, order.uid)
        gone = placed is None or self._is_gone(*placed)
        # after looking for the step: it may just have ended
        state, end, deletion = own(folder.state), own(folder.exit), own(folder.delete)
        if end:
            life = AgentLiveness.ENDED
            if not gone and end.get("in_place"):
                life = AgentLiveness.WAITING
            if not gone and end.get("stays"):
                life = AgentLiveness.STAYING
        elif placed is None:
            life = AgentLiveness.MISSING
        elif gone and (state or placed[1] == order.uid):
            life = AgentLiveness.LOST
        elif state:
            life = AgentLiveness.ALIVE
        else:
            # one that should begin in the place of another is there once its agent says so
            asked = placed[1] == order.uid and placed[0].submitted.exists()
            life = AgentLiveness.STARTING if asked else AgentLiveness.MISSING
        return AttemptState(life=life, order=order, state=state, end=end, deletion=deletion)

    def _is_gone(self, allocation: Allocation, step: str) -> bool:
        """Return whether nothing of a step lives, nor will."""
        known = allocation.step(step)
        if known is not None and "ended_at" in known:
            return True
        return self.book.phase(allocation) == "over"

    # bringing them to a known end -------------------------------------------------------------------
    def settle(self, folder: AttemptFolder, state: AttemptState) -> AttemptState:
        """Return how an attempt stands after its end was written down, where Slurm alone knows it."""
        if state.life is AgentLiveness.LOST:
            self._missed.setdefault(state.uid, time.monotonic())
            if state.deleted:
                self._write_end(folder, state, "Deleted", "")
            elif not self._explain(folder, state):
                return self.read(folder) or state
        elif self._was_terminated(state):
            self._missed.setdefault(state.uid, time.monotonic())
            if not self._explain(folder, state):
                return state
        else:
            return state
        self._missed.pop(state.uid, None)
        return self.read(folder) or state

    @staticmethod
    def _was_terminated(state: AttemptState) -> bool:
        """Return whether somebody sent SIGTERM, and nobody has found out who.

        Slurm sends it to all processes of a step at once: the command may be gone before its agent knows of it.
        """
        end = state.end
        alone = (
            end.get("reason") == "Error"
            and end.get("signal") == signal.SIGTERM
            and state.life is AgentLiveness.ENDED
        )
        asked = end.get("reason") == "Terminated" or alone
        return asked and not end.get("explained") and not state.deleted

    def unexplained(self, state: AttemptState) -> bool:
        """Return whether it has ended, and its reason is still looked for."""
        return self._was_terminated(state)

    def _explain(self, folder: AttemptFolder, state: AttemptState) -> bool:
        """Write down why an attempt ended; False where that is not known yet."""
        placed = self.placement(folder, state.uid)
        if placed is None:
            return False
        allocation, step = placed
        lost = self.book.lost_keeper(allocation)
        if lost:
            with contextlib.suppress(RuntimeUnavailable):  # else at the end of the run
                self.book.cancel([allocation])
            message = f"node {lost}, which kept Slurm job {allocation.job}, is lost"
            self._write_end(folder, state, "SlurmNodeFail", message)
            return True
        try:
            listed = self._queue.since(self._missed[state.uid])
        except RuntimeUnavailable:
            listed = None
        jobs = [] if listed is None else list(jobs_of(listed, allocation.job))
        if listed is None or any(each.state == "COMPLETING" for each in jobs):
            if time.monotonic() - self._missed[state.uid] < _OWN_END_SECONDS:
                return False
            jobs = []
        elif jobs and not any(each.over for each in jobs):
            if state.life is AgentLiveness.LOST and not self._is_gone(allocation, step):
                del self._missed[state.uid]  # an older look at the queue did not have it
                return False
            del self._missed[state.uid]  # asked again where it is not settled by what follows
            self._write_end(folder, state, *self._of_step(allocation, step, state, jobs))
            return True
        given_up = read_json(allocation.folder / "given-up.json")  # by its keeper
        if given_up is not None:
            reason, message = "SlurmNodeFail", str(given_up["message"])
        else:
            reason, message = end_reason(jobs, asked_to_end=self._was_terminated(state))
        self._write_end(folder, state, reason, message)
        return True

    def _of_step(
        self, allocation: Allocation, step: str, state: AttemptState, jobs: list[QueuedJob]
    ) -> tuple[str, str]:
        """Return (reason, message) of a step that ended while its allocation goes on."""
        text = str((allocation.step(step) or {}).get("text", ""))
        for words, reason in _OF_SRUN:
            if words.search(text):
                return reason, _last_line(text)
        if self._was_terminated(state):
            about = read_json(self.run.about) or {}
            warned = AllocationOptions.from_document(about.get("options", {})).signal_seconds
            finished = float(state.end.get("finished_at") or 0.0)
            if is_near_end(jobs[0], at=finished, warned=warned):
                return "SlurmTimeLimit", f"the time of Slurm job {jobs[0].id} is nearly over"
            return str(state.end["reason"]), str(state.end.get("message", ""))
        if not state.state:
            return "SlurmStepFailed", _last_line(text) or "its step ended before our agent began"
        return "AgentLost", _last_line(text) or "its agent was killed"

    def _write_end(
        self, folder: AttemptFolder, state: AttemptState, reason: str, message: str
    ) -> None:
        known: Mapping[str, Any] = state.end or {
            "uid": state.uid,
            "started_at": state.state.get("started_at"),
            "finished_at": time.time(),
            "exit_code": None,
            "signal": None,
            "output": None,
        }
        end = {**known, "reason": reason, "message": message, "explained": True, "in_place": False}
        write_json(folder.exit, end, durable=True)

    def give_up(self, folder: AttemptFolder, state: AttemptState) -> bool:
        """End what was not started yet; False where its step was, or never will be."""
        placed = self.placement(folder, state.uid)
        if placed is None or not placed[0].give_up(placed[1]):
            return False
        self._write_end(folder, state, "Deleted", "")
        return True

    # finding them -----------------------------------------------------------------------------------
    def current(self, role: str, index: int) -> tuple[AttemptFolder, AttemptState] | None:
        """Return the newest attempt of an instance that Slurm knows, settled; None: there is none."""
        for _, folder in self.run.attempts(role, index):
            state = self.read(folder)
            if state is not None and state.life is not AgentLiveness.MISSING:
                return folder, self.settle(folder, state)
        return None

    def find(self, ref: InstanceRef) -> tuple[AttemptFolder, AttemptState] | None:
        """Return the attempt that `ref` means: the object itself, or without a uid its numbers."""
        for numbers, folder in self.run.attempts(ref.role, ref.index):
            state = self.read(folder)
            if state is not None and (
                ref.uid == state.uid if ref.uid else numbers == attempt_of(ref)
            ):
                return folder, state
        return None

    def each(self) -> list[tuple[Attempt, AttemptFolder, AttemptState]]:
        """Return every attempt of the run that was ordered."""
        found = []
        for role, index in self.run.instances():
            for numbers, folder in self.run.attempts(role, index):
                state = self.read(folder)
                if state is not None:
                    found.append((numbers, folder, state))
        return found


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][-300:] if lines else ""
