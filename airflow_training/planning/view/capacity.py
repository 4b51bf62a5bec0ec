"""Whether a cluster has the devices that a strategy takes."""

from __future__ import annotations

from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import Problem
from airflow_training.planning.view.cluster import ClusterView
from airflow_training.planning.view.strategy import Strategy

__all__ = ["has_room", "missing_devices"]


def has_room(strategy: Strategy, cluster: ClusterView) -> bool:
    """Return whether a cluster has the devices that a strategy takes, of the groups it names."""
    return not missing_devices(strategy, cluster)


def missing_devices(strategy: Strategy, cluster: ClusterView) -> list[Problem]:
    """Return a problem for each group of devices that a strategy takes and the cluster has too few of."""
    if strategy.stage_devices is None:
        where = "the cluster" if cluster.usable == cluster.devices else "the quota of the cluster"
        return _too_few("strategy", strategy.devices, cluster.usable, where)
    per_stage = strategy.devices // strategy.pp
    there = {group.name: group.devices for group in cluster.groups}
    found: list[Problem] = []
    for name in dict.fromkeys(strategy.stage_devices):
        if name in there:
            needed = strategy.stage_devices.count(name) * per_stage
            found += _too_few("strategy.stage_devices", needed, there[name], name)
        else:
            found.append(
                Problem(
                    code="not_found",
                    field="strategy.stage_devices",
                    value=name,
                    message=f"the cluster has no group of nodes called '{name}'",
                    allowed=tuple(there),
                    hint=did_you_mean(name, tuple(there)),
                )
            )
    return found


def _too_few(field: str, needed: int, there: int, where: str) -> list[Problem]:
    if needed <= there:
        return []
    message = f"takes {needed} devices, {where} has {there}"
    return [Problem(code="cluster_too_small", field=field, value=needed, message=message)]
