"""The last lines an instance wrote, for the log of its role's task. Never fails a caller."""

from __future__ import annotations

import asyncio
import logging

from airflow_training.control.model import Ledger
from airflow_training.documents.instances import InstanceKey
from airflow_training.errors import TrainingError
from airflow_training.runtimes.port import InstanceRef
from airflow_training.state.store import RunRecord, Store
from airflow_training.triggers.access import runtime_of

__all__ = ["instance_ref", "tail_of"]

log = logging.getLogger(__name__)

_LINES = 20
_BYTES = 65_536


async def tail_of(store: Store, uid: str, *, role: str, index: int, attempt: int) -> str:
    """Return the last lines of one attempt of an instance; empty where there are none."""
    try:
        written = await _end_of_log(store, uid, role, index, attempt)
    except (TrainingError, OSError, LookupError) as error:
        log.info("no log of %s-%s: %s", role, index, error)
        return ""
    return "\n".join(written.decode(errors="replace").splitlines()[-_LINES:])


def instance_ref(record: RunRecord, ledger: Ledger, role: str, index: int) -> InstanceRef:
    """Return the newest attempt of an instance as the runtime names it; raises KeyError."""
    entry = ledger.instances[InstanceKey(role, index)]
    return InstanceRef(run=record.ref(), key=entry.key, attempt_id=entry.attempt_id, uid=entry.uid)


async def _end_of_log(store: Store, uid: str, role: str, index: int, attempt: int) -> bytes:
    record = await asyncio.to_thread(store.run, uid)
    if record is None:
        return b""
    ledger = await asyncio.to_thread(store.ledger, uid)
    runtime = runtime_of(await asyncio.to_thread(store.job, uid))
    newest = instance_ref(record, ledger, role, index)
    return await runtime.tail_log(newest.at_attempt(attempt), limit=_BYTES)
