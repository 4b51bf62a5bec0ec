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

__all__ = ["newest", "newest_metrics", "save", "series"]

FROM_LOG = "from_log"
"""Marks a line that the script did not report itself; nobody outside the store sees it."""


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
            MetricRow.name,
            MetricRow.at,
            MetricRow.step,
            MetricRow.value,
        )
        .where(*wanted)
        .order_by(MetricRow.at, MetricRow.role, MetricRow.index, MetricRow.name)
    )
    return [
        MetricPoint(
            role=row[0],
            index=row[1],
            name=row[2],
            at=row[3],
            step=row[4],
            value=math.nan if row[5] is None else row[5],
        )
        for row in rows
    ]


def newest_metrics(
    connection: Connection, uid: str
) -> Mapping[tuple[str, int], Mapping[str, float]]:
    """Return the newest value of every metric per (role, index), whichever line it came with."""
    series_of = (MetricRow.role, MetricRow.index, MetricRow.name)
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
    for role, index, name, value in rows:
        found.setdefault((role, index), {})[name] = math.nan if value is None else value
    return found
