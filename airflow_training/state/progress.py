"""How far instances are: their newest report of progress, and its metrics as series."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, and_, bindparam, func, select

from airflow_training.control.model import INLINE, InstanceKey, ProgressReport, ReportedValue
from airflow_training.state.codec import compact_json, from_json
from airflow_training.state.database import clean, upsert
from airflow_training.state.models import MetricRow, ProgressRow, table_of
from airflow_training.state.records import MetricColumns, MetricPoint

__all__ = [
    "StoredProgress",
    "columns",
    "newest",
    "newest_metrics",
    "newest_points",
    "rank_column",
    "save",
    "series",
]

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
)
_NO_RANK = -1
"""A part of a key cannot be NULL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredProgress:
    """What a row holds."""

    report: ProgressReport = field(metadata=INLINE)
    from_log: bool = False
    """Its log says so, not the script itself; nobody outside the store sees that."""

    def row(self, uid: str, key: InstanceKey) -> Mapping[str, Any]:
        return {"run": uid, "role": key[0], "index": key[1], "body": compact_json(self)}


def rank_column(rank: int | None) -> int:
    """Return a rank as its column has it: part of a key, so never NULL."""
    return _NO_RANK if rank is None else rank


def save(
    connection: Connection,
    uid: str,
    progress: Mapping[InstanceKey, ProgressReport],
    *,
    now: float,
) -> None:
    """Keep the newest report per instance; append its points.

    A metric of the report without any is a point at the script's time, else `now`.
    """
    reports = [StoredProgress(report=each).row(uid, key) for key, each in progress.items()]
    upsert(connection, table_of(ProgressRow), reports)
    points = {
        (role, index, point["name"], point["at"]): {
            "run": uid,
            "role": role,
            "index": index,
            **point,
        }
        for (role, index), report in progress.items()
        for point in _points(report, now=now)
    }
    # a key that came twice is one row: a database may refuse to write it twice in one statement
    upsert(connection, table_of(MetricRow), [*points.values()])


def _points(report: ProgressReport, *, now: float) -> Iterator[Mapping[str, Any]]:
    at = now if report.time is None else report.time
    newest = {
        name: [ReportedValue(report.step, at, value)] for name, value in report.metrics.items()
    }
    for name, points in {**newest, **report.points}.items():
        for of_step, of_time, value in points:
            number = float(value)
            yield {
                "rank": _NO_RANK,
                "name": clean(name)[:250],
                "at": float(of_time),
                "step": of_step,
                "value": None if math.isnan(number) else number,
            }


def newest(connection: Connection, uid: str) -> Mapping[InstanceKey, ProgressReport]:
    """Return the newest report per (role, index), without its points and files."""
    rows = connection.execute(
        select(ProgressRow.role, ProgressRow.index, ProgressRow.body)
        .where(ProgressRow.run == uid)
        .order_by(ProgressRow.role, ProgressRow.index)
    )
    return {(role, index): from_json(StoredProgress, body).report for role, index, body in rows}


def series(connection: Connection, uid: str, *, name: str | None) -> Sequence[MetricPoint]:
    """Return the values of one metric, or of all, in the order of their time."""
    wanted = [MetricRow.run == uid]
    if name is not None:
        wanted.append(MetricRow.name == name)
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
        .where(*wanted)
        .order_by(MetricRow.at, MetricRow.role, MetricRow.index, MetricRow.rank, MetricRow.name)
    )
    return [_point_of(row) for row in rows]


def columns(
    connection: Connection, uid: str, of: Sequence[tuple[MetricPoint, float]]
) -> Sequence[MetricColumns]:
    """Return the series of each point after a time; for charts, which draw thousands.

    Each is a stretch of the primary key, which is found at once however many others there are.
    """
    found = []
    for point, after in of:
        key = {
            "of": uid,
            "of_role": point.role,
            "of_index": point.index,
            "of_rank": rank_column(point.rank),
            "of_name": point.name,
            "after": after,
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


def newest_points(connection: Connection, uid: str) -> Sequence[MetricPoint]:
    """Return the newest point of every series, by role, index, name and rank."""
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


def newest_metrics(points: Sequence[MetricPoint]) -> Mapping[InstanceKey, Mapping[str, float]]:
    """Return the newest value of every metric per (role, index), of the newest points.

    Of several ranks, the lowest speaks for the instance.
    """
    found: dict[InstanceKey, dict[str, float]] = {}
    for point in points:
        found.setdefault((point.role, point.index), {}).setdefault(point.name, point.value)
    return found


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
