"""The cluster that a job is planned for: a document, a file, what the job asks for, or the machines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from airflow_training.errors import InputError, Problem
from airflow_training.planning.cluster import ClusterView
from airflow_training.planning.sources.documents import parse_cluster
from airflow_training.planning.sources.models import read_document
from airflow_training.spec.problems import did_you_mean
from airflow_training.spec.resolved import ResolvedJob

if TYPE_CHECKING:
    from airflow_training.runtimes.port import Runtime

__all__ = ["cluster_of"]

_AT = ("spec", "plan", "cluster")
_WORDS = ("nodes", "request")


def cluster_of(
    wanted: str | Mapping[str, Any],
    resolved: ResolvedJob,
    *,
    runtime: Callable[[ResolvedJob], Runtime],
) -> ClusterView:
    """Return the cluster that `spec.plan.cluster` means; raises InputError, RuntimeUnavailable."""
    if isinstance(wanted, Mapping):
        return parse_cluster(wanted, at=_AT)
    if wanted == "nodes":
        seen = asyncio.run(runtime(resolved).cluster_view())
        return parse_cluster(_of_nodes(seen.nodes, resolved), at=_AT)
    if wanted == "request":
        return parse_cluster(_of_request(resolved), at=_AT)
    if "." not in wanted and "/" not in wanted:
        raise InputError(
            problems=[
                Problem(
                    code="not_allowed",
                    field="spec.plan.cluster",
                    value=wanted,
                    message="is neither nodes, request nor a file",
                    allowed=[*_WORDS, "a .yaml or .json file", "a cluster document"],
                    hint=did_you_mean(wanted, _WORDS),
                )
            ]
        )
    return parse_cluster(read_document(wanted, base_dir=resolved.base_dir, at=_AT), at=_AT)


def _of_nodes(nodes: Sequence[NodeView], resolved: ResolvedJob) -> Mapping[str, Any]:
    """Return the document of a runtime's machines: their GPUs where the job asks for some, else cores."""
    if any(accelerators(role) for role in resolved.roles):
        kinds = Counter((node.device, node.gpus) for node in nodes if node.gpus)
        groups = [
            {"count": count, "device": device, "devices_per_node": gpus}
            for (device, gpus), count in kinds.items()
        ]
        if not groups:
            raise _refused("no node has a GPU, and the job asks for them")
        unknown = next((node.name for node in nodes if node.gpus and not node.device), "")
        if unknown:
            raise _refused(f"nobody says what the GPUs of {unknown} are")
    else:
        cores = _cores(resolved)
        sizes = Counter((int(node.cpus // cores), node.memory_bytes) for node in nodes)
        groups = [
            {"count": count, "device": _cpu(cores, memory / devices), "devices_per_node": devices}
            for (devices, memory), count in sizes.items()
            if devices
        ]
        if not groups:
            raise _refused(f"no node has the {cores:g} processors that a rank asks for")
    return {"name": f"the nodes of {resolved.runtime}", "nodes": _named(groups)}
