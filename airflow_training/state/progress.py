"""How far instances are: their newest progress line, and its metrics as series."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, and_, func, select

from airflow_training.state.codec import plain
from airflow_training.state.database import clean, upsert
from airflow_training.state.models import MetricRow, ProgressRow, table_of
from airflow_training.state.records import MetricPoint

__all__ = ["FROM_LOG", "newest", "newest_metrics", "rank_column", "save", "series"]

FROM_LOG = "from_log"
"""Marks a line that the script did not report itself; nobody outside the store sees it."""
_NO_RANK = -1
"""A part of a key cannot be NULL."""


def rank_column(rank: int | None) -> int:
    """Return a rank as its column has it."""
    return _NO_RANK if rank is None else rank


def save(
    connection: Connection,
    uid: str,
    progress: Mapping[tuple[str, int], Mapping[str, Any]],
    *,
    now: float,
) -> None:
    """Keep the newest line per instance; append its metrics at the script's time, else `now`."""
    lines = [
        {
            "run": uid,
            "role": role,
            "index": index,
            "body": json.dumps({**line}, default=plain),
        }
        for (role, index), line in progress.items()
    ]
    upsert(connection, table_of(ProgressRow), lines)
    points = [
        {"run": uid, "role": role, "index": index, **point}
        for (role, index), line in progress.items()
        for point in _points(line, now=now)
    ]
    upsert(connection, table_of(MetricRow), points)


def _points(line: Mapping[str, Any], *, now: float) -> Iterator[Mapping[str, Any]]:
    at = line.get("time")
    for name, value in (line.get("metrics") or {}).items():
        number = float(value)
        yield {
            "rank": _NO_RANK,
            "name": clean(name)[:250],
            "at": now if at is None else float(at),
            "step": line.get("step"),
            "value": None if math.isnan(number) else number,
        }


def newest(connection: Connection, uid: str) -> Mapping[tuple[str, int], Mapping[str, Any]]:
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
    return [
        MetricPoint(
            role=row.role,
            index=row[1],  # a tuple has a method of this name
            rank=None if row.rank == _NO_RANK else row.rank,
            name=row.name,
            at=row.at,
            step=row.step,
            value=math.nan if row.value is None else row.value,
        )
        for row in rows
    ]


def newest_metrics(
    connection: Connection, uid: str
) -> Mapping[tuple[str, int], Mapping[str, float]]:
    """Return the newest value of every metric per (role, index), whichever line it came with.

    Of several ranks, the lowest speaks for the instance.
    """
    series_of = (MetricRow.role, MetricRow.index, MetricRow.name, MetricRow.rank)
    last = (
        select(*series_of, func.max(MetricRow.at).label("at"))
        .where(MetricRow.run == uid)
        .group_by(*series_of)
        .subquery()
    )
    rows = connection.execute(
        select(*series_of, MetricRow.value)
        .join(
            last,
            and_(*(column == last.c[column.key] for column in (*series_of, MetricRow.at))),
        )
        .where(MetricRow.run == uid)
        .order_by(*series_of)
    )
    found: dict[tuple[str, int], dict[str, float]] = {}
    for role, index, name, _, value in rows:
        newest = math.nan if value is None else value
        found.setdefault((role, index), {}).setdefault(name, newest)
    return found
