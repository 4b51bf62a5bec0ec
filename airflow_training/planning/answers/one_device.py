"""What a training takes on a single device that holds all of it, by what it goes to."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_training.planning.cost.estimating import estimate
from airflow_training.planning.view.catalogue import cpu, link
from airflow_training.planning.view.cluster import ClusterView, NodeGroup
from airflow_training.planning.view.computation import ComputationView
from airflow_training.planning.view.plan import Workload
from airflow_training.planning.view.strategy import Precision, Strategy

__all__ = ["one_device_memory"]


def one_device_memory(
    view: ComputationView, *, batch_size: int, precision: Precision = "fp32"
) -> Mapping[str, float]:
    """Return bytes by what they are for: weights, gradients, optimizer (Adam), activations and so on.

    They add up to the planner's estimate of the peak in a step over `batch_size` samples, without what a GPU's runtime takes.
    """
    node = NodeGroup(
        name="one", count=1, device=cpu(1), devices_per_node=1, intra_node=link("shared-memory")
    )
    strategy = Strategy(global_batch=batch_size, micro_batch=batch_size, precision=precision)
    workload = Workload(view=view, global_batch=batch_size, precision=precision, runtime="generic")
    found = estimate(workload, ClusterView(name="one", groups=(node,)), strategy)
    wanted = ("weights", "gradients", "optimizer", "activations", "working")
    return {line.name: line.value for line in found.memory if line.name in wanted}
