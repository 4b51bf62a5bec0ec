"""What is said about a run and what is asked of it: events and requests. Both are only appended.

Numbers count per run and are taken under the lock of the run's row, until the end of the
transaction. So they have no gaps, and whoever has seen number n has seen all before it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from sqlalchemy import Connection, bindparam, func, insert, select, update

from airflow_training.control.model import Event, JobEntry, Request, RequestKind
from airflow_training.errors import RunChanged
from airflow_training.state.codec import from_json, to_plain
from airflow_training.state.database import clean
from airflow_training.state.models import EventRow, RequestRow, RunRow
from airflow_training.state.records import RunMark, StoredEvent
from airflow_training.state.run_lookup import unknown_run

__all__ = [
    "add_events",
    "add_request",
    "events",
    "lock",
    "newest_event",
    "request_of",
    "requests",
]

_COUNT_REQUEST = (
    update(RunRow).where(RunRow.uid == bindparam("of")).values(last_request=RunRow.last_request + 1)
)
_LOCK = update(RunRow).where(RunRow.uid == bindparam("of")).values(last_request=RunRow.last_request)
_REQUESTS = select(
    RequestRow.id,
    RequestRow.kind,
    RequestRow.role,
    RequestRow.replicas,
    RequestRow.reason,
    RequestRow.by,
    RequestRow.at,
)
_LAST_REQUEST = select(RunRow.last_request).where(RunRow.uid == bindparam("of"))
_LAST_SEQ = select(RunRow.last_seq).where(RunRow.uid == bindparam("of"))
_UPDATE_RUN = update(RunRow).where(RunRow.uid == bindparam("of"))
_EVENTS = select(
    EventRow.seq,
    EventRow.at,
    EventRow.reason,
    EventRow.message,
    EventRow.role,
    EventRow.index,
    EventRow.attempt,
    EventRow.rule,
    EventRow.level,
    EventRow.data,
)


def add_events(
    connection: Connection,
    uid: str,
    events: Sequence[Event],
    *,
    columns: Mapping[str, Any] | None = None,
) -> bool:
    """Append events and set other columns of the run; False where there is no such run."""
    columns = {**(columns or {})}
    if not events and not columns:
        return True
    if events:
        columns["last_seq"] = RunRow.last_seq + len(events)
    if connection.execute(_UPDATE_RUN.values(**columns), {"of": uid}).rowcount != 1:
        return False
    if events:
        last = connection.execute(_LAST_SEQ, {"of": uid}).scalar_one()
        first = last - len(events) + 1
        rows = [_event_row(uid, seq, event) for seq, event in enumerate(events, first)]
        connection.execute(insert(EventRow), rows)
    return True


def _event_row(uid: str, seq: int, event: Event) -> Mapping[str, Any]:
    return {
        "run": uid,
        "seq": seq,
        "at": event.at,
        "reason": clean(event.reason)[:250],
        "message": clean(event.message),
        "role": clean(event.role),
        "index": event.index,
        "attempt": event.attempt,
        "rule": clean(event.rule),
        "level": event.level,
        "data": json.dumps(event.data, default=to_plain),
    }


def has_event(connection: Connection, uid: str, event: Event) -> bool:
    """Return whether the story has an event of this reason with this data."""
    row = _event_row(uid, 0, event)
    wanted = (EventRow.run == uid, EventRow.reason == row["reason"])
    told = connection.execute(select(EventRow.data).where(*wanted)).scalars()
    return row["data"] in told


def events(
    connection: Connection, uid: str, *, after: int, role: str | None, limit: int
) -> Sequence[StoredEvent]:
    """Return up to `limit` events after a number, oldest first."""
    wanted = [EventRow.run == uid, EventRow.seq > after]
    if role is not None:
        wanted.append(EventRow.role == role)
    rows = connection.execute(_EVENTS.where(*wanted).order_by(EventRow.seq).limit(limit))
    return [_stored_event(row) for row in rows]


def newest_event(connection: Connection, uid: str, reasons: Collection[str]) -> Event | None:
    """Return the newest event of one of these reasons."""
    wanted = (EventRow.run == uid, EventRow.reason.in_(reasons))
    row = connection.execute(
        _EVENTS.where(*wanted).order_by(EventRow.seq.desc()).limit(1)
    ).one_or_none()
    return None if row is None else _stored_event(row).event


def _stored_event(row: Sequence[Any]) -> StoredEvent:
    return StoredEvent(
        seq=row[0],
        event=Event(
            at=row[1],
            reason=row[2],
            message=row[3],
            role=row[4],
            index=row[5],
            attempt=row[6],
            rule=row[7],
            level=cast("Any", row[8]),
            data=json.loads(row[9]),
        ),
    )


def add_request(
    connection: Connection,
    uid: str,
    kind: RequestKind,
    *,
    role: str,
    replicas: int | None,
    reason: str,
    by: str,
    seen: RunMark | None,
    key: str,
    event: Event | None,
    now: float,
) -> int:
    """Append a request and what the story says of it; return its number, or that of the request with its `key`."""
    if seen is not None or key:
        lock(connection, uid)
        known = request_of(connection, uid, key) if key else None
        if known is not None:
            return known.id
        if seen is not None and mark(connection, uid) not in (seen, None):
            raise RunChanged(f"run {uid} is not as it was seen any more")
    if connection.execute(_COUNT_REQUEST, {"of": uid}).rowcount != 1:
        raise unknown_run(connection, uid)
    number = connection.execute(_LAST_REQUEST, {"of": uid}).scalar_one()
    row = {
        "run": uid,
        "id": number,
        "kind": kind,
        "role": role,
        "replicas": replicas,
        "reason": clean(reason),
        "by": clean(by),
        "at": now,
        "idempotency_key": key or None,
    }
    connection.execute(insert(RequestRow), row)
    if event is not None:
        add_events(connection, uid, [event])
    return int(number)


def lock(connection: Connection, uid: str) -> None:
    """Keep others from adding requests to the run until the end of the transaction."""
    connection.execute(_LOCK, {"of": uid})


def mark(connection: Connection, uid: str) -> RunMark | None:
    """Return the mark of the run as it is now; None where there is no such run."""
    steered = select(func.max(RequestRow.id)).where(
        RequestRow.run == uid, RequestRow.kind != "activate"
    )
    row = connection.execute(
        select(RunRow.entry, steered.scalar_subquery()).where(RunRow.uid == uid)
    ).first()
    return None if row is None else RunMark(from_json(JobEntry, row[0]).epoch, row[1] or 0)


def request_of(connection: Connection, uid: str, key: str) -> Request | None:
    """Return the request that came with this idempotency key."""
    row = connection.execute(
        _REQUESTS.where(RequestRow.run == uid, RequestRow.idempotency_key == key)
    ).first()
    return None if row is None else _request(row)


def requests(connection: Connection, uid: str, *, after: int) -> Sequence[Request]:
    """Return the requests after a number, oldest first."""
    wanted = (RequestRow.run == uid, RequestRow.id > after)
    rows = connection.execute(_REQUESTS.where(*wanted).order_by(RequestRow.id))
    return [_request(row) for row in rows]


def _request(row: Any) -> Request:
    return Request(
        id=row[0],
        kind=cast("RequestKind", row[1]),
        role=row[2],
        replicas=row[3],
        reason=row[4],
        by=row[5],
        at=row[6],
    )
