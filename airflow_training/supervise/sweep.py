"""Ending what no task and no command ends any more: abandoned runs, expired leftovers, lost instances.

Covers one deployment's own runs only, and the runtimes that can be asked from here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from airflow_training.admission.launch import controller_id
from airflow_training.builtin_runtimes import SIMULATED
from airflow_training.control.keeping import may_be_there
from airflow_training.errors import InputError, RuntimeUnavailable, StillAlive
from airflow_training.runtimes.adapter import Adapter, SweepQuery
from airflow_training.runtimes.port import SupportsExpiry
from airflow_training.runtimes.registry import adapters
from airflow_training.settings import Settings
from airflow_training.state.store import RunRecord, RunState, Store
from airflow_training.supervise.cleanup import clean_up
from airflow_training.supervise.expiry import EXPIRED, expire, is_expired
from airflow_training.supervise.kept import end_kept
from airflow_training.supervise.owners import LEASE_SECONDS, is_provably_dead
from airflow_training.supervise.runtimes import Connectors, open_runtime

__all__ = ["SweepResult", "sweep"]

log = logging.getLogger(__name__)


KEPT = "its failed instance stays for a look inside"
_ALL = 1_000_000
_STOP_SECONDS = 120.0
_BEGINNING_SECONDS = 300.0
"""Objects on a cluster that are younger may belong to a run that began after the store was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """One thing that was found."""

    uid: str
    run_id: str
    """Empty for a run that the store does not know."""
    job: str
    why: str
    done: bool
    problem: str = ""
    """Why it could not be ended."""
    deleted: str = ""
    """What goes of a run that ended long ago; empty: it, or what is left of it, is ended."""


@dataclass(slots=True, kw_only=True)
class _KnownRuns:
    """What the store says of this deployment's runs."""

    runs: dict[str, tuple[RunRecord, str]] = field(default_factory=dict)
    """Uid -> the run and its connection."""
    living: set[str] = field(default_factory=set)
    """Uids of runs that are not over."""

    def is_over(self, connection: str, namespace: str) -> bool:
        """Return whether every run that was in a namespace has ended."""
        return not any(
            uid in self.living and (own, record.namespace) == (connection, namespace)
            for uid, (record, own) in self.runs.items()
        )

    def of(self, runtime: str) -> set[tuple[str, str]]:
        """Return connection and namespace of the runs that a runtime has."""
        return {
            (connection, record.namespace)
            for record, connection in self.runs.values()
            if record.runtime == runtime
        }


async def sweep(
    *,
    store: Store,
    settings: Settings,
    idle_seconds: float,
    dry_run: bool,
    connect: Connectors | None = None,
) -> Sequence[SweepResult]:
    """End what is left over; return what was found.

    `idle_seconds`: a run that nobody has driven for so long is abandoned. A run of the command
    line that was killed may still be continued with its run id until then. `connect`: how clusters
    are reached, by kubeconfig by default.
    """
    work = _StoreSweep(store=store, settings=settings, dry_run=dry_run, connect=connect)
    return await work.sweep(idle_seconds)


def _why(state: RunState, *, now: float, idle_seconds: float) -> str:
    """Return why the run is to be ended; empty when it is not."""
    job = state.ledger.job
    if job.is_over:
        if may_be_there(job, now=now):
            return KEPT
        # a tombstone marks the ones that were removed already
        return EXPIRED if is_expired(state, now=now) and not state.record.tombstone else ""
    lease = state.lease
    if lease is not None and lease.expires_at > now and not is_provably_dead(lease.owner):
        return ""
    last_driven = lease.expires_at - LEASE_SECONDS if lease is not None else state.driver.until
    idle = now - max(last_driven, job.last_transition_at, state.record.submitted_at)
    return f"nobody has driven it for {idle:.0f} s" if idle > idle_seconds else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoreSweep:
    store: Store
    settings: Settings
    dry_run: bool
    connect: Connectors | None

    async def sweep(self, idle_seconds: float) -> Sequence[SweepResult]:
        store = self.store
        controller = await asyncio.to_thread(controller_id, store, self.settings)
        began = await asyncio.to_thread(store.now)
        known = _KnownRuns()
        found: list[SweepResult] = []
        for record in await asyncio.to_thread(store.runs, limit=_ALL, controller=controller):
            state = (await asyncio.to_thread(store.read, [record.uid])).get(record.uid)
            if state is None or record.runtime == SIMULATED:
                continue
            known.runs[record.uid] = record, state.job.connection
            if not state.ledger.job.is_over:
                known.living.add(record.uid)
            now = await asyncio.to_thread(store.now)
            why = _why(state, now=now, idle_seconds=idle_seconds)
            if why:
                found.append(await self._end_run(record, state.job.connection, why))
        for adapter in adapters():
            places = adapter.places(known.of(adapter.name), self.settings)
            for connection, namespace in sorted(places):
                sought = SweepQuery(
                    controller=controller,
                    namespace=namespace,
                    living=known.living,
                    known=known.runs.keys(),
                    older_than=began - _BEGINNING_SECONDS,
                )
                found += await self._lost(adapter, connection, sought, known)
        return found

    async def _end_run(self, record: RunRecord, connection: str, why: str) -> SweepResult:
        key = record.key
        if why != EXPIRED:
            end = partial(self._clean_up, record, connection, why)
            return await self._found(record.uid, key.run_id, record.job, why, end)
        runtime = open_runtime(record.runtime, connection=connection, connect=self.connect)
        end = partial(expire, record, store=self.store, runtime=runtime)
        found = await self._found(record.uid, key.run_id, record.job, why, end)
        logs = ", with its logs" if isinstance(runtime, SupportsExpiry) else ""
        return replace(found, deleted=f"what is left of it{logs}")

    async def _clean_up(self, record: RunRecord, connection: str, why: str) -> None:
        runtime = open_runtime(record.runtime, connection=connection, connect=self.connect)
        await end_kept(
            record,
            store=self.store,
            runtime=runtime,
            reason=f"Swept: {why}",
            by="sweep",
            timeout_seconds=_STOP_SECONDS,
        )
        await clean_up(
            record.uid,
            store=self.store,
            runtime=runtime,
            reason=f"Swept: {why}",
            by="sweep",
            timeout_seconds=_STOP_SECONDS,
        )

    async def _lost(
        self, adapter: Adapter, connection: str, sought: SweepQuery, known: _KnownRuns
    ) -> Sequence[SweepResult]:
        """End what is at a place although its run is over or was forgotten."""
        namespace = sought.namespace
        where = f"namespace {namespace}" + (f" of connection {connection}" if connection else "")
        try:
            runtime = open_runtime(adapter.name, connection=connection, connect=self.connect)
            leftovers = await adapter.leftovers(runtime, sought)
        except (RuntimeUnavailable, InputError) as error:
            named = namespace in self.settings.allowed_namespaces
            if isinstance(error, InputError) and not named and known.is_over(connection, namespace):
                # it, or the connection, was most likely deleted when the last run was over
                log.warning("%s is not looked at any more: %s", where, error)
                return []
            why = f"{where} could not be looked at"
            return [SweepResult(uid="", run_id="", job="", why=why, done=False, problem=str(error))]
        found = []
        for each in leftovers:
            run, run_id, end = each.run, "", each.end
            if end is None:  # under its lease: it may have been opened again meanwhile
                record, _ = known.runs[run.uid]
                run_id = record.key.run_id
                end = partial(self._clean_up, record, connection, each.why)
            found.append(await self._found(run.uid, run_id, run.job, each.why, end))
        return found

    async def _found(
        self, uid: str, run_id: str, job: str, why: str, end: Callable[[], Awaitable[None]]
    ) -> SweepResult:
        """Call `end`, unless we only look; say what came of it."""
        problem = ""
        if not self.dry_run:
            try:
                await end()
            except (StillAlive, RuntimeUnavailable, InputError, OSError) as error:
                problem = str(error)
        done = not self.dry_run and not problem
        return SweepResult(uid=uid, run_id=run_id, job=job, why=why, done=done, problem=problem)
