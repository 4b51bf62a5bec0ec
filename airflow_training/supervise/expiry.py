"""`ttlSecondsAfterFinished`: what a run still holds is given back, and its files here are deleted.

`sweep` does it for every run of the store, and whoever has driven a run on this machine to its end
for those that are due here. A run that the store does not know is never touched.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from airflow_training.control.keeping import may_be_there
from airflow_training.runtimes.port import Runtime, SupportsExpiry
from airflow_training.state.store import RunRecord, RunState, Store
from airflow_training.supervise.lease_keeper import holding

__all__ = ["EXPIRED", "expire", "expire_due", "is_expired"]

log = logging.getLogger(__name__)

EXPIRED = "ttlSecondsAfterFinished is over"
_DELETED = f"{EXPIRED}: its logs, and outputs that output.uri does not name, were deleted"
_AT_ONCE = 10
"""How many runs one process deletes on its way: a run's own end shall not wait for many."""
_AGAIN_SECONDS = 3600.0


def is_expired(state: RunState, *, now: float) -> bool:
    """Return whether a run is over, with nothing alive, for longer than it shall be kept."""
    job = state.ledger.job
    kept = state.job.ttl_seconds_after_finished
    if not job.is_over or may_be_there(job, now=now):
        return False
    return job.finished_at is not None and kept is not None and now > job.finished_at + kept


async def expire(record: RunRecord, *, store: Store, runtime: Runtime) -> None:
    """Give back what an expired run holds and delete its files; a run opened again is left alone.

    Raises StillAlive, RuntimeUnavailable, or OSError for files that cannot be deleted.
    """
    folders = runtime if isinstance(runtime, SupportsExpiry) else None
    async with holding(record, store=store) as run:  # nobody opens it again meanwhile
        state = (await asyncio.to_thread(store.read, [record.uid])).get(record.uid)
        now = await asyncio.to_thread(store.now)
        if state is None or not is_expired(state, now=now):
            return
        await runtime.remove(run)
        if folders is not None:
            await folders.quarantine(run)
        reason = EXPIRED if folders is None else _DELETED
        await asyncio.to_thread(store.tombstone, record.uid, reason=reason)
    if folders is not None:
        await folders.delete_quarantined(record.uid)


async def expire_due(*, store: Store, runtime: Runtime, besides: str) -> None:
    """Expire the runs on this machine whose time has come; what cannot be done is logged.

    `besides`: uid of the run that the caller holds.
    """
    if not isinstance(runtime, SupportsExpiry):
        return
    uids = [uid for uid in await runtime.due_runs() if uid != besides]
    for uid in uids[:_AT_ONCE]:
        again, why = _AGAIN_SECONDS, "the store does not know it"
        try:
            state = (await asyncio.to_thread(store.read, [uid])).get(uid)
            if state is not None:
                again, why = state.job.ttl_seconds_after_finished or again, "it is not time yet"
                now = await asyncio.to_thread(store.now)
                if is_expired(state, now=now):
                    await expire(state.record, store=store, runtime=runtime)
                    continue
        except Exception as error:  # noqa: BLE001 - another run's files must not fail this one
            again, why = _AGAIN_SECONDS, str(error)
        log.info("the folder of run %s stays for now: %s", uid, why)
        with contextlib.suppress(OSError):
            await runtime.look_again(uid, seconds=again)
