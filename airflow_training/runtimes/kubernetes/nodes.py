"""The nodes of a cluster, as the planner sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_training.documents.quantities import parse_quantity
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.errors import Problem
from airflow_training.runtimes.kubernetes.api import Api
from airflow_training.runtimes.kubernetes.api_errors import Forbidden
from airflow_training.runtimes.kubernetes.fitting import never_fits
from airflow_training.runtimes.kubernetes.kinds import NODES
from airflow_training.runtimes.kubernetes.rights import allowed_instances, held_gpus
from airflow_training.runtimes.port import ClusterSnapshot, NodeView

__all__ = ["cluster_view", "unfit_pods"]


async def cluster_view(api: Api, job: ResolvedJob | None, *, with_free: bool) -> ClusterSnapshot:
    """Return the nodes that pods may go to; one made-up node where we may not see them."""
    from airflow_training.planning.sources.kubernetes_nodes import takes_work  # for plans only

    instances = None if job is None else await allowed_instances(api, job)
    try:
        nodes, _ = await api.list(NODES)
    except Forbidden:
        # unknown, not none: the scheduler decides
        unknown = NodeView(name="cluster", cpus=float(2**20), memory_bytes=2**60, gpus=2**20)
        return ClusterSnapshot(nodes=(unknown,), instances=instances)
    held = await held_gpus(api) if with_free else None
    usable = tuple(_node_view(node, held) for node in nodes if takes_work(node))
    return ClusterSnapshot(nodes=usable, instances=instances)


def _node_view(node: Mapping[str, Any], held: Mapping[str, int] | None) -> NodeView:
    has = (node.get("status") or {}).get("allocatable") or {}
    name, gpus = node["metadata"]["name"], int(parse_quantity(has.get("nvidia.com/gpu", 0)))
    return NodeView(
        name=name,
        cpus=parse_quantity(has.get("cpu", 0)),
        memory_bytes=int(parse_quantity(has.get("memory", 0))),
        gpus=gpus,
        labels=node["metadata"].get("labels") or {},
        free_gpus=None if held is None else max(0, gpus - held.get(name, 0)),
    )


async def unfit_pods(
    api: Api, job: ResolvedJob, pods: Mapping[str, Mapping[str, Any]]
) -> list[Problem]:
    """Return a problem for each pod that no node could ever take; none where we may not see nodes.

    `pods`: role -> one of its pods.
    """
    try:
        nodes, _ = await api.list(NODES)
    except Forbidden:
        return []
    any_taint = job.scheduling.gang == "kueue"  # a flavor brings its tolerations
    found = {
        role: never_fits(pod["spec"], nodes, any_taint=any_taint) for role, pod in pods.items()
    }
    return [
        Problem(
            code="never_fits",
            field=f"spec.roles.{role}",
            value=role,
            message=f"NeverFits: {why}",
            hint="ask for less, or add such a node; schedulingPolicy.neverFits says whether to wait for one",
        )
        for role, why in found.items()
        if why
    ]
