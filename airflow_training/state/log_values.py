"""What logs say of running instances: values and progress, with how far each log was read, in one transaction."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, insert, select, update

from airflow_training.control.model import InstanceKey, ProgressReport
from airflow_training.state.codec import from_json, to_json
from airflow_training.state.database import clean, upsert
from airflow_training.state.models import LogPositionRow, MetricRow, ProgressRow, table_of
from airflow_training.state.progress import StoredProgress, rank_column
from airflow_training.state.records import LogPosition, LogValue

__all__ = ["positions", "save"]


def positions(connection: Connection, uid: str) -> Mapping[InstanceKey, LogPosition]:
    """Return how far the logs of a run were read, per (role, index)."""
    rows = connection.execute(
        select(LogPositionRow.role, LogPositionRow.index, LogPositionRow.body).where(
            LogPositionRow.run == uid
        )
    )
    return {(role, index): from_json(LogPosition, body) for role, index, body in rows}


def save(
    connection: Connection,
    uid: str,
    instance: InstanceKey,
    *,
    before: LogPosition | None,
    after: LogPosition,
    values: Sequence[LogValue],
    progress: ProgressReport | None,
) -> bool:
    """Move from one position to the next and keep what stood between them; False: not at `before`.

    What the script reports itself stays: its progress, and metrics of the same name.
    """
    if not _move(connection, uid, instance, before=before, after=after):
        return False
    role, index = instance
    of_instance = (
        ProgressRow.run == uid,
        ProgressRow.role == role,
        ProgressRow.index == index,
    )
    body = connection.execute(select(ProgressRow.body).where(*of_instance)).scalar()
    known = None if body is None else from_json(StoredProgress, body)
    reported = known is not None and not known.from_log
    own = known.report.metrics if known is not None and reported else {}
    rows = [
        {
            "run": uid,
            "role": role,
            "index": index,
            "rank": rank_column(each.rank),
            "name": name,
            "at": each.at,
            "step": each.step,
            "value": None if math.isnan(each.value) else each.value,
        }
        for each in values
        if (name := clean(each.name)[:250]) not in own
    ]
    upsert(connection, table_of(MetricRow), rows)
    if progress is not None and not reported:
        row = StoredProgress(report=progress, from_log=True).row(uid, instance)
        upsert(connection, table_of(ProgressRow), [row])
    return True


def _move(
    connection: Connection,
    uid: str,
    instance: InstanceKey,
    *,
    before: LogPosition | None,
    after: LogPosition,
) -> bool:
    role, index = instance
    here = (
        LogPositionRow.run == uid,
        LogPositionRow.role == role,
        LogPositionRow.index == index,
    )
    kept = connection.execute(select(LogPositionRow.body).where(*here)).scalar()
    if before is not None:
        # an older version has written fewer fields: it is the same position all the same
        if kept is None or to_json(from_json(LogPosition, kept)) != to_json(before):
            return False
        moved = connection.execute(
            update(LogPositionRow)
            .where(*here, LogPositionRow.body == kept)
            .values(body=to_json(after))
        )
        return moved.rowcount == 1
    if kept is not None:
        return False
    row = {"run": uid, "role": role, "index": index, "body": to_json(after)}
    connection.execute(insert(LogPositionRow), row)
    return True
