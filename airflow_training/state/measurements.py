"""What runs measured under their plans, and what a later plan reads of it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import select

from airflow_training.state.database import StorePart, upsert
from airflow_training.state.models import MeasurementRow, table_of
from airflow_training.state.records import Measurement
from airflow_training.state.run_lookup import must_exist

__all__ = ["Measurements"]

_COLUMNS = ("plan", "subject")
_SELECT = select(MeasurementRow.plan, MeasurementRow.subject, MeasurementRow.body)


class Measurements(StorePart):
    """What runs measured under their plans."""

    def save(self, uid: str, found: Measurement) -> None:
        """Keep what the run measured under a plan; the same plan again replaces it."""
        with self._db.write() as connection:
            must_exist(connection, uid)
            now = self._db.now(connection)
            fields = dataclasses.asdict(found)
            body = {name: value for name, value in fields.items() if name not in _COLUMNS}
            row = {
                "run": uid,
                "at": now,
                "body": json.dumps(body),
                **{name: fields[name] for name in _COLUMNS},
            }
            upsert(connection, table_of(MeasurementRow), [row])

    def about(self, subject: str, *, limit: int = 100) -> Sequence[Measurement]:
        """Measurements about a subject, the newest first."""
        with self._db.read() as connection:
            newest_first = _SELECT.where(MeasurementRow.subject == subject).order_by(
                MeasurementRow.at.desc(), MeasurementRow.run
            )
            return [_read(row) for row in connection.execute(newest_first.limit(limit))]

    def of_run(self, uid: str, *, plan: str) -> Measurement | None:
        """Measurement of a run under one plan; None: nothing (yet)."""
        with self._db.read() as connection:
            wanted = _SELECT.where(MeasurementRow.run == uid, MeasurementRow.plan == plan)
            row = connection.execute(wanted).first()
            return None if row is None else _read(row)


def _read(row: Any) -> Measurement:
    return Measurement(plan=row.plan, subject=row.subject, **json.loads(row.body))
