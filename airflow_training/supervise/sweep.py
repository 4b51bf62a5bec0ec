"""Ending what no task and no command ends any more: abandoned runs, expired leftovers, lost processes.

Covers one deployment's own runs only, and the runtimes that can be asked from here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_training.control.model import TERMINAL_JOB_STATES
from airflow_training.errors import RuntimeUnavailable, StillAlive
from airflow_training.settings import Settings
from airflow_training.state.store import RunRecord, RunState, Store
from airflow_training.supervise.cleanup import clean_up
from airflow_training.supervise.expiry import EXPIRED, expire, is_expired
from airflow_training.supervise.launch import controller_id
from airflow_training.supervise.lease_keeper import LEASE_SECONDS
from airflow_training.supervise.owners import provably_dead
from airflow_training.supervise.runtimes import make_runtime

__all__ = ["Swept", "sweep"]

_ALL = 1_000_000
_STOP_SECONDS = 120.0


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


async def sweep(
    *, store: Store, settings: Settings, idle_seconds: float, dry_run: bool
) -> Sequence[Swept]:
    """End what is left over; return what was found.

    `idle_seconds`: a run that nobody has driven for so long is abandoned. A run of the command
    line that was killed may still be continued with its run id until then.
    """
    controller = await asyncio.to_thread(controller_id, store, settings)
    records = await asyncio.to_thread(store.runs, limit=_ALL, controller=controller)
    found: list[Swept] = []
    for record in records:
        state = (await asyncio.to_thread(store.read, [record.uid])).get(record.uid)
        why = _why(state, now=await asyncio.to_thread(store.now), idle_seconds=idle_seconds)
        if state is not None and why and record.runtime != "memory":
            found.append(await _end(record, why, store=store, settings=settings, dry_run=dry_run))
    found += await _orphans(controller, records, store=store, settings=settings, dry_run=dry_run)
    return found


def _why(state: RunState | None, *, now: float, idle_seconds: float) -> str:
    """Return why the run is to be ended; empty when it is not."""
    if state is None:
        return ""
    job = state.ledger.job
    if job.state in TERMINAL_JOB_STATES and job.drained:
        # a tombstone marks the ones that were removed already
        return EXPIRED if is_expired(state, now=now) and not state.record.tombstone else ""
    lease = state.lease
    if lease is not None and lease.expires_at > now and not provably_dead(lease.owner):
        return ""
    last_driven = lease.expires_at - LEASE_SECONDS if lease is not None else 0.0
    idle = now - max(last_driven, job.last_transition_at, state.record.submitted_at)
    return f"nobody has driven it for {idle:.0f} s" if idle > idle_seconds else ""


async def _end(
    record: RunRecord, why: str, *, store: Store, settings: Settings, dry_run: bool
) -> Swept:
    problem = ""
    if not dry_run:
        runtime = make_runtime(record.runtime, settings)
        try:
            if why == EXPIRED:
                await expire(record, store=store, runtime=runtime)
            else:
                await clean_up(
                    record.uid,
                    store=store,
                    runtime=runtime,
                    reason=f"Swept: {why}",
                    by="sweep",
                    timeout_seconds=_STOP_SECONDS,
                )
        except (StillAlive, RuntimeUnavailable, OSError) as error:
            problem = str(error)
    return Swept(
        uid=record.uid,
        run_id=record.key.run_id,
        job=record.job,
        why=why,
        done=not dry_run and not problem,
        problem=problem,
    )


async def _orphans(
    controller: str,
    records: Sequence[RunRecord],
    *,
    store: Store,
    settings: Settings,
    dry_run: bool,
) -> Sequence[Swept]:
    """End living instances on this machine whose run is over or was forgotten."""
    from airflow_training.runtimes.local import LocalRuntime

    states = await asyncio.to_thread(store.read, [record.uid for record in records])
    alive = {
        uid
        for uid, state in states.items()
        if state.ledger.job.state not in TERMINAL_JOB_STATES or not state.ledger.job.drained
    }
    runtime = LocalRuntime.from_settings(settings)
    found = []
    for orphan in await runtime.find_orphans(controller=controller, known_uids=alive):
        problem = ""
        if not dry_run:
            try:
                await runtime.remove(orphan.run)
            except (StillAlive, RuntimeUnavailable) as error:
                problem = str(error)
        names = ", ".join(orphan.instances)
        found.append(
            Swept(
                uid=orphan.run.uid,
                run_id="",
                job=orphan.run.job,
                why=f"{names} on {', '.join(orphan.hosts)}: alive without a run",
                done=not dry_run and not problem,
                problem=problem,
            )
        )
    return found
