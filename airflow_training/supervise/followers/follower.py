"""What follows a run beside its decisions, and the moments at which the loop turns to it.

The loop does not know who follows: at each moment it goes through the list that `selection` made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from airflow_training.control.attempts import AttemptKey
from airflow_training.control.model import Decision, Event, Ledger
from airflow_training.control.observations import InstanceDiagnosis, Observations
from airflow_training.control.reports import ProgressReport, RejectedCheckpoint
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob, RunRef
from airflow_training.documents.resolved_blocks import CheckpointCommit
from airflow_training.runtimes.port import Runtime
from airflow_training.state.store import Store
from airflow_training.supervise.absences import Absence
from airflow_training.supervise.watcher import Watcher

__all__ = ["Evidence", "FollowedRun", "Follower", "FollowerChange"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedRun:
    """What followers know of their run: what its driver knows at that moment."""

    store: Store
    runtime: Runtime
    ref: RunRef
    watcher: Watcher
    state: Callable[[], tuple[ResolvedJob, Ledger]]
    may_create: Callable[[], bool]
    """Whether anything of it can exist yet."""
    progress: dict[InstanceKey, ProgressReport]
    """The newest of each instance."""
    now: Callable[[], float]
    """Epoch seconds of the run's clock."""
    wake: Callable[[], None]
    """Asks for another pass; to be called on the event loop."""
    take_absence: Callable[[], Absence | None] = lambda: None
    """Gives, once, that nobody drove the run until now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What one decision is to know beside the observations."""

    diagnoses: Sequence[InstanceDiagnosis] = ()
    undiagnosed: Collection[AttemptKey] = ()
    """Attempts whose restart waits for a diagnosis."""
    committed: Sequence[CheckpointCommit] = ()
    rejected: Sequence[tuple[InstanceKey, RejectedCheckpoint]] = ()
    events: Sequence[Event] = ()
    """What is told before whatever is decided then."""
    last_words: Mapping[AttemptKey, str] = field(default_factory=dict)
    """The last lines of attempts that failed, "" of those that printed nothing."""

    def __or__(self, other: Evidence) -> Evidence:
        return Evidence(
            diagnoses=(*self.diagnoses, *other.diagnoses),
            undiagnosed=(*self.undiagnosed, *other.undiagnosed),
            committed=(*self.committed, *other.committed),
            rejected=(*self.rejected, *other.rejected),
            events=(*self.events, *other.events),
            last_words={**self.last_words, **other.last_words},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerChange:
    """What the loop is to store for a follower."""

    ledger: Ledger
    events: Sequence[Event]
    job: ResolvedJob | None = None
    """What the run goes on as; None: as it is."""


class Follower:
    """At each moment nothing: a follower overrides those that it has something to do at."""

    async def begin(self, *, now: float) -> FollowerChange | None:  # noqa: ARG002 - see the class
        """Take up what the holder before has left; called once, before the first decision."""
        return None

    async def run(self) -> None:
        """Follow until cancelled, beside the passes."""

    def on_progress(self, fresh: Mapping[InstanceKey, ProgressReport]) -> None:
        """Hear what scripts have reported since the last time."""

    async def evidence(self, seen: Observations | None) -> Evidence:  # noqa: ARG002 - see the class
        """Evidence for the next decision; `seen` is None before the first snapshot."""
        return Evidence()

    def on_persisted(self, evidence: Evidence) -> None:
        """Hear that a decision that knew this is in the store."""

    async def explain(self, decision: Decision, *, now: float) -> Decision:  # noqa: ARG002 - see the class
        """Return the last decision of a run with what there is to say about it."""
        return decision

    def change(self, *, now: float) -> FollowerChange | None:  # noqa: ARG002 - see the class
        """The change to store now that a decision was acted on, once; None: nothing."""
        return None

    async def finish(self) -> None:
        """Look for the last time: the run is over, and nothing of it was removed yet."""

    async def close(self) -> None:
        """End what still goes on after `run` was cancelled."""
