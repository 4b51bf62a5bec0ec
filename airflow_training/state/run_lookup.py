"""Finds runs: by uid, by run id, by the beginning of a uid. Says what is there instead of one that is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, select, update

from airflow_training.control.model import TERMINAL_JOB_STATES
from airflow_training.documents.resolved import RunKey
from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import InputError
from airflow_training.state.database import clean
from airflow_training.state.models import QueueRow, RunRow
from airflow_training.state.records import RunRecord

__all__ = [
    "find",
    "get",
    "must_exist",
    "record_of",
    "select_runs",
    "set_columns",
    "unknown_run",
]


def select_runs() -> Any:
    """Return the select whose rows `record_of` reads."""
    return select(
        RunRow.uid,
        RunRow.source,
        RunRow.dag_id,
        RunRow.run_id,
        RunRow.group_id,
        RunRow.map_index,
        RunRow.job,
        RunRow.namespace,
        RunRow.runtime,
        RunRow.controller,
        RunRow.state,
        RunRow.condition,
        RunRow.submitted_at,
        RunRow.finished_at,
        RunRow.tombstone,
        RunRow.tombstone_reason,
        RunRow.document_digest,
        RunRow.submitted_by,
        QueueRow.run.label("queue_run"),
        QueueRow.started_at.label("queue_started_at"),
    ).join(QueueRow, QueueRow.run == RunRow.uid, isouter=True)


def record_of(row: Row[Any]) -> RunRecord:
    """Return one row of `select_runs` as a record."""
    waiting = row.queue_run is not None and row.queue_started_at is None
    return RunRecord(
        uid=row.uid,
        key=RunKey(
            source=row.source,
            dag_id=row.dag_id,
            run_id=row.run_id,
            group_id=row.group_id,
            map_index=row.map_index,
        ),
        job=row.job,
        namespace=row.namespace,
        runtime=row.runtime,
        controller=row.controller,
        state=row.state,
        condition=row.condition,
        submitted_at=row.submitted_at,
        finished_at=row.finished_at,
        queued=waiting and not row.tombstone and row.state not in TERMINAL_JOB_STATES,
        tombstone=row.tombstone,
        tombstone_reason=row.tombstone_reason,
        document_digest=row.document_digest,
        submitted_by=row.submitted_by,
    )


def get(connection: Connection, uid: str) -> RunRecord | None:
    """Return the run, or None where there is none."""
    row = connection.execute(select_runs().where(RunRow.uid == uid)).first()
    return None if row is None else record_of(row)


def find(connection: Connection, text: str) -> RunRecord:
    """Return the one run named by uid, by run id, or by the beginning of a uid."""
    text = clean(text)
    exact = get(connection, text)
    if exact is not None:
        return exact
    newest_first = select_runs().order_by(RunRow.submitted_at.desc(), RunRow.uid).limit(20)
    found = connection.execute(newest_first.where(RunRow.run_id == text)).all()
    if not found and text:
        begins = RunRow.uid.startswith(text, autoescape=True)
        found = connection.execute(newest_first.where(begins)).all()
    if len(found) == 1:
        return record_of(found[0])
    if found:
        raise _bad_run(
            f"{text!r} is the name of several runs",
            text=text,
            allowed=[row.uid for row in found],
            hint="name one by its uid: "
            + ", ".join(f"{row.uid} ({_describe(row)})" for row in found[:5]),
        )
    raise unknown_run(connection, text)


def _describe(row: Row[Any]) -> str:
    where = f"{row.dag_id}/{row.run_id}" if row.dag_id else row.run_id
    return f"{row.job}, {where}, {row.state}"


def unknown_run(connection: Connection, text: str) -> InputError:
    """Return the error for a run that is not there; lists the newest ones."""
    rows = connection.execute(
        select(RunRow.run_id).order_by(RunRow.submitted_at.desc(), RunRow.uid).limit(100)
    )
    known = list(dict.fromkeys(row[0] for row in rows))
    return _bad_run(
        f"no run is called {text!r}",
        text=text,
        allowed=known[:5],
        hint=did_you_mean(text, known) or "`airflow-training list` shows all runs",
    )


def must_exist(connection: Connection, uid: str) -> None:
    """Raise InputError for a run that does not exist."""
    if connection.execute(select(RunRow.uid).where(RunRow.uid == uid)).first() is None:
        raise unknown_run(connection, uid)


def set_columns(connection: Connection, uid: str, **columns: Any) -> None:
    """Set columns of a run's row; raises InputError for a run that does not exist."""
    changed = connection.execute(update(RunRow).where(RunRow.uid == uid).values(**columns))
    if changed.rowcount != 1:
        raise unknown_run(connection, uid)


def _bad_run(message: str, *, text: str, allowed: Sequence[str], hint: str) -> InputError:
    return InputError.of(
        code="bad_reference", field="RUN", message=message, value=text, allowed=allowed, hint=hint
    )
