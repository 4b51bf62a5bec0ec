"""The ledger of one decision while it is being made: copied on the first change, never shared.

The steps of `decide` write here; the ledger they started from is never touched. What did not
change keeps its identity, so that a pass without news costs no copy and no write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from airflow_training.control.census import Census, census
from airflow_training.control.model import (
    Action,
    Diagnosed,
    Event,
    InstanceEntry,
    InstanceKey,
    JobEntry,
    Ledger,
    Observation,
    RoleEntry,
)
from airflow_training.spec.resolved import ResolvedJob

__all__ = ["Draft"]


class Draft:
    """One decision in the making."""

    def __init__(
        self,
        job: ResolvedJob,
        ledger: Ledger,
        *,
        now: float,
        generation: int,
        diagnoses: Sequence[Diagnosed] = (),
    ) -> None:
        self.spec = job
        self.now = now
        self.generation = generation
        self.diagnoses = {(each.role, each.index, each.attempt): each for each in diagnoses}
        """Why attempts failed, as far as that is known by now."""
        self.actions: list[Action] = []
        self.events: list[Event] = []
        self.objects: Mapping[str, Observation] = {}
        """Every object of the snapshot by its uid."""
        self.current: dict[InstanceKey, Observation] = {}
        """The object of the current attempt, where one was seen; filled in by `sightings`."""
        self.occupied: dict[InstanceKey, Observation] = {}
        """Objects of other attempts that still exist: nothing new may be created beside them."""
        self.doomed: dict[str, Observation] = {}
        """Objects to delete, by uid."""
        self.gave_up: dict[str, tuple[str, str]] = {}
        """Role -> reason and words for its last instance that got no further try."""
        self._old = ledger
        self._job = ledger.job
        self._roles: Mapping[str, RoleEntry] = ledger.roles
        self._instances: Mapping[InstanceKey, InstanceEntry] = ledger.instances
        self._own_roles: dict[str, RoleEntry] | None = None
        self._own_instances: dict[InstanceKey, InstanceEntry] | None = None
        self._census: Census | None = None
        self._wake_at: float | None = None

    # reading -----------------------------------------------------------------------------------
    @property
    def job(self) -> JobEntry:
        return self._job

    @property
    def roles(self) -> Mapping[str, RoleEntry]:
        return self._roles

    @property
    def instances(self) -> Mapping[InstanceKey, InstanceEntry]:
        return self._instances

    @property
    def census(self) -> Census:
        """Return the counts of all instances as they are now."""
        if self._census is None:
            self._census = census(self._instances)
        return self._census

    def team(self, role: str) -> list[InstanceEntry]:
        """Return the role's instances by index, without those that were scaled away."""
        return sorted(
            (e for e in self._instances.values() if e.role == role and not e.retired),
            key=lambda entry: entry.index,
        )

    # writing -----------------------------------------------------------------------------------
    def set_job(self, **changes: Any) -> None:
        """Change fields of the job; `last_transition_at` follows the state by itself."""
        if changes.get("state", self._job.state) != self._job.state:
            changes.setdefault("last_transition_at", self.now)
        if any(getattr(self._job, name) != value for name, value in changes.items()):
            self._job = replace(self._job, **changes)

    def set_role(self, name: str, **changes: Any) -> None:
        """Change fields of a role; `last_transition_at` follows the state by itself."""
        entry = self._roles[name]
        if changes.get("state", entry.state) != entry.state:
            changes.setdefault("last_transition_at", self.now)
        if all(getattr(entry, field) == value for field, value in changes.items()):
            return
        if self._own_roles is None:
            self._roles = self._own_roles = dict(self._roles)
        self._own_roles[name] = replace(entry, **changes)

    def put(self, entry: InstanceEntry) -> None:
        """Write an instance."""
        key = (entry.role, entry.index)
        if self._own_instances is None:
            if self._instances.get(key) == entry:
                return
            self._instances = self._own_instances = dict(self._instances)
        self._own_instances[key] = entry
        self._census = None

    def change(self, entry: InstanceEntry, **changes: Any) -> InstanceEntry:
        """Write an instance with some fields changed; `last_transition_at` follows the state."""
        if all(getattr(entry, field) == value for field, value in changes.items()):
            return entry
        if changes.get("state", entry.state) != entry.state:
            changes.setdefault("last_transition_at", self.now)
        changed = replace(entry, **changes)
        self.put(changed)
        return changed

    def doom(self, seen: Observation) -> None:
        """Let an object be deleted, unless it was made by a holder that came after this one."""
        if seen.generation <= self.generation:
            self.doomed[seen.uid] = seen

    def occupy(self, seen: Observation) -> None:
        """Note that an object of another attempt still exists; of several, the one most alive."""
        key = (seen.role, seen.index)
        other = self.occupied.get(key)
        if other is None or _life(seen) > _life(other):
            self.occupied[key] = seen

    def tell(
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


def _life(seen: Observation) -> tuple[bool, int, int, int, str]:
    alive = seen.state not in ("succeeded", "failed")
    return alive, seen.epoch, seen.job_attempt, seen.attempt, seen.uid
