"""Ending what no task and no command ends any more: abandoned runs, expired leftovers, lost instances.

Covers one deployment's own runs only, and the runtimes that can be asked from here.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, cast

from airflow_training.control.model import TERMINAL_JOB_STATES
from airflow_training.errors import InputError, RuntimeUnavailable, StillAlive
from airflow_training.settings import Settings
from airflow_training.state.store import RunRecord, RunState, Store
from airflow_training.supervise.cleanup import clean_up
from airflow_training.supervise.expiry import EXPIRED, expire, is_expired
from airflow_training.supervise.launch import controller_id
from airflow_training.supervise.lease_keeper import LEASE_SECONDS
from airflow_training.supervise.owners import provably_dead
from airflow_training.supervise.runtimes import open_runtime

if TYPE_CHECKING:
    from airflow_training.runtimes.kubernetes import KubernetesRuntime
    from airflow_training.runtimes.kubernetes.connection import Connect

__all__ = ["Swept", "sweep"]

_ALL = 1_000_000
_STOP_SECONDS = 120.0
_BEGINNING_SECONDS = 300.0
"""Objects on a cluster that are younger may belong to a run that began after the store was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """One thing that was found."""

    uid: str
    run_id: str
    """Empty for a run that the store does not know."""
    job: str
    why: str
    done: bool
    problem: str = ""
    """Why it could not be ended."""


@dataclass(slots=True, kw_only=True)
class _Known:
    """What the store says of this deployment's runs."""

    runs: dict[str, tuple[RunRecord, str]] = field(default_factory=dict)
    """Uid -> the run and its connection."""
    living: set[str] = field(default_factory=set)
    """Uids of runs that are not over."""

    def places(self, settings: Settings) -> Mapping[str, set[str]]:
        """Return connection -> namespaces of a cluster in which there may be something of ours."""
        places: defaultdict[str, set[str]] = defaultdict(set)
        for record, connection in self.runs.values():
            if record.runtime == "kubernetes":
                places[connection].add(record.namespace)
        if places or settings.default_runtime == "kubernetes":
            named = (each for each in settings.allowed_namespaces if not set(each) & set("*?["))
            places[""].update(named)
        return places


async def sweep(
    *,
    store: Store,
    settings: Settings,
    idle_seconds: float,
    dry_run: bool,
    connect: Connect | None = None,
) -> Sequence[Swept]:
    """End what is left over; return what was found.

    `idle_seconds`: a run that nobody has driven for so long is abandoned. A run of the command
    line that was killed may still be continued with its run id until then. `connect`: how clusters
    are reached, by kubeconfig by default.
    """
    work = _Work(store=store, settings=settings, dry_run=dry_run, connect=connect)
    return await work.sweep(idle_seconds)


def _is_over(state: RunState) -> bool:
    return state.ledger.job.state in TERMINAL_JOB_STATES and state.ledger.job.drained


def _why(state: RunState, *, now: float, idle_seconds: float) -> str:
    """Return why the run is to be ended; empty when it is not."""
    job = state.ledger.job
    if _is_over(state):
        # a tombstone marks the ones that were removed already
        return EXPIRED if is_expired(state, now=now) and not state.record.tombstone else ""
    lease = state.lease
    if lease is not None and lease.expires_at > now and not provably_dead(lease.owner):
        return ""
    last_driven = lease.expires_at - LEASE_SECONDS if lease is not None else 0.0
    idle = now - max(last_driven, job.last_transition_at, state.record.submitted_at)
    return f"nobody has driven it for {idle:.0f} s" if idle > idle_seconds else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    store: Store
    settings: Settings
    dry_run: bool
    connect: Connect | None

    async def sweep(self, idle_seconds: float) -> Sequence[Swept]:
        store = self.store
        controller = await asyncio.to_thread(controller_id, store, self.settings)
        began = await asyncio.to_thread(store.now)
        known = _Known()
        found: list[Swept] = []
        for record in await asyncio.to_thread(store.runs, limit=_ALL, controller=controller):
            state = (await asyncio.to_thread(store.read, [record.uid])).get(record.uid)
            if state is None or record.runtime == "memory":
                continue
            known.runs[record.uid] = record, state.job.connection
            if not _is_over(state):
                known.living.add(record.uid)
            now = await asyncio.to_thread(store.now)
            why = _why(state, now=now, idle_seconds=idle_seconds)
            if why:
                found.append(await self._end_run(record, state.job.connection, why))
        found += await self._lost_processes(controller, known)
        for connection, namespaces in known.places(self.settings).items():
            for namespace in sorted(namespaces):
                found += await self._lost_pods(
                    controller, connection, namespace, known, before=began - _BEGINNING_SECONDS
                )
        return found

    async def _end_run(self, record: RunRecord, connection: str, why: str) -> Swept:
        if why == EXPIRED:
            runtime = open_runtime(record.runtime, connection=connection, connect=self.connect)
            end = partial(expire, record, store=self.store, runtime=runtime)
        else:
            end = partial(self._clean_up, record, connection, why)
        return await self._found(record.uid, record.key.run_id, record.job, why, end)

    async def _clean_up(self, record: RunRecord, connection: str, why: str) -> None:
        await clean_up(
            record.uid,
            store=self.store,
            runtime=open_runtime(record.runtime, connection=connection, connect=self.connect),
            reason=f"Swept: {why}",
            by="sweep",
            timeout_seconds=_STOP_SECONDS,
        )

    async def _lost_processes(self, controller: str, known: _Known) -> Sequence[Swept]:
        """End living instances on this machine whose run is over or was forgotten."""
        from airflow_training.runtimes.local import LocalRuntime

        runtime = LocalRuntime.from_settings(self.settings)
        orphans = await runtime.find_orphans(controller=controller, known_uids=known.living)
        return [
            await self._found(
                orphan.run.uid,
                "",
                orphan.run.job,
                f"{', '.join(orphan.instances)} on {', '.join(orphan.hosts)}: alive without a run",
                partial(runtime.remove, orphan.run),
            )
            for orphan in orphans
        ]

    async def _lost_pods(
        self, controller: str, connection: str, namespace: str, known: _Known, *, before: float
    ) -> Sequence[Swept]:
        """End what is in a namespace although its run is over or was forgotten."""
        where = f"namespace {namespace}" + (f" of connection {connection}" if connection else "")
        try:
            runtime = cast(
                "KubernetesRuntime",
                open_runtime("kubernetes", connection=connection, connect=self.connect),
            )
            orphans = await runtime.find_orphans(
                namespace,
                controller=controller,
                living=known.living,
                known=known.runs,
                older_than=before,
            )
        except (RuntimeUnavailable, InputError) as error:
            why = f"{where} could not be looked at"
            return [Swept(uid="", run_id="", job="", why=why, done=False, problem=str(error))]
        found = []
        for orphan in orphans:
            run, told = orphan.run, f"{', '.join(orphan.instances)} on {', '.join(orphan.hosts)}"
            if run.uid in known.runs:  # under its lease: it may have been opened again meanwhile
                record, _ = known.runs[run.uid]
                why = f"{told}: left over from a run that has ended"
                end = partial(self._clean_up, record, connection, why)
                found.append(await self._found(run.uid, record.key.run_id, run.job, why, end))
            else:
                why = f"{told}: without a run"
                found.append(
                    await self._found(run.uid, "", run.job, why, partial(runtime.purge, run))
                )
        return found

    async def _found(
        self, uid: str, run_id: str, job: str, why: str, end: Callable[[], Awaitable[None]]
    ) -> Swept:
        """Call `end`, unless we only look; say what came of it."""
        problem = ""
        if not self.dry_run:
            try:
                await end()
            except (StillAlive, RuntimeUnavailable, InputError, OSError) as error:
                problem = str(error)
        done = not self.dry_run and not problem
        return Swept(uid=uid, run_id=run_id, job=job, why=why, done=done, problem=problem)
