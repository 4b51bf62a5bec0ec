"""Saves state at step boundaries and brings it back, for any framework: when, in what memory, and by which thread.

A `Saver` is asked at the end of every step. It copies the state when a save is due and uploads in the
background; there is never more than one copy. All ranks of a group save at the same steps: they ask each other
every half second or so, see `steps_between_looks`. What the state is, the caller knows.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from airflow_training.agent.progress import report_checkpoint, section
from airflow_training.checkpoints import reading, tree
from airflow_training.checkpoints.agreement import Agreement, SingleProcessAgreement
from airflow_training.checkpoints.data_outage import DataOutage
from airflow_training.checkpoints.documents import canonical, sha256_of
from airflow_training.checkpoints.errors import CheckpointError, StaleGeneration
from airflow_training.checkpoints.group import Group
from airflow_training.checkpoints.instructions import (
    Instructions,
    by_hand,
    from_environment,
    rank_and_world,
)
from airflow_training.checkpoints.interval import (
    AutoInterval,
    SaveCost,
    StepInterval,
    TimeInterval,
    auto_seconds,
    fits_in_grace,
    grace_needed,
    seconds_between_failures,
    steps_between_looks,
    young_seconds,
)
from airflow_training.checkpoints.opening import agreement_of, find_start, open_configured_group
from airflow_training.checkpoints.pace import StepPace
from airflow_training.checkpoints.records import Manifest
from airflow_training.checkpoints.rejoin_decision import SaveInFlight, can_commit
from airflow_training.checkpoints.termination import EXIT_CODE, Termination

__all__ = ["ResumePoint", "Saver"]

log = logging.getLogger("airflow_training.checkpoints")

Capture: TypeAlias = Callable[[], Any]
"""Returns the state as a tree. Its sections `data` and `rng` are known by name: cursor and random numbers."""

COMMIT_SECONDS = 600.0
"""How long ranks wait for each other before a save is given up; training goes on meanwhile."""

COMMIT_GRACE_SECONDS = 10.0
"""How long a save may still take whose group was left, where the ranks that remain can commit it."""


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """A checkpoint to go on from, and this rank's part of it."""

    root: str
    manifest: Manifest
    mine: bool
    """This rank existed when it was saved; else the part is that of rank 0."""
    document: Any
    blobs: Mapping[str, bytes | bytearray]

    @property
    def step(self) -> int:
        """Steps that were done."""
        return self.manifest.step

    def state(self, *, allow_pickle: bool = False) -> Any:
        """Return the tree that was saved."""
        return tree.decode(self.document, self.blobs, allow_pickle=allow_pickle)

    def parts(self) -> Iterator[tuple[Any, Mapping[str, bytes | bytearray]]]:
        """Yield document and blobs of each rank, one at a time."""
        for rank in range(self.manifest.world):
            yield reading.read(self.root, self.manifest, rank)


@dataclass(slots=True)
class _PendingSave:
    """A save whose copy is made; a thread uploads it, and notes here what came of it."""

    step: int
    started: float
    stall_seconds: float
    thread: threading.Thread | None = None
    ended: float = 0.0
    manifest: Manifest | None = None
    error: Exception | None = None


class Saver:
    """Saves at step boundaries; without a place to save to, all of it does nothing.

    What the job file says of place and interval counts; `root` (a folder or an address) and `every` (see
    `interval.parse_every`, default `auto`) are for scripts that run by themselves. `place` is rank and number of
    ranks where the environment does not say, `agreement` how these ranks reach each other (default: through the
    store). `pinned` copies into memory that a device writes to directly.
    """

    def __init__(
        self,
        *,
        root: str | os.PathLike[str] | None = None,
        every: Any = None,
        place: tuple[int, int] | None = None,
        agreement: Agreement | None = None,
        pinned: bool = False,
        allow_pickle: bool = False,
    ) -> None:
        self._instructions = from_environment() or (
            by_hand(os.fspath(root), every) if root is not None else None
        )
        self.rank, self.world = place or rank_and_world()
        self._agreement = agreement
        self._allow_pickle = allow_pickle
        self._pinned = pinned
        self._arena = tree.Arena(pinned=pinned)
        self._pace = StepPace()
        self._group: Group | None = None
        self._running: _PendingSave | None = None
        self._reserving: threading.Thread | None = None
        self._termination = Termination(
            self._instructions.grace_seconds if self._instructions else 0.0
        )
        self._outage = DataOutage()
        self._cost: SaveCost | None = None
        self._saved = self._completed = self._next_look = 0
        self._boundary_at = self._saved_at = 0.0
        self._look_seconds = math.inf

    @property
    def enabled(self) -> bool:
        """Whether there is a place to save to."""
        return self._instructions is not None

    @property
    def stopping(self) -> bool:
        """Whether this process was asked to end (SIGTERM)."""
        return self._termination.left_seconds is not None

    @property
    def agreement(self) -> Agreement:
        """How the ranks of the group reach each other."""
        if self._agreement is None:
            instructions = self._instructions
            self._agreement = (
                SingleProcessAgreement()
                if instructions is None
                else agreement_of(instructions, rank=self.rank, world=self.world)
            )
        return self._agreement

    # the start -------------------------------------------------------------------------------------

    def restore(self) -> ResumePoint | None:
        """Open the group, with all other ranks, and return what to go on from; None to begin at step 0.

        Raises:
            StaleGeneration: a later start of this training has taken over.
            CheckpointError: there is something, and it cannot be read.
        """
        instructions = self._instructions
        if instructions is None:
            return None
        self._group = self._open(instructions, deep=True)
        self._boundary_at = self._saved_at = time.monotonic()
        root, manifest = find_start(instructions, self._group)
        if manifest is None:
            return None
        mine = self.rank < manifest.world
        document, blobs = reading.read(root, manifest, self.rank if mine else 0)
        self._saved = self._completed = self._next_look = manifest.step
        log.info("going on after step %d, saved %s", manifest.step, root)
        return ResumePoint(root, manifest, mine, document, blobs)

    def _open(self, instructions: Instructions, *, deep: bool) -> Group:
        return open_configured_group(
            instructions, rank=self.rank, world=self.world, agreement=self.agreement, deep=deep
        )

    # ranks that left or came -----------------------------------------------------------------------

    def regroup(self, *, place: tuple[int, int], agreement: Agreement) -> None:
        """Leave the group; `restore` or `take_over` opens the next one, of other ranks: all of these call it.

        A save that runs has a moment to end where all ranks that it lacks are left; else it is given up at once.
        """
        seconds = COMMIT_GRACE_SECONDS if self._can_commit(agreement) else 0.0
        with contextlib.suppress(StaleGeneration):
            self._collect(wait_seconds=seconds)
        if self._group is not None:
            self._group.abandon()
        with contextlib.suppress(StaleGeneration):
            self._collect(wait_seconds=COMMIT_SECONDS)
        if self._reserving is not None:
            self._reserving.join()
        self._arena, self._reserving = tree.Arena(pinned=self._pinned), None
        (self.rank, self.world), self._agreement = place, agreement

    def _can_commit(self, agreement: Agreement) -> bool:
        """Whether the save that runs can still be committed by the ranks that are left, as all of them see it."""
        mine = self._save_in_flight()
        told = agreement.gather(None if mine is None else mine.to_json())
        everyone = [SaveInFlight.from_json(each) for each in told if each is not None]
        return mine is not None and can_commit(mine.save, everyone)

    def _save_in_flight(self) -> SaveInFlight | None:
        running, group = self._running, self._group
        if group is None or running is None or running.thread is None:
            return None
        if not running.thread.is_alive():
            return None
        try:
            return group.describe_save(running.step)
        except OSError:  # nothing is committed to a store that does not answer
            return None

    @property
    def orders(self) -> Mapping[str, Any]:
        """What the controller said to this process when it began, as far as it may say another thing to others."""
        instructions = self._instructions
        if instructions is None:
            return {}
        epoch = int(instructions.incarnation.partition(".")[0] or 0)
        names = ("incarnation", "order", "not_after", "exactly")
        return {"epoch": epoch, **{name: getattr(instructions, name) for name in names}}

    def follow(self, orders: Mapping[str, Any]) -> None:
        """Do as the controller said to another rank, which was started later."""
        if self._instructions is not None:
            changed = {name: value for name, value in orders.items() if name != "epoch"}
            self._instructions = dataclasses.replace(self._instructions, **changed)

    def copy(self, state: Any) -> tuple[Any, dict[str, memoryview]]:
        """Return document and blobs of a tree, copied into the memory of saves: valid until the next one."""
        taken = tree.outline(state, allow_pickle=self._allow_pickle)
        return taken.document, self._arena.copy(taken)

    def take_over(self, step: int) -> bool:
        """Open the group, with all other ranks, for state of this step that they hold; no state is read.

        Returns whether that is the newest there is: a checkpoint that is newer must not be passed over.
        """
        instructions = self._instructions
        if instructions is not None:
            self._group = self._open(instructions, deep=False)
            if self._group.newest_step > step:
                return False
            self._saved = self._group.newest_step
        self._boundary_at = self._saved_at = time.monotonic()
        self._completed = self._next_look = step
        return True

    # the steps -------------------------------------------------------------------------------------

    def boundary(self, completed: int, capture: Capture) -> None:
        """Say that `completed` steps are done: saves when it is time.

        Raises:
            SystemExit: with 143 after SIGTERM, once the state is saved or where the grace is too short for it.
            StaleGeneration: a later start of this training has taken over; this process must not go on.
            CheckpointError: the state cannot be saved as it is.
        """
        group = self._group
        if self._instructions is None:
            return
        if group is None:
            raise CheckpointError("restore() comes before the first step: it says where to begin")
        self._termination.watch()
        before, self._completed = self._completed, completed
        self._pace.step(time.monotonic() - self._boundary_at, saving=self._running is not None)
        every = self._instructions.every
        # a loop may make several steps from one boundary to the next
        due = isinstance(every, StepInterval) and completed // every.steps > before // every.steps
        if completed >= self._next_look:
            due |= self._check(completed, capture)
        if due:
            self._collect(wait_seconds=COMMIT_SECONDS)
            self._start(completed, capture, deadline=COMMIT_SECONDS)
        elif self._reserving is None:
            size = tree.outline(capture(), allow_pickle=self._allow_pickle).size
            self._reserving = threading.Thread(
                target=self._arena.reserve, args=(size,), daemon=True
            )
            self._reserving.start()
        self._boundary_at = time.monotonic()

    def save(self, completed: int, capture: Capture) -> Manifest | None:
        """Save now and wait; return the manifest, None where some rank could not. All ranks call it."""
        if self._instructions is None:
            return None
        with section("save"):
            self._collect(wait_seconds=COMMIT_SECONDS)
            self._start(completed, capture, deadline=COMMIT_SECONDS)
            return self._collect(wait_seconds=COMMIT_SECONDS)

    def close(self, capture: Capture | None) -> None:
        """Save the last step where that has not happened, and wait; without `capture` only wait.

        Raises:
            CheckpointError: the last step could not be saved.
        """
        try:
            if self._group is None:
                return
            with section("save"):
                self._collect(wait_seconds=COMMIT_SECONDS)
            if capture is not None and self._saved < self._completed:
                manifest = self.save(self._completed, capture)
                if manifest is None:
                    raise CheckpointError(f"the last step, {self._completed}, could not be saved")
        finally:
            self._termination.release()

    def _check(self, completed: int, capture: Capture) -> bool:
        """Return whether to save now, as all ranks decide it; does not return where they are to end."""
        self._collect(wait_seconds=0)
        asked = time.monotonic()
        ranks = self.agreement.gather(
            {
                "left": self._termination.left_seconds,
                "busy": self._running is not None,
                "due": self._is_due(asked),
                "away": self._saved < completed and self._outage.asks_save(),
                "takes": self._cost.total_seconds if self._cost else None,
                "step": self._pace.step_seconds,
                "look": 0.0 if math.isinf(self._look_seconds) else self._look_seconds,
            }
        )
        # the shortest: what is above it was waiting for a slower rank, as every step does
        self._look_seconds = min(self._look_seconds, time.monotonic() - asked)
        left = [rank["left"] for rank in ranks if rank["left"] is not None]
        if left:
            # all judge by the same numbers, those of rank 0 and of the first that was asked to end
            busy = any(rank["busy"] for rank in ranks)
            takes = ranks[0]["takes"]
            self._end(completed, capture, min(left), takes=(takes or 0.0) * (2 if busy else 1))
        if self.world > 1:
            # rank 0's clocks for everybody: the next look must be at the same step
            self._next_look = completed + steps_between_looks(
                step_seconds=ranks[0]["step"],
                look_seconds=ranks[0]["look"],
                grace_seconds=self._termination.grace_seconds,
            )
        if any(rank["busy"] for rank in ranks):
            return False
        # each node fetches for itself: whichever misses the data first speaks for all
        if any(rank["away"] for rank in ranks):
            self._outage.answered()
            return True
        return bool(ranks[0]["due"])

    def _is_due(self, now: float) -> bool:
        every = self._instructions.every if self._instructions else None
        if isinstance(every, TimeInterval):
            return now - self._saved_at >= every.seconds
        return isinstance(every, AutoInterval) and now - self._saved_at >= self._auto_seconds()

    def _auto_seconds(self) -> float:
        return auto_seconds(self._cost, mean_seconds=self._mean_seconds())

    def _mean_seconds(self) -> float:
        failures = self._group.generation - 1 if self._group else 0
        trained = self._completed * self._pace.step_seconds
        return seconds_between_failures(trained_seconds=trained, failures=failures)

    def _end(self, completed: int, capture: Capture, left: float, *, takes: float) -> None:
        """Save if it fits in what is left of the grace, and leave."""
        end = time.monotonic() + left
        self._collect(wait_seconds=left)
        if self._saved < completed:
            if fits_in_grace(left_seconds=left, save_seconds=takes):
                log.info("asked to end: saving step %d within %.0f s", completed, left)
                left = max(0.0, end - time.monotonic())
                self._start(completed, capture, deadline=left)
                self._collect(wait_seconds=left)
            else:
                log.warning("asked to end: a save takes longer than the %.0f s that are left", left)
        log.info("ends after step %d, saved is step %d", completed, self._saved)
        raise SystemExit(EXIT_CODE)

    # one save --------------------------------------------------------------------------------------

    def _start(self, completed: int, capture: Capture, *, deadline: float) -> None:
        """Copy the state, and upload the copy in the background."""
        self._outage.saved()
        group = self._group
        if group is None or self._running is not None:
            return  # the one before is stuck, and its copy still in use
        started = time.monotonic()
        if self._reserving is not None:
            self._reserving.join()
        try:
            state = capture()
            taken = tree.outline(state, allow_pickle=self._allow_pickle)
            blobs = self._arena.copy(taken)
            part = {"document": taken.document, "cursor": _cursor(state), "rng": _rng_digest(state)}
        except Exception as error:
            group.fail(completed, str(error))
            raise
        self._saved_at = time.monotonic()
        running = _PendingSave(completed, started, self._saved_at - started)

        def upload() -> None:
            try:
                group.write(completed, blobs, **part)
                running.manifest = group.commit(completed, deadline=deadline)
            except Exception as error:  # noqa: BLE001 - for the main thread to judge
                running.error = error
            running.ended = time.monotonic()
            self._report(running)

        # a daemon: a process that has to end is not held by an upload that does not
        running.thread = threading.Thread(target=upload, name=f"save-{completed}", daemon=True)
        running.thread.start()
        self._running = running

    def _report(self, running: _PendingSave) -> None:
        """Let the controller know of a checkpoint; rank 0 speaks for all."""
        if running.manifest is not None and self.rank == 0 and self._instructions is not None:
            with contextlib.suppress(OSError):  # a full disk: what is committed stays committed
                report_checkpoint(
                    reading.reference(self._instructions.root, running.manifest),
                    took=round(running.ended - running.started, 3),
                    stall=round(running.stall_seconds, 4),
                    bytes=running.manifest.size,
                    number=running.manifest.number,
                )

    def _collect(self, *, wait_seconds: float) -> Manifest | None:
        """Take in the save that runs, if it is over by then; return what it committed."""
        running = self._running
        if running is None or running.thread is None:
            return None
        running.thread.join(wait_seconds)
        if running.thread.is_alive():
            return None
        self._running = None
        slowed = self._pace.take_slowed_seconds()
        if isinstance(running.error, StaleGeneration):
            raise running.error
        if running.error is not None:
            log.warning("step %d is not saved, training goes on: %s", running.step, running.error)
        if running.manifest is not None:
            self._saved = running.step
            first, self._cost = (
                self._cost is None,
                SaveCost(
                    stall_seconds=running.stall_seconds,
                    slowed_seconds=slowed,
                    total_seconds=running.ended - running.started,
                ),
            )
            if first:
                self._report_cost(self._cost)
        return running.manifest

    def _report_cost(self, cost: SaveCost) -> None:
        both = cost.stall_seconds + cost.slowed_seconds
        mean = self._mean_seconds()
        log.info(
            "a save takes %.2f s; training stands still for %.3f s and is slower by %.3f s."
            " With a failure every %.1f h, `auto` saves every %.0f s (Young alone: %.0f s)",
            cost.total_seconds,
            cost.stall_seconds,
            cost.slowed_seconds,
            mean / 3600,
            auto_seconds(cost, mean_seconds=mean),
            young_seconds(cost_seconds=both, mean_seconds=mean),
        )
        needed = grace_needed(step_seconds=self._pace.step_seconds, save_seconds=cost.total_seconds)
        if needed > self._termination.grace_seconds:
            log.warning(
                "a stop needs %.0f s to save, the grace is %.0f s: raise"
                " terminationGracePeriodSeconds, or what was done since the last save is lost",
                needed,
                self._termination.grace_seconds,
            )


def _cursor(state: Any) -> Any:
    """Return the position in the data, where it is known and no more than JSON."""
    taken = tree.outline(state.get("data") if isinstance(state, Mapping) else None)
    return None if taken.leaves else taken.document


def _rng_digest(state: Any) -> str:
    """Return the digest of the states of all random generators, empty where none were saved."""
    if not isinstance(state, Mapping) or "rng" not in state:
        return ""
    document, blobs = tree.encode(state["rng"])
    return sha256_of(canonical(document) + b"".join(blobs.values()))
