"""Who used how much: sums over the attempts of instances, by user, team or job. Pure.

CPU, memory and GPU count as requested: what an instance really used is kept only of its newest look.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import BaseModel

from airflow_training.control.usage import ResourceUsage
from airflow_training.state.records import UsageSpan
from airflow_training.state.usage import totals

__all__ = ["UsageAnswer", "UsageGrouping", "usage_csv", "usage_sums"]

UsageGrouping = Literal["user", "team", "job"]
_HOUR = 3600.0
_GIB = 1 << 30


class UsageSum(BaseModel):
    name: str
    """Of the user, team or job; empty: none is known."""
    dag_id: str | None
    """Of a job: the DAG that it belongs to."""
    runs: int
    instance_seconds: float
    unrequested_seconds: float
    """Of these: of instances that requested neither CPU nor memory nor GPU."""
    cpu_hours: float
    gpu_hours: float
    memory_gib_hours: float


class UsageAnswer(BaseModel):
    by: UsageGrouping
    start: str
    end: str
    basis: Literal["requested"] = "requested"
    """Hours of CPU, memory and GPU: what was requested, times how long."""
    sums: list[UsageSum]
    """The largest first."""
    total: UsageSum


def usage_sums(
    spans: Sequence[UsageSpan],
    *,
    by: UsageGrouping,
    teams: Mapping[str, str | None],
    start: float,
    end: float,
) -> tuple[list[UsageSum], UsageSum]:
    """Return one sum per name, the largest first, and that of all.

    `teams`: DAG -> its team. Of an attempt counts what lies between `start` and `end`.
    """
    groups: dict[tuple[str, str], list[UsageSpan]] = {}
    for each in spans:
        name = {"user": each.submitted_by, "team": teams.get(each.dag_id) or "", "job": each.job}[
            by
        ]
        groups.setdefault((name, each.dag_id if by == "job" else ""), []).append(each)
    sums = [
        _sum(name, dag_id or None, members, start=start, end=end)
        for (name, dag_id), members in groups.items()
    ]
    sums.sort(key=lambda each: (-each.instance_seconds, each.name, each.dag_id or ""))
    return sums, _sum("", None, spans, start=start, end=end)


def _sum(
    name: str, dag_id: str | None, spans: Sequence[UsageSpan], *, start: float, end: float
) -> UsageSum:
    seconds: dict[tuple[tuple[str, str], ...], float] = {}
    for each in spans:
        within = max(0.0, min(each.finished_at, end) - max(each.started_at, start))
        asked = tuple(sorted(each.resources.items()))
        seconds[asked] = seconds.get(asked, 0.0) + within
    rows = [ResourceUsage(resources=dict(asked), seconds=took) for asked, took in seconds.items()]
    found = totals(rows)
    requested = ("cpu_seconds", "memory_byte_seconds", "gpu_seconds")
    bare = [row for row in rows if not any(totals([row])[part] for part in requested)]
    return UsageSum(
        name=name,
        dag_id=dag_id,
        runs=len({each.run for each in spans}),
        instance_seconds=round(found["instance_seconds"], 3),
        unrequested_seconds=round(totals(bare)["instance_seconds"], 3),
        cpu_hours=round(found["cpu_seconds"] / _HOUR, 4),
        gpu_hours=round(found["gpu_seconds"] / _HOUR, 4),
        memory_gib_hours=round(found["memory_byte_seconds"] / _HOUR / _GIB, 4),
    )


def usage_csv(answer: UsageAnswer) -> str:
    """Return the sums as a table for spreadsheets."""
    columns = ("runs", "instance_seconds", "unrequested_seconds", "cpu_hours", "gpu_hours", "memory_gib_hours")  # fmt: skip
    names = (answer.by, "dag_id") if answer.by == "job" else (answer.by,)
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*names, "start", "end", "basis", *columns])
    for each in answer.sums:
        named = (each.name, each.dag_id or "")[: len(names)]
        values = [getattr(each, column) for column in columns]
        table.writerow([*map(_cell, named), answer.start, answer.end, answer.basis, *values])
    return text.getvalue()


def _cell(text: str) -> str:
    """Return text that no spreadsheet takes for a formula: users choose these names."""
    return f"'{text}" if text.startswith(tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")) else text
