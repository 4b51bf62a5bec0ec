"""Series that only the store has: what scripts report themselves, and runs whose logs are gone."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_training.cli.instance_logs import RunLogs

if TYPE_CHECKING:
    from airflow_training.logs.model import Series
    from airflow_training.state.store import MetricPoint

__all__ = ["stored_series"]

_NOWHERE = -1
"""Offset and line of a point that stands in no log."""


def stored_series(run: RunLogs, known: Sequence[Series]) -> list[Series]:
    """Return the series of a run that are none of `known`, which its logs told."""
    told = {(each.role, each.index, each.metric) for each in known}
    points: dict[tuple[str, int, int | None, str], list[MetricPoint]] = defaultdict(list)
    for point in run.store.metrics(run.record.uid):
        if (point.role, point.index, point.name) not in told:
            points[point.role, point.index, point.rank, point.name].append(point)
    return [
        _series(found, rank=run.instance(role, index).rank() if rank is None else rank)
        for (role, index, rank, _), found in points.items()
    ]


def _series(points: Sequence[MetricPoint], *, rank: int | None) -> Series:
    import numpy as np

    from airflow_training.logs.model import Series

    first = points[0]
    nowhere = np.full(len(points), _NOWHERE, dtype=np.int64)
    return Series(
        metric=first.name,
        role=first.role,
        index=first.index,
        rank=rank,
        file=f"{first.role}-{first.index}",
        steps=np.array([math.nan if each.step is None else each.step for each in points], float),
        values=np.array([each.value for each in points], float),
        times=np.array([each.at for each in points], float),
        offsets=nowhere,
        lines=nowhere,
        total=len(points),
    )
