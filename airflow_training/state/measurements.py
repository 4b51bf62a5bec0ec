"""What runs measured under their plans, and what a later plan reads of it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, select

from airflow_training.state.database import upsert
from airflow_training.state.models import MeasurementRow, table_of
from airflow_training.state.records import Measurement

__all__ = ["about", "of_run", "save"]

_COLUMNS = ("plan", "subject")
_SELECT = select(MeasurementRow.plan, MeasurementRow.subject, MeasurementRow.body)


def save(connection: Connection, uid: str, found: Measurement, *, now: float) -> None:
    """Keep what a run measured under a plan, instead of what it had measured before."""
    fields = dataclasses.asdict(found)
    body = {name: value for name, value in fields.items() if name not in _COLUMNS}
    row = {
        "run": uid,
        "at": now,
        "body": json.dumps(body),
        **{name: fields[name] for name in _COLUMNS},
    }
    upsert(connection, table_of(MeasurementRow), [row])


def about(connection: Connection, subject: str, *, limit: int) -> Sequence[Measurement]:
    """Return what runs measured about a subject, the newest first."""
    newest_first = _SELECT.where(MeasurementRow.subject == subject).order_by(
        MeasurementRow.at.desc(), MeasurementRow.run
    )
    return [_read(row) for row in connection.execute(newest_first.limit(limit))]


def of_run(connection: Connection, uid: str, *, plan: str) -> Measurement | None:
    """Return what a run measured under one plan; None: nothing yet."""
    wanted = _SELECT.where(MeasurementRow.run == uid, MeasurementRow.plan == plan)
    row = connection.execute(wanted).first()
    return None if row is None else _read(row)


def _read(row: Any) -> Measurement:
    return Measurement(plan=row.plan, subject=row.subject, **json.loads(row.body))
