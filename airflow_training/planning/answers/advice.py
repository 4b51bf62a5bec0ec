"""Variables that tell NCCL what the planner counts with, only those that are safe wherever they are set."""

from __future__ import annotations

from airflow_training.planning.cost.collectives import environment
from airflow_training.planning.cost.group import group_of
from airflow_training.planning.view.cluster import ClusterView
from airflow_training.planning.view.plan import Estimate

__all__ = ["nccl_variables"]


def nccl_variables(estimate: Estimate, cluster: ClusterView) -> dict[str, str]:
    """Return the `NCCL_*` variables for the gradients' all-reduce of a plan; often none.

    On several kinds of nodes there are none: what is right for one may be wrong for another.
    """
    strategy = estimate.strategy
    ranks = strategy.dp * strategy.cp
    if len(cluster.groups) > 1 or ranks == 1:
        return {}
    (nodes,) = cluster.groups
    gradients = next((part.value for part in estimate.memory if part.name == "gradients"), 0.0)
    group = group_of(nodes, size=ranks, stride=strategy.tp, tiers=cluster.tiers)
    return environment("all_reduce", gradients, group)
