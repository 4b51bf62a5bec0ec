"""The newest point of every series, looked up as often as it is cheap. Blocks.

All points of a run are looked at for that: millions, where thousands of processes report.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from airflow_training.control.reports import ProgressReport
from airflow_training.control.system_metrics import is_system_metric
from airflow_training.documents.instances import InstanceKey
from airflow_training.state.store import MetricPoint, Store
from airflow_training.web.run_cache import RunCache

__all__ = ["NewestPoints", "newest_points_of"]


class NewestPoints:
    """The newest points of the runs that were asked for last; safe for threads."""

    def __init__(self, store: Store) -> None:
        self._looks: RunCache[Sequence[MetricPoint]] = RunCache(store.metrics.newest_points)

    def of(self, uid: str) -> Sequence[MetricPoint]:
        """Return the newest point of each series of a run, as of a moment ago at most."""
        return self._looks.of(uid)

    def metrics(
        self, uid: str, progress: Mapping[InstanceKey, ProgressReport]
    ) -> Mapping[InstanceKey, Mapping[str, float]]:
        """Return the newest value of every metric that was reported per instance: what it just said counts first."""
        found: dict[tuple[str, int], dict[str, float]] = {}
        for point in self.of(uid):
            if not is_system_metric(point.name):
                found.setdefault((point.role, point.index), {}).setdefault(point.name, point.value)
        for key, report in progress.items():
            found.setdefault(key, {}).update(report.metrics)
        return {InstanceKey(*key): values for key, values in found.items()}


@functools.lru_cache(maxsize=4)
def newest_points_of(store: Store) -> NewestPoints:
    """Return those of this process for a store."""
    return NewestPoints(store)
