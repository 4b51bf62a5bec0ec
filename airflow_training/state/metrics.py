"""Metrics of instances and ranks as series."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import and_, bindparam, func, select

from airflow_training.control.system_metrics import SYSTEM_METRICS, is_system_metric
from airflow_training.documents.instances import InstanceKey
from airflow_training.state import sparklines
from airflow_training.state.database import StorePart, clean
from airflow_training.state.models import MetricRow
from airflow_training.state.records import MetricColumns, MetricPoint

__all__ = ["MetricSeries", "metric_row"]

_SERIES = (
    select(MetricRow.at, MetricRow.step, MetricRow.value)
    .where(
        MetricRow.run == bindparam("of"),
        MetricRow.role == bindparam("of_role"),
        MetricRow.index == bindparam("of_index"),
        MetricRow.rank == bindparam("of_rank"),
        MetricRow.name == bindparam("of_name"),
        MetricRow.at > bindparam("after"),
    )
    .order_by(MetricRow.at)
    .limit(bindparam("most"))
)
_NO_RANK = -1
"""A part of a key cannot be NULL."""


class MetricSeries(StorePart):
    """The values of metrics, as scripts or their logs told them."""

    def series(self, uid: str, *, name: str | None = None) -> Sequence[MetricPoint]:
        """Return a metric's series (or all that were reported), oldest first."""
        is_wanted = (
            MetricRow.name.not_in(SYSTEM_METRICS) if name is None else MetricRow.name == name
        )
        with self._db.read() as connection:
            rows = connection.execute(
                select(
                    MetricRow.role,
                    MetricRow.index,
                    MetricRow.rank,
                    MetricRow.name,
                    MetricRow.at,
                    MetricRow.step,
                    MetricRow.value,
                )
                .where(MetricRow.run == uid, is_wanted)
                .order_by(
                    MetricRow.at, MetricRow.role, MetricRow.index, MetricRow.rank, MetricRow.name
                )
            )
            return [_point_of(row) for row in rows]

    def columns(
        self, uid: str, of: Sequence[tuple[MetricPoint, float]], *, most: int
    ) -> Sequence[MetricColumns]:
        """Return the series that each of these points belongs to, after a time: the next so many points of each.

        Each is a stretch of the primary key, which is found at once however many others there are.
        """
        with self._db.read() as connection:
            found = []
            for point, after in of:
                key = {
                    "of": uid,
                    "of_role": point.role,
                    "of_index": point.index,
                    "of_rank": _rank_column(point.rank),
                    "of_name": point.name,
                    "after": after,
                    "most": most,
                }
                # the rows as the driver has them: there may be a million
                rows = connection.execute(_SERIES, key).cursor.fetchall()
                at, steps, values = zip(*rows, strict=True) if rows else ((), (), ())
                found.append(
                    MetricColumns(
                        role=point.role,
                        index=point.index,
                        rank=point.rank,
                        name=point.name,
                        at=at,
                        steps=steps,
                        values=values,
                    )
                )
            return found

    def newest_points(self, uid: str) -> Sequence[MetricPoint]:
        """Return the newest point of every series, by role, index, name and rank; all points are looked at."""
        with self._db.read() as connection:
            series_of = (MetricRow.role, MetricRow.index, MetricRow.name, MetricRow.rank)
            last = (
                select(*series_of, func.max(MetricRow.at).label("at"))
                .where(MetricRow.run == uid)
                .group_by(*series_of)
                .subquery()
            )
            rows = connection.execute(
                select(*series_of, MetricRow.at, MetricRow.step, MetricRow.value)
                .join(
                    last,
                    and_(*(column == last.c[column.key] for column in (*series_of, MetricRow.at))),
                )
                .where(MetricRow.run == uid)
                .order_by(*series_of)
            )
            return [_point_of(row) for row in rows]

    def newest(self, uid: str) -> Mapping[InstanceKey, Mapping[str, float]]:
        """Return the newest value of every metric that was reported per (role, index).

        Of several ranks, the lowest speaks for the instance.
        """
        found: dict[tuple[str, int], dict[str, float]] = {}
        for point in self.newest_points(uid):
            if not is_system_metric(point.name):
                found.setdefault((point.role, point.index), {}).setdefault(point.name, point.value)
        return {InstanceKey(*key): values for key, values in found.items()}

    def losses(
        self, uids: Sequence[str], *, points: int = 60
    ) -> Mapping[str, Sequence[float | None]]:
        """Return about so many values of the loss of each of these runs that has told one."""
        with self._db.read() as connection:
            return sparklines.losses(connection, uids, points=points)


def metric_row(
    uid: str,
    key: InstanceKey,
    *,
    name: str,
    at: float,
    step: int | None,
    value: float,
    rank: int | None = None,
) -> Mapping[str, Any]:
    """Return one value of a metric as a row of its table."""
    number = float(value)
    return {
        "run": uid,
        "role": key.role,
        "index": key.index,
        "rank": _rank_column(rank),
        "name": clean(name)[:250],
        "at": float(at),
        "step": step,
        "value": None if math.isnan(number) else number,
    }


def _rank_column(rank: int | None) -> int:
    return _NO_RANK if rank is None else rank


def _point_of(row: Any) -> MetricPoint:
    return MetricPoint(
        role=row.role,
        index=row[1],  # a tuple has a method of this name
        rank=None if row.rank == _NO_RANK else row.rank,
        name=row.name,
        at=row.at,
        step=row.step,
        value=math.nan if row.value is None else row.value,
    )
