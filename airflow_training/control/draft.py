"""The ledger of one decision while it is being made: copied on the first change, never shared.

The steps of `decide` write here; the ledger they started from is never touched. What did not
change keeps its identity, so that a pass without news costs no copy and no write.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from airflow_training.control.actions import Action
from airflow_training.control.attempts import AttemptKey
from airflow_training.control.census import Census, HeadCounts
from airflow_training.control.lifetimes import Lifetimes
from airflow_training.control.model import (
    AnnouncedWait,
    Elapsed,
    Event,
    InstanceEntry,
    JobEntry,
    Ledger,
    ReducedSize,
    RoleEntry,
    RoleState,
)
from airflow_training.control.observations import InstanceDiagnosis, Observation, RefusedAttempt
from airflow_training.control.reason_facts import OWN_REASONS, Reasons
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob

if TYPE_CHECKING:
    from typing_extensions import Unpack  # of `typing` from 3.11 on

__all__ = ["Draft"]


class RoleChanges(TypedDict, total=False):
    """What of a role a decision may change: its `RoleEntry`, but for the name and what follows by itself."""

    state: RoleState
    reason: str
    message: str
    replicas: int
    activated: bool
    waits: Mapping[str, Elapsed]
    created: int
    reduced: ReducedSize | None
    announced_wait: AnnouncedWait | None


_Entry = TypeVar("_Entry", JobEntry, RoleEntry, InstanceEntry)


class Draft:
    """One decision in the making."""

    def __init__(
        self,
        job: ResolvedJob,
        ledger: Ledger,
        *,
        now: float,
        generation: int,
        diagnoses: Sequence[InstanceDiagnosis] = (),
        undiagnosed: Collection[AttemptKey] = (),
        known_reasons: Reasons = OWN_REASONS,
        refused: Sequence[RefusedAttempt] = (),
        time_of_day: float | None = None,
        last_words: Mapping[AttemptKey, str] | None = None,
    ) -> None:
        self.spec = job
        self.now = now
        self.time_of_day = time_of_day
        """What the clock of the machine says, which somebody may set; None: nobody has asked it."""
        self.generation = generation
        self.diagnoses = {each.attempt_key: each for each in diagnoses}
        """Why attempts failed, as far as that is known by now."""
        self.undiagnosed = undiagnosed
        """Attempts that failed by themselves and of which that will be known in a moment."""
        self.last_words = last_words or {}
        """The last line that attempts printed which have failed, "" of those that printed nothing."""
        self.known_reasons = known_reasons
        """What the reasons say that instances of this runtime end with."""
        self.refused = {(each.key, each.attempt_id): each for each in refused}
        """Attempts that the runtime does not make for now."""
        self.actions: list[Action] = []
        self.events: list[Event] = []
        self.objects: Mapping[str, Observation] = {}
        """Every object of the snapshot by its uid."""
        self.current: dict[InstanceKey, Observation] = {}
        """The object of the current attempt, where one was seen; filled in by `observing`."""
        self.occupied: dict[InstanceKey, Observation] = {}
        """Objects of other attempts that still exist: nothing new may be created beside them."""
        self.marked_for_deletion: dict[str, Observation] = {}
        """Objects to delete, by uid."""
        self.gave_up: dict[str, tuple[str, str, str]] = {}
        """Role -> reason and words for its last instance that got no further try, and its limit alone."""
        self.lives: Mapping[str, Lifetimes] = {}
        """Role -> what its instances did since the last decision, of those that others wait for."""
        self._old = ledger
        self._job = ledger.job
        self._roles: Mapping[str, RoleEntry] = ledger.roles
        self._instances: Mapping[InstanceKey, InstanceEntry] = ledger.instances
        self._own_roles: dict[str, RoleEntry] | None = None
        self._own_instances: dict[InstanceKey, InstanceEntry] | None = None
        self._heads: HeadCounts | None = None
        self._wake_at: float | None = None

    # reading -----------------------------------------------------------------------------------
    @property
    def job(self) -> JobEntry:
        return self._job

    @job.setter
    def job(self, entry: JobEntry) -> None:
        if entry != self._job:
            self._job = self._moved(self._job, entry)

    @property
    def roles(self) -> Mapping[str, RoleEntry]:
        return self._roles

    @property
    def instances(self) -> Mapping[InstanceKey, InstanceEntry]:
        return self._instances

    @property
    def before(self) -> Ledger:
        """Return the ledger that the decision started from."""
        return self._old

    @property
    def census(self) -> Census:
        """Return the counts of all instances as they are now."""
        if self._heads is None:
            self._heads = HeadCounts(self._instances.values())
        return self._heads.census()

    def instances_of(self, role: str) -> list[InstanceEntry]:
        """Return the role's instances by index, without those that were scaled away."""
        return sorted(
            (e for e in self._instances.values() if e.key.role == role and not e.retired),
            key=lambda entry: entry.key.index,
        )

    # writing -----------------------------------------------------------------------------------
    # `last_transition_at` of job, roles and instances follows the state by itself
    def set_role(self, name: str, **changes: Unpack[RoleChanges]) -> None:
        """Change fields of a role."""
        old = self._roles[name]
        new = replace(old, **changes)
        if new == old:
            return
        if self._own_roles is None:
            self._roles = self._own_roles = dict(self._roles)
        self._own_roles[name] = self._moved(old, new)

    def put(self, entry: InstanceEntry) -> InstanceEntry:
        """Write an instance, and return it as it is written."""
        key = entry.key
        old = self._instances.get(key)
        if entry == old:
            return old
        if self._own_instances is None:
            self._instances = self._own_instances = dict(self._instances)
        new = self._own_instances[key] = entry if old is None else self._moved(old, entry)
        if self._heads is not None:
            self._heads.replace(old, new)
        return new

    def _moved(self, old: _Entry, new: _Entry) -> _Entry:
        return new if new.state == old.state else replace(new, last_transition_at=self.now)

    def mark_for_deletion(self, seen: Observation) -> None:
        """Let an object be deleted, unless it was made by a holder that came after this one."""
        if seen.generation <= self.generation:
            self.marked_for_deletion[seen.uid] = seen

    def occupy(self, seen: Observation) -> None:
        """Note that an object of another attempt still exists; of several, the one most alive."""
        key = seen.key
        other = self.occupied.get(key)
        if other is None or _liveness(seen) > _liveness(other):
            self.occupied[key] = seen

    def record_event(
        self,
        reason: str,
        message: str = "",
        *,
        of: InstanceEntry | None = None,
        role: str = "",
        rule: str = "",
        level: str = "info",
        **data: Any,
    ) -> None:
        """Add a line to the run's story."""
        self.events.append(
            Event(
                at=self.now,
                reason=reason,
                message=message,
                role=of.role if of else role,
                index=of.index if of else None,
                attempt=of.attempt if of else None,
                rule=rule,
                level="error" if level == "error" else "warning" if level == "warning" else "info",
                data=data,
            )
        )

    def wake(self, at: float | None) -> None:
        """Ask to be called again at that time at the latest."""
        if at is not None and (self._wake_at is None or at < self._wake_at):
            self._wake_at = at

    # the result --------------------------------------------------------------------------------
    @property
    def wake_at(self) -> float | None:
        return self._wake_at

    def ledger(self) -> Ledger:
        """Return the new ledger: the old object itself when nothing changed."""
        old = self._old
        if self._job is old.job and self._roles is old.roles and self._instances is old.instances:
            return old
        return Ledger(job=self._job, roles=self._roles, instances=self._instances)


def _liveness(seen: Observation) -> tuple[bool, int, int, int, str]:
    alive = seen.state not in ("succeeded", "failed")
    return alive, seen.epoch, seen.job_attempt, seen.attempt, seen.uid
