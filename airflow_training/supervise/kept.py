"""The instance of a failed job that stays for a look inside: ended before its time, or looked into."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from airflow_training.control import reasons
from airflow_training.control.keeping import ended_early, may_be_there
from airflow_training.control.model import Event
from airflow_training.documents.instances import InstanceKey
from airflow_training.errors import InputError
from airflow_training.runtimes.port import InstanceRef, KeepsFailed, OpensShells, Runtime, Streams
from airflow_training.state.store import RunRecord, Store
from airflow_training.supervise.lease_keeper import holding

__all__ = ["end_kept", "open_shell"]


async def end_kept(
    record: RunRecord,
    *,
    store: Store,
    runtime: Runtime,
    reason: str,
    by: str,
    timeout_seconds: float = 120.0,
) -> bool:
    """End what stays of a run that has failed; return whether there may have been something.

    Raises StillAlive where it does not end, or another holder has the run.
    """
    ledger = await asyncio.to_thread(store.ledger, record.uid)
    now = await asyncio.to_thread(store.now)
    if not may_be_there(ledger.job, now=now) or not isinstance(runtime, KeepsFailed):
        return False
    async with holding(record, store=store, timeout_seconds=timeout_seconds) as run:
        await runtime.end_kept(run)
        ledger = await asyncio.to_thread(store.ledger, record.uid)
        lease = await asyncio.to_thread(store.lease, record.uid)
        now = await asyncio.to_thread(store.now)
        kept = ledger.job.kept
        if lease is None or kept is None:
            return True
        event = Event(
            at=now,
            reason=reasons.KEPT_INSTANCE_ENDED,
            message=reason
            if f"by {by}" in reason
            else ": ".join(filter(None, [reason, by and f"by {by}"])),
            role=kept.role,
            index=kept.index,
            attempt=kept.attempt,
        )
        await asyncio.to_thread(
            store.commit,
            record.uid,
            lease=lease,
            old=ledger,
            new=ended_early(ledger, now=now),
            events=[event],
        )
    return True


async def open_shell(
    record: RunRecord,
    key: InstanceKey,
    command: Sequence[str],
    streams: Streams,
    *,
    store: Store,
    runtime: Runtime,
) -> int:
    """Run a command inside the newest attempt of an instance, and return its exit code.

    Raises InputError where there is no such instance, nothing of it lives, or its runtime cannot.
    """
    ledger = await asyncio.to_thread(store.ledger, record.uid)
    entry = ledger.instances.get(key)
    if entry is None:
        raise InputError.of(
            code="unknown_role",
            field="--role, --index",
            value=str(key),
            message=f"there is no instance {key}",
            allowed=[str(key) for key in sorted(ledger.instances)],
        )
    if entry.reason == reasons.NOT_NEEDED or (entry.state == "pending" and not entry.uid):
        raise InputError.of(
            code="not_allowed",
            field="RUN",
            message=f"{key} was {entry.message or 'never started'}"
            if entry.final
            else f"{key} does not run now: {entry.message or entry.reason}",
            hint=""
            if entry.final
            else f"airflow-training status {record.key.run_id} shows when it runs",
        )
    if not isinstance(runtime, OpensShells):
        raise InputError.of(
            code="not_supported",
            field="RUN",
            value=record.key.run_id,
            message=f"the runtime {runtime.name} cannot open a shell in its instances",
        )
    lease = await asyncio.to_thread(store.lease, record.uid)
    run = record.ref(generation=0 if lease is None else lease.generation)
    ref = InstanceRef(run=run, key=key, attempt_id=entry.attempt_id, uid=entry.uid)
    return await runtime.shell(ref, command, streams)
