"""Watches over the processes that drive runs, until each holds its run: one that dies before leaves it to nobody."""

from __future__ import annotations

import dataclasses
import logging
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from airflow_training.control.model import Event
from airflow_training.errors import TrainingError
from airflow_training.state.store import Store, open_store
from airflow_training.supervise.lease_keeper import take_lease
from airflow_training.supervise.owners import forget_owner, is_provably_dead, new_owner

__all__ = ["DRIVER_FAILED", "watch_driver"]

DRIVER_FAILED = "DriverFailed"
_WAITS_SECONDS = (1.0, 5.0)
"""Before each further try to drive a run."""
_EXIT_BAD_INPUT = 2
_LAST_WORDS = 1500

_log = logging.getLogger(__name__)


def watch_driver(uid: str, start: Callable[[], subprocess.Popen[bytes]], *, said: Path) -> None:
    """Have a run driven: start its process, again where it dies before the run has begun; then the run fails.

    Returns once the first has started. `said`: file that has the last words of all of them. Raises OSError.
    """
    process = start()

    def watch() -> None:
        try:
            _watch(uid, process, start, said)
        except (OSError, TrainingError):
            _log.exception("nobody may drive run %s", uid)

    threading.Thread(target=watch, name=f"driver of {uid}", daemon=True).start()


def _watch(
    uid: str,
    process: subprocess.Popen[bytes],
    start: Callable[[], subprocess.Popen[bytes]],
    said: Path,
) -> None:
    for wait in (*_WAITS_SECONDS, None):
        code = process.wait()
        store = open_store()
        if not _waits_for_driver(store, uid):
            return
        if wait is None or code == _EXIT_BAD_INPUT:  # what it was told is wrong now and later
            _fail(store, uid, code=code, said=said)
            return
        time.sleep(wait)
        process = start()


def _waits_for_driver(store: Store, uid: str) -> bool:
    record, held = store.run(uid), store.lease(uid)
    if record is None or record.state != "Pending":
        return False
    return held is None or is_provably_dead(held.owner)


def _fail(store: Store, uid: str, *, code: int, said: Path) -> None:
    """End a run that nobody can drive, unless somebody does."""
    words = said.read_text(errors="replace").strip()[-_LAST_WORDS:]
    message = f"the process that drives the run ended with exit code {code}: {words}"
    owner = new_owner()
    try:
        lease = take_lease(store, uid, owner=owner)
        if lease is None:
            return
        try:
            old, now = store.ledger(uid), store.now()
            if old.job.state != "Pending":
                return
            job = dataclasses.replace(
                old.job,
                state="Failed",
                reason=DRIVER_FAILED,
                message=message,
                last_transition_at=now,
                finished_at=now,
                drained=True,
            )
            event = Event(at=now, reason=DRIVER_FAILED, message=message)
            new = dataclasses.replace(old, job=job)
            store.commit(uid, lease=lease, old=old, new=new, events=[event])
        finally:
            store.release(lease)
    finally:
        forget_owner(owner)
