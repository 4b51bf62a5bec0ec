"""Who used how much: sums over the attempts of instances, by user, team or job. Pure.

CPU, memory and GPU count as requested: what an instance really used is kept only of its newest look.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from decimal import Decimal
from typing import Literal

from pydantic import BaseModel

from airflow_training.accounts.bills import rounded
from airflow_training.accounts.prices import PriceList
from airflow_training.control.usage import ResourceUsage
from airflow_training.state.records import UsageSpan
from airflow_training.state.usage import totals

__all__ = ["UsageAnswer", "UsageGrouping", "usage_csv", "usage_days", "usage_sums"]

UsageGrouping = Literal["user", "team", "job"]
_HOUR = 3600.0
_SECONDS_OF_HOUR = Decimal(3600)
_Kind = tuple[frozenset[tuple[str, str]], frozenset[tuple[str, str]]]
"""What is asked for, and the labels of the node: what a price depends on."""
_DAY = 86_400.0
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
    cost: str | None
    """As text, so that no reader makes a float of it; null: nothing has a price."""


class UsageAnswer(BaseModel):
    by: UsageGrouping
    start: str
    end: str
    basis: Literal["requested"] = "requested"
    """Hours of CPU, memory and GPU: what was requested, times how long."""
    sums: list[UsageSum]
    """The largest first."""
    total: UsageSum
    days: list[UsageSum]
    """A sum for each day, in UTC, the first one first: `name` is the day, as `2026-01-31`."""
    currency: str | None
    """Of `cost`; null: nothing has a price."""


def usage_sums(
    spans: Sequence[UsageSpan],
    *,
    by: UsageGrouping,
    teams: Mapping[str, str | None],
    start: float,
    end: float,
    prices: PriceList | None = None,
    node_labels: Mapping[tuple[str, str], Mapping[str, str]] | None = None,
) -> tuple[list[UsageSum], UsageSum]:
    """Return one sum per name, the largest first, and that of all.

    `teams`: DAG -> its team. Of an attempt counts what lies between `start` and `end`.
    `prices`: None where nothing has one. `node_labels`: run and role -> what it asks of its nodes.
    """
    priced = (prices, node_labels or {})
    groups: dict[tuple[str, str], list[UsageSpan]] = {}
    for each in spans:
        name = {"user": each.submitted_by, "team": teams.get(each.dag_id) or "", "job": each.job}[
            by
        ]
        groups.setdefault((name, each.dag_id if by == "job" else ""), []).append(each)
    sums = [
        _sum(name, dag_id or None, members, start=start, end=end, priced=priced)
        for (name, dag_id), members in groups.items()
    ]
    sums.sort(key=lambda each: (-each.instance_seconds, each.name, each.dag_id or ""))
    return sums, _sum("", None, spans, start=start, end=end, priced=priced)


def usage_days(
    spans: Sequence[UsageSpan],
    *,
    start: float,
    end: float,
    prices: PriceList | None = None,
    node_labels: Mapping[tuple[str, str], Mapping[str, str]] | None = None,
) -> list[UsageSum]:
    """Sum of each day of UTC that the time between `start` and `end` touches; as in `usage_sums`."""
    first, last = int(start // _DAY), math.ceil(end / _DAY)
    members: dict[int, list[UsageSpan]] = {day: [] for day in range(first, last)}
    for each in spans:
        begun, over = max(each.started_at, start), min(each.finished_at, end)
        if begun < over:
            for day in range(int(begun // _DAY), math.ceil(over / _DAY)):
                members[day].append(each)
    return [
        _sum(
            datetime.fromtimestamp(day * _DAY, tz=timezone.utc).strftime("%Y-%m-%d"),
            None,
            found,
            start=max(start, day * _DAY),
            end=min(end, (day + 1) * _DAY),
            priced=(prices, node_labels or {}),
        )
        for day, found in members.items()
    ]


def _sum(
    name: str,
    dag_id: str | None,
    spans: Sequence[UsageSpan],
    *,
    start: float,
    end: float,
    priced: tuple[PriceList | None, Mapping[tuple[str, str], Mapping[str, str]]],
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
        cost=_cost(spans, *priced, start=start, end=end),
    )


def _cost(
    spans: Sequence[UsageSpan],
    prices: PriceList | None,
    node_labels: Mapping[tuple[str, str], Mapping[str, str]],
    *,
    start: float,
    end: float,
) -> str | None:
    if prices is None:
        return None
    # of what was requested alike between two changes of prices seconds are added first: spans may be very many
    kinds: dict[_Kind, tuple[UsageSpan, Mapping[str, str]]] = {}
    edges = [start, *prices.changes(start, end), end]
    cost = Decimal(0)
    for left, right in itertools.pairwise(edges):
        seconds: dict[_Kind, Decimal] = {}
        for each in spans:
            begun, over = max(each.started_at, left), min(each.finished_at, right)
            if begun >= over:
                continue
            labels = node_labels.get((each.run, each.role), {})
            kind = frozenset(each.resources.items()), frozenset(labels.items())
            kinds.setdefault(kind, (each, labels))
            seconds[kind] = seconds.get(kind, Decimal(0)) + Decimal(str(over - begun))
        for kind, took in seconds.items():
            first, labels = kinds[kind]
            cost += prices.hourly(first.resources, labels, at=left) * took
    return str(rounded(cost / _SECONDS_OF_HOUR))


def usage_csv(answer: UsageAnswer) -> str:
    """Return the sums as a table for spreadsheets."""
    columns = ("runs", "instance_seconds", "unrequested_seconds", "cpu_hours", "gpu_hours", "memory_gib_hours", "cost")  # fmt: skip
    names = (answer.by, "dag_id") if answer.by == "job" else (answer.by,)
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*names, "start", "end", "basis", *columns, "currency"])
    for each in answer.sums:
        named = (each.name, each.dag_id or "")[: len(names)]
        values = [getattr(each, column) for column in columns]
        values = ["" if value is None else value for value in (*values, answer.currency)]
        table.writerow([*map(_cell, named), answer.start, answer.end, answer.basis, *values])
    return text.getvalue()


def _cell(text: str) -> str:
    """Return text that no spreadsheet takes for a formula: users choose these names."""
    return f"'{text}" if text.startswith(tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")) else text
