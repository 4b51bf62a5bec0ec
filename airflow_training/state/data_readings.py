"""What instances have read of their data: one bounded row each, renewed by every report of progress."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, select

from airflow_training.control.data_readings import DataReading, follow_reading
from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.state.codec import from_json, to_json
from airflow_training.state.database import upsert
from airflow_training.state.models import DataReadingRow, table_of

__all__ = ["of_run", "save"]


def of_run(
    connection: Connection, uid: str, *, instance: InstanceKey | None = None
) -> Mapping[InstanceKey, DataReading]:
    """Data readings per (role, index): of one instance, or of all that told anything."""
    row = DataReadingRow
    wanted = [row.run == uid]
    if instance is not None:
        wanted += [row.role == instance[0], row.index == instance[1]]
    found = connection.execute(
        select(row.role, row.index, row.body).where(*wanted).order_by(row.role, row.index)
    )
    return {InstanceKey(role, index): from_json(DataReading, body) for role, index, body in found}


def save(
    connection: Connection,
    uid: str,
    progress: Mapping[InstanceKey, ProgressReport],
    *,
    now: float,
) -> None:
    """Take what reports of progress say of data."""
    only = next(iter(progress)) if len(progress) == 1 else None
    known = of_run(connection, uid, instance=only)
    rows = []
    for key, report in progress.items():
        earlier = known.get(key)
        reading = follow_reading(earlier, report, now=now)
        if reading is not None and reading != earlier:
            rows.append(
                {"run": uid, "role": key.role, "index": key.index, "body": to_json(reading)}
            )
    upsert(connection, table_of(DataReadingRow), rows)
