"""What logs say of running instances: values and progress, with how far each log was read, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, insert, select, update

from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.state.codec import from_json, to_json
from airflow_training.state.database import StorePart, upsert
from airflow_training.state.metrics import metric_row
from airflow_training.state.models import LogPositionRow, MetricRow, ProgressRow, table_of
from airflow_training.state.progress import StoredProgress
from airflow_training.state.records import LogPosition, LogValue
from airflow_training.state.run_lookup import must_exist

__all__ = ["LogValues"]


class LogValues(StorePart):
    """What logs of running instances say."""

    def positions(self, uid: str) -> Mapping[InstanceKey, LogPosition]:
        """Return how far the logs of the run's instances were read, per (role, index)."""
        with self._db.read() as connection:
            rows = connection.execute(
                select(LogPositionRow.role, LogPositionRow.index, LogPositionRow.body).where(
                    LogPositionRow.run == uid
                )
            )
            return {
                InstanceKey(role, index): from_json(LogPosition, body) for role, index, body in rows
            }

    def save(
        self,
        uid: str,
        instance: InstanceKey,
        *,
        before: LogPosition | None,
        after: LogPosition,
        values: Sequence[LogValue],
        progress: ProgressReport | None,
    ) -> bool:
        """Keep what stood in an instance's log between two positions, once.

        False, and nothing is kept, where the stored position is not `before`: somebody else has
        read on. Progress and metrics that the script reports itself win.
        """
        with self._db.write() as connection:
            must_exist(connection, uid)
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
            rows = [row for each in values if (row := _row(uid, instance, each))["name"] not in own]
            upsert(connection, table_of(MetricRow), rows)
            if progress is not None and not reported:
                row = StoredProgress(report=progress, from_log=True).row(uid, instance)
                upsert(connection, table_of(ProgressRow), [row])
            return True


def _row(uid: str, instance: InstanceKey, value: LogValue) -> Mapping[str, Any]:
    return metric_row(
        uid,
        instance,
        name=value.name,
        at=value.at,
        step=value.step,
        value=value.value,
        rank=value.rank,
    )


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
