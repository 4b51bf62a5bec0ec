"""Bringing a run to zero from outside its loop: for `kill`, the `cleanup` task and `sweep`.

A living holder is asked and waited for; where there is none, this takes the lease and does it
itself, with the same loop. Everything here may be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from airflow_training.control.model import Event, JobState
from airflow_training.errors import LeaseLost, StillAlive
from airflow_training.runtimes.port import Runtime
from airflow_training.state.store import Store
from airflow_training.supervise.lease_keeper import holding
from airflow_training.supervise.loop import Supervisor
from airflow_training.supervise.owners import Owner, new_owner

__all__ = ["clean_up", "drive_to_end", "stop_run"]

_SILENT = (
    "its runtime does not answer, and what is alive there goes on until it does;"
    " what was asked of the run is recorded, and carried out by whoever drives it then"
)


async def drive_to_end(
    run_uid: str,
    *,
    store: Store,
    runtime: Runtime,
    timeout_seconds: float,
    on_event: Callable[[Event], None] | None = None,
) -> JobState:
    """Return the run's terminal state once nothing of it is alive, driving it where nobody does.

    Raises StillAlive, naming the holder, when that takes longer than `timeout_seconds`.
    """
    driven: list[Supervisor] = []
    driving = _drive(run_uid, store=store, runtime=runtime, on_event=on_event, driven=driven)
    try:
        return await asyncio.wait_for(driving, timeout_seconds)
    except asyncio.TimeoutError:
        lease = await asyncio.to_thread(store.lease, run_uid)
        holder = Owner.parse(lease.owner) if lease is not None else None
        who = f"held by process {holder.pid} on {holder.host}" if holder else "held by nobody"
        ledger = await asyncio.to_thread(store.ledger, run_uid)
        silent = ledger.job.unreachable_since is not None or any(
            each.is_unanswered for each in driven[-1:]
        )
        why = f": {_SILENT}" if silent else ""
        raise StillAlive(
            f"run {run_uid} did not end within {timeout_seconds:g} s{why}; {who}"
        ) from None


async def _drive(
    run_uid: str,
    *,
    store: Store,
    runtime: Runtime,
    on_event: Callable[[Event], None] | None,
    driven: list[Supervisor],
) -> JobState:
    while True:
        supervisor = Supervisor(
            store=store, runtime=runtime, run_uid=run_uid, owner=new_owner(), on_event=on_event
        )
        driven.append(supervisor)
        try:
            return await supervisor.run()
        except LeaseLost:
            continue  # somebody else drives it now: wait for them, or for their lease


async def stop_run(
    run_uid: str,
    *,
    store: Store,
    runtime: Runtime,
    reason: str,
    by: str,
    timeout_seconds: float,
) -> JobState:
    """Ask for the run's end and see it through; a run that has ended keeps its state."""
    await asyncio.to_thread(store.add_request, run_uid, "stop", reason=reason, by=by)
    return await drive_to_end(
        run_uid, store=store, runtime=runtime, timeout_seconds=timeout_seconds
    )


async def clean_up(
    run_uid: str,
    *,
    store: Store,
    runtime: Runtime,
    reason: str = "Cleanup",
    by: str = "",
    timeout_seconds: float = 120.0,
) -> None:
    """Make sure that nothing of the run is alive and that nothing will be; idempotent.

    Stops a run that has not ended, then confirms zero under the lease. A run that the store does
    not know is nobody's. Raises StillAlive, naming what lives and where.
    """
    record = await asyncio.to_thread(store.run, run_uid)
    if record is None:
        return
    if not (await asyncio.to_thread(store.ledger, run_uid)).job.is_over:
        await stop_run(
            run_uid,
            store=store,
            runtime=runtime,
            reason=reason,
            by=by,
            timeout_seconds=timeout_seconds,
        )
    async with holding(record, store=store, timeout_seconds=timeout_seconds) as run:
        await runtime.remove(run)
