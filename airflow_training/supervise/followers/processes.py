"""Where the processes of one run stand: kept current while it is driven, and in the store.

What they tell comes with observations or, from a cluster with an address to report to, through the
store. What a snapshot in the store says is believed only where its checksum is right.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_training.checkpoints.generation_state import GenerationState, read_generation_state
from airflow_training.control.model import Event, Ledger
from airflow_training.control.observations import InstanceState, Observation
from airflow_training.control.recovery import is_shared, limit_restore_step
from airflow_training.control.reports import ProcessReport, ProgressReport
from airflow_training.control.subtask_snapshot import (
    ProcessSnapshot,
    resume_processes,
    write_snapshot,
)
from airflow_training.control.subtasks import (
    Subtasks,
    apply_instance_states,
    apply_reports,
    new_subtasks,
)
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.errors import RuntimeUnavailable
from airflow_training.frameworks.ranks import ranked_roles
from airflow_training.state.store import Store
from airflow_training.supervise.followers.follower import Follower, FollowerChange

__all__ = ["ProcessHistory", "Processes"]

log = logging.getLogger(__name__)

_LOOK_SECONDS = 2.0
_ASK_SECONDS = 5.0
"""How long the beginning waits for the store of checkpoints, where a snapshot is damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessHistory:
    """What the beginning found in the store."""

    events: Sequence[Event] = ()
    not_after: int | None = None
    """Restore no step after this one: nobody can tell which ranks have it."""


class Processes(Follower):
    """The subtasks of every checkpoint group of one run."""

    def __init__(
        self,
        *,
        store: Store,
        uid: str,
        state: Callable[[], tuple[ResolvedJob, Ledger]],
        instances: Callable[[], Collection[Observation]],
        root: Callable[[str], str],
        on_progress: Callable[[Mapping[InstanceKey, ProgressReport]], None],
    ) -> None:
        """`instances`: what is known of them now. `root`: the address of a group's checkpoints.

        `on_progress` gets what each look finds in the store, so that one read serves all.
        """
        self._store = store
        self._uid = uid
        self._state = state
        self._instances = instances
        self._root = root
        self._on_progress = on_progress
        self.groups: dict[str, Subtasks] = {}
        """Name of the group -> its processes."""
        self._saved: dict[str, Subtasks] = {}
        self._ranks: dict[tuple[str, InstanceKey], set[int]] = {}
        """Group and instance -> the ranks that told something from there in this generation."""

    async def begin(self, *, now: float) -> FollowerChange | None:
        """Begin with what the holder before knew of them; step back where nobody can check it."""
        found = await self.resume(now=now)
        if not found.events:
            return None
        _, ledger = self._state()
        if found.not_after is not None:
            job = limit_restore_step(ledger.job, found.not_after)
            ledger = dataclasses.replace(ledger, job=job)
        return FollowerChange(ledger=ledger, events=found.events)

    async def resume(self, *, now: float) -> ProcessHistory:
        """Take in the snapshots of the holder before; to be called once, first."""
        documents = await asyncio.to_thread(self._store.subtasks.of_run, self._uid)
        events: list[Event] = []
        not_after: list[int] = []
        for group, document in documents.items():
            found = await self._resume(group, document, now=now)
            self.groups[group] = found.subtasks
            if found.event is not None:
                events.append(found.event)
            if found.not_after is not None:
                not_after.append(found.not_after)
        return ProcessHistory(events=events, not_after=min(not_after, default=None))

    async def _resume(self, group: str, document: Any, *, now: float) -> ProcessSnapshot:
        _, ledger = self._state()
        known = ledger.job.checkpoint

        def on(seen: GenerationState | None) -> ProcessSnapshot:
            return resume_processes(
                document,
                markers=None if seen is None else seen.verified,
                generation=0 if seen is None else seen.generation,
                world=len(self._first_ranks(group)) if seen is None else seen.world,
                newest_step=None if known is None else known.step,
                now=now,
            )

        found = on(None)
        return found if found.event is None else on(await self._standing(group))

    async def _standing(self, group: str) -> GenerationState | None:
        """Return what the store of checkpoints says; None where it says nothing in time."""
        asking = asyncio.ensure_future(asyncio.to_thread(read_generation_state, self._root(group)))
        done, _ = await asyncio.wait({asking}, timeout=_ASK_SECONDS)
        if not done:
            asking.add_done_callback(lambda task: task.exception())
            return None
        if asking.exception() is not None:
            log.warning("checkpoints of run %s: %s", self._uid, asking.exception())
            return None
        return asking.result() if asking.result().generation else None

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            await self.poll()

    async def finish(self) -> None:
        await self.poll()

    async def poll(self) -> None:
        """Take in what is new, and keep it. A store that does not answer is asked again later."""
        try:
            stored = await asyncio.to_thread(self._store.progress.newest, self._uid)
            self._on_progress(stored)
            lines = self._told(stored)
            self._take(lines)
            changed = {
                group: subtasks
                for group, subtasks in self.groups.items()
                if self._saved.get(group) != subtasks
            }
            if changed:
                await asyncio.to_thread(self._save, changed, lines)
                self._saved.update(changed)
        except RuntimeUnavailable as error:
            self._store.outage.record_failure(error)
        except Exception:  # what is shown may be late: training goes on
            log.warning("the processes of run %s could not be followed", self._uid, exc_info=True)

    def _told(
        self, stored: Mapping[InstanceKey, ProgressReport]
    ) -> Sequence[tuple[InstanceKey, ProcessReport]]:
        """Return what the processes of each instance last told, whichever way it came."""
        seen = {each.key: each.progress for each in self._instances()}
        return [
            (key, line)
            for progress in (stored, seen)
            for key, said in progress.items()
            for line in (said.subtasks if said is not None else ())
        ]

    def _save(
        self, changed: Mapping[str, Subtasks], lines: Sequence[tuple[InstanceKey, ProcessReport]]
    ) -> None:
        named = {key: line.environment for key, line in lines if line.environment}
        if named:
            self._store.environments.name(self._uid, named)
        environment = self._store.environments.reference(self._uid)
        self._store.subtasks.save(
            self._uid,
            {
                group: write_snapshot(subtasks, environment=environment)
                for group, subtasks in changed.items()
            },
        )

    # taking in -----------------------------------------------------------------------------------
    def _take(self, lines: Sequence[tuple[InstanceKey, ProcessReport]]) -> None:
        """Take in what processes told, and after that how their instances do."""
        by_group: dict[str, list[tuple[InstanceKey, ProcessReport]]] = {
            group: [] for group in self._first_groups()
        }
        for key, line in lines:
            by_group.setdefault(line.group, []).append((key, line))
        for group, news in by_group.items():
            before = self.groups.get(group) or new_subtasks(len(self._first_ranks(group)))
            after = apply_reports(before, [line for _, line in news])
            if after.generation != before.generation:
                self._ranks = {each: of for each, of in self._ranks.items() if each[0] != group}
            for key, line in news:
                if line.generation == after.generation:
                    self._ranks.setdefault((group, key), set()).add(line.rank)
            self.groups[group] = apply_instance_states(after, self._of_instances(group, after))

    def _of_instances(
        self, group: str, subtasks: Subtasks
    ) -> Mapping[InstanceState, Collection[int]]:
        """Return state -> ranks of the instances that have processes in the group."""
        first = {} if subtasks.generation else self._first_ranks(group)
        found: dict[InstanceState, set[int]] = {}
        for each in self._instances():
            key = each.key
            ranks = {first[key]} if key in first else self._ranks.get((group, key), set())
            found.setdefault(each.state, set()).update(ranks)
        return found

    # before anything was told --------------------------------------------------------------------
    def _first_groups(self) -> Sequence[str]:
        job, _ = self._state()
        return [""] if is_shared(job) else [str(key) for key in self._ranked()]

    def _first_ranks(self, group: str) -> Mapping[InstanceKey, int]:
        """Return the rank of each instance as if it were one process; of a group never empty."""
        ranked = self._ranked()
        own = {key: 0 for key in ranked if str(key) == group}
        return own or {key: rank for rank, key in enumerate(ranked)}

    def _ranked(self) -> Sequence[InstanceKey]:
        job, ledger = self._state()
        roles = ranked_roles(job) or [role.name for role in job.roles]
        return [
            InstanceKey(role, index)
            for role in roles
            for index in range(max(1, ledger.roles[role].replicas if role in ledger.roles else 1))
        ]
