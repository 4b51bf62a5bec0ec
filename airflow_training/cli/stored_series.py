"""Series of a run as the store has them: of logs, of what scripts report, of runs whose logs are gone."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_training.documents.instances import InstanceKey
from airflow_training.supervise.instance_logs import RunLogs

if TYPE_CHECKING:
    from airflow_training.logs.model import Series
    from airflow_training.state.store import MetricPoint

__all__ = ["stored_series", "unlogged_series", "with_rank"]

_NOWHERE = -1
"""Offset and line of a point that stands in no log."""


def unlogged_series(run: RunLogs, logged: Sequence[Series]) -> list[Series]:
    """Return the series of a run that its logs did not tell."""
    told = {(each.role, each.index, each.metric) for each in logged}
    found = stored_series(run)
    ranks = {key: run.instance(*key).rank() for key in {(each.role, each.index) for each in found}}
    return [
        with_rank(each, ranks[each.role, each.index])
        for each in found
        if (each.role, each.index, each.metric) not in told
    ]


def stored_series(
    run: RunLogs, *, since: Mapping[InstanceKey, float] | None = None
) -> list[Series]:
    """Return the series of a run; `since`: only of these instances, from a time on."""
    points: dict[tuple[str, int, int | None, str], list[MetricPoint]] = defaultdict(list)
    for point in run.store.metrics.series(run.record.uid):
        points[point.role, point.index, point.rank, point.name].append(point)
    if since is not None:
        for (role, index, *_), found in points.items():
            begin = since.get(InstanceKey(role, index), math.inf)
            found[:] = [point for point in found if point.at >= begin]
    return [_series(found) for found in points.values() if found]


def with_rank(series: Series, rank: int | None) -> Series:
    """Return a series with the rank of its instance, where it has none of its own."""
    return dataclasses.replace(series, rank=rank if series.rank is None else series.rank)


def _series(points: Sequence[MetricPoint]) -> Series:
    import numpy as np

    from airflow_training.logs.model import Series

    first = points[0]
    nowhere = np.full(len(points), _NOWHERE, dtype=np.int64)
    return Series(
        metric=first.name,
        role=first.role,
        index=first.index,
        rank=first.rank,
        file=f"{first.role}-{first.index}",
        steps=np.array([math.nan if each.step is None else each.step for each in points], float),
        values=np.array([each.value for each in points], float),
        times=np.array([each.at for each in points], float),
        offsets=nowhere,
        lines=nowhere,
        total=len(points),
    )
