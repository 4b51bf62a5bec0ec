"""How far instances are: their newest progress line, and its metrics as series."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, and_, bindparam, func, select

from airflow_training.control.model import InstanceKey
from airflow_training.control.system_metrics import PREFIX, SAMPLES, is_system_metric
from airflow_training.state.codec import to_plain
from airflow_training.state.database import clean, upsert
from airflow_training.state.models import MetricRow, ProgressRow, table_of
from airflow_training.state.records import MetricColumns, MetricPoint

__all__ = [
    "FROM_LOG",
    "columns",
    "newest",
    "newest_metrics",
    "newest_points",
    "rank_column",
    "save",
    "series",
]

FROM_LOG = "from_log"
"""Marks a line that the script did not report itself; nobody outside the store sees it."""
_ELSEWHERE = ("points", "files")
"""They have tables of their own."""
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


def rank_column(rank: int | None) -> int:
    """Return a rank as its column has it: part of a key, so never NULL."""
    return _NO_RANK if rank is None else rank


def save(
    connection: Connection,
    uid: str,
    progress: Mapping[InstanceKey, Mapping[str, Any]],
    *,
    now: float,
) -> None:
    """Keep the newest line per instance; append its points.

    A metric of the line without any is a point at the script's time, else `now`; so is the number of its samples.
    """
    lines = [
        {
            "run": uid,
            "role": role,
            "index": index,
            "body": json.dumps(
                {name: value for name, value in line.items() if name not in _ELSEWHERE},
                default=to_plain,
            ),
        }
        for (role, index), line in progress.items()
    ]
    upsert(connection, table_of(ProgressRow), lines)
    points = {
        (role, index, point["name"], point["at"]): {
            "run": uid,
            "role": role,
            "index": index,
            **point,
        }
        for (role, index), line in progress.items()
        for point in _points(line, now=now)
    }
    # a key that came twice is one row: a database may refuse to write it twice in one statement
    upsert(connection, table_of(MetricRow), [*points.values()])


def _points(line: Mapping[str, Any], *, now: float) -> Iterator[Mapping[str, Any]]:
    at, step = line.get("time"), line.get("step")
    samples = line.get("samples")
    told = {**(line.get("metrics") or {}), **({} if samples is None else {SAMPLES: samples})}
    newest = {name: [(step, now if at is None else at, value)] for name, value in told.items()}
    for name, points in {**newest, **(line.get("points") or {})}.items():
        for of_step, of_time, value in points:
            number = float(value)
            yield {
                "rank": _NO_RANK,
                "name": clean(name)[:250],
                "at": float(of_time),
                "step": of_step,
                "value": None if math.isnan(number) else number,
            }


def newest(connection: Connection, uid: str) -> Mapping[InstanceKey, Mapping[str, Any]]:
    """Return the newest line per (role, index)."""
    rows = connection.execute(
        select(ProgressRow.role, ProgressRow.index, ProgressRow.body)
        .where(ProgressRow.run == uid)
        .order_by(ProgressRow.role, ProgressRow.index)
    )
    found = {(row[0], row[1]): json.loads(row[2]) for row in rows}
    for line in found.values():
        line.pop(FROM_LOG, None)
    return found


def series(connection: Connection, uid: str, *, name: str | None) -> Sequence[MetricPoint]:
    """Return the values of one metric, or of all that were reported, in the order of their time."""
    is_wanted = MetricRow.name.not_like(f"{PREFIX}%") if name is None else MetricRow.name == name
    wanted = [MetricRow.run == uid, is_wanted]
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
    connection: Connection, uid: str, of: Sequence[tuple[MetricPoint, float]], *, most: int
) -> Sequence[MetricColumns]:
    """Return the series of each point after a time, at most so many points of each; for charts.

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
    """Return the newest value of every metric that was reported per (role, index), of the newest points.

    Of several ranks, the lowest speaks for the instance.
    """
    found: dict[InstanceKey, dict[str, float]] = {}
    for point in points:
        if not is_system_metric(point.name):
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
