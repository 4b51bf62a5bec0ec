"""When a new try of a task means that a finished run goes on: it was cleared.

A task that starts on a run that has ended is one of three: the same try again (its triggerer died
before the end was reported), the first try (the run ended early), or a new try of a task that had
its end. Only the last reopens the run. Each try that starts leaves an event, so that they can be
told apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from airflow_training.control.model import TERMINAL_JOB_STATES, Event
from airflow_training.state.store import RunState, Store, StoredEvent

__all__ = ["STARTED", "begin_try"]

STARTED = "TaskStarted"
_PAGE = 1000


def begin_try(store: Store, state: RunState, ti: Any) -> bool:
    """Record that this try started; ask for a new epoch where the task was cleared.

    Returns whether a new epoch is about to begin, so that `state` is out of date. Blocks.
    """
    uid = state.record.uid
    tries = {
        stored.event.data.get("try")
        for stored in _events(store, uid)
        if stored.event.reason == STARTED
        and stored.event.data.get("task") == ti.task_id
        and stored.event.data.get("map_index") == ti.map_index
    }
    ended = state.ledger.job.state in TERMINAL_JOB_STATES
    waiting = store.requests(uid, after=state.ledger.job.seen_request)
    reopens = any(request.kind == "reopen" for request in waiting)
    if ti.try_number not in tries:
        # the request first: a crash between the two repeats it, which changes nothing
        if ended and tries and not reopens:  # another task may have been cleared with it
            store.add_request(uid, "reopen", reason=f"{ti.task_id} was cleared", by=ti.task_id)
            reopens = True
        data = {"task": ti.task_id, "map_index": ti.map_index, "try": ti.try_number}
        message = f"{ti.task_id}, try {ti.try_number}"
        store.add_events(uid, [Event(at=store.now(), reason=STARTED, message=message, data=data)])
    return ended and reopens


def _events(store: Store, uid: str) -> Iterator[StoredEvent]:
    after = 0
    while True:
        page = store.events(uid, after=after, limit=_PAGE)
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1].seq
