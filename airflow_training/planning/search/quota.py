"""A quota of devices as one more bound of a search."""

from __future__ import annotations

from dataclasses import replace

from airflow_training.documents.text import counted
from airflow_training.errors import InputError
from airflow_training.planning.search.constraints import Constraints
from airflow_training.planning.view.cluster import ClusterView

__all__ = ["within_quota"]


def within_quota(constraints: Constraints, cluster: ClusterView) -> Constraints:
    """Return the constraints under the quota of a cluster; raises InputError where they want more."""
    quota = cluster.quota
    if quota is None:
        return constraints
    rule = constraints.rule("devices")
    wanted = rule.pinned or rule.minimum or 1
    if wanted > quota:
        raise InputError.of(
            code="conflict",
            field="constraints.devices",
            value=wanted,
            message=f"the quota lets a plan take {counted(quota, 'device')}",
            hint="ask for fewer devices, or for a larger quota",
        )
    bound = quota if rule.maximum is None else min(quota, rule.maximum)
    return Constraints(rules={**constraints.rules, "devices": replace(rule, maximum=bound)})
