"""When a new try of a task means that a finished run goes on: it was cleared. Pure over the store.

A task that starts on a run that has ended is one of three: the same try again (its triggerer died
before the end was reported), the first try (the run ended early), or a new try of a task that had
its end. Only the last reopens the run. Each try that starts leaves an event, so that they can be
told apart.
"""

from __future__ import annotations

from typing import Any

from airflow_training.control.model import TERMINAL_JOB_STATES, Event
from airflow_training.state.store import RunState, Store

__all__ = ["STARTED", "reopen_if_cleared"]

STARTED = "TaskStarted"


def reopen_if_cleared(store: Store, state: RunState, ti: Any) -> bool:
    """Record that this try started; ask for a new epoch where the task was cleared.

    Returns whether the run was reopened now. Blocks on the store.
    """
    uid = state.record.uid
    tries = {
        stored.event.data.get("try")
        for stored in _started(store, uid)
        if stored.event.data.get("task") == ti.task_id
        and stored.event.data.get("map_index") == ti.map_index
    }
    this = ti.try_number
    ended = state.ledger.job.state in TERMINAL_JOB_STATES
    reopen = ended and bool(tries) and this not in tries
    if this not in tries:
        # the request first: a crash between the two repeats it, which changes nothing
        if reopen:
            store.add_request(uid, "reopen", reason=f"{ti.task_id} was cleared", by=ti.task_id)
        data = {"task": ti.task_id, "map_index": ti.map_index, "try": this}
        message = f"{ti.task_id} started, try {this}"
        store.add_events(
            uid, [Event(at=store.now(), reason=STARTED, message=message, data=data)]
        )
    return reopen


def _started(store: Store, uid: str) -> Any:
    after = 0
    while True:
        page = store.events(uid, after=after, limit=1000)
        yield from (stored for stored in page if stored.event.reason == STARTED)
        if len(page) < 1000:
            return
        after = page[-1].seq
