"""What a job may have of machines that others use too: what is free, and what it holds itself. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from airflow_training.admission.plan.sizes import accelerators
from airflow_training.control.model import ActivePhase, InstanceEntry
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.runtimes.port import ClusterSnapshot, NodeView

__all__ = ["TIGHT_SECONDS", "available_nodes", "waiting_seconds"]

TIGHT_SECONDS = 300.0
"""How long an instance waits for a place until others are taken to keep it: an autoscaler is quicker."""


def waiting_seconds(team: Sequence[InstanceEntry], *, now: float) -> float:
    """Return how long the instance that has waited longest has had no node; 0: none waits."""
    waiting_since = [
        each.phase.desired_since
        for each in team
        if isinstance(each.phase, ActivePhase) and each.state == "pending" and not each.node
    ]
    return max((now - at for at in waiting_since), default=0.0)


def available_nodes(
    machines: ClusterSnapshot, job: ResolvedJob, team: Sequence[InstanceEntry]
) -> ClusterSnapshot:
    """Return the machines with the GPUs that a job may have of them; all where it is not known."""
    held: Counter[str] = Counter()
    for entry in team:
        if entry.node and entry.desired:
            held[entry.node] += accelerators(job.role(entry.role))

    def ours(node: NodeView) -> NodeView:
        if node.free_gpus is None:
            return node
        return replace(node, gpus=min(node.gpus, node.free_gpus + held[node.name]))

    return replace(machines, nodes=tuple(ours(node) for node in machines.nodes))
