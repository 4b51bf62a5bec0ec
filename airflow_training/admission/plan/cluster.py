"""The cluster that a job is planned for: a document, a file, what the job asks for, or the machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_training.admission.plan.history import History, MeasuredNodes
from airflow_training.admission.plan.request import cluster_of_request
from airflow_training.admission.plan.sizes import accelerators, devices_of, requested_cores
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import InputError, Problem
from airflow_training.planning.sources.documents import parse_cluster
from airflow_training.planning.sources.files import read_cluster
from airflow_training.planning.sources.kubernetes_nodes import ClusterReading, cluster_of_nodes
from airflow_training.planning.sources.measured import with_links
from airflow_training.planning.sources.node_labels import device_of
from airflow_training.planning.view import catalogue
from airflow_training.planning.view.cluster import ClusterView, Device, NodeGroup
from airflow_training.runtimes.rendering import runs_here

if TYPE_CHECKING:
    from airflow_training.runtimes.port import ClusterSnapshot as Machines
    from airflow_training.runtimes.port import NodeView

__all__ = ["Nodes", "cluster_of"]

Nodes = Callable[[ResolvedJob], "Machines"]
"""Asks the runtime of a job for its machines."""

_AT = ("spec", "plan", "cluster")
_WORDS = ("nodes", "request")


def cluster_of(
    wanted: str | Mapping[str, Any], resolved: ResolvedJob, *, nodes: Nodes, history: History
) -> ClusterReading:
    """Return the cluster that `spec.plan.cluster` means, and what was assumed of it.

    `nodes` and `history` are asked where `nodes` is wanted. Raises InputError, and what they raise.
    """
    if isinstance(wanted, Mapping):
        return ClusterReading(view=parse_cluster(wanted, at=_AT), warnings=())
    if wanted == "nodes":
        machines, measured = nodes(resolved), history.nodes(resolved.runtime)
        found = _of_nodes(machines, resolved)
        return found if measured is None else _with_measured(found, machines.nodes, measured)
    if wanted == "request":
        return ClusterReading(
            view=cluster_of_request(resolved, on_one_machine=runs_here(resolved)), warnings=()
        )
    if Path(wanted).suffix not in (".yaml", ".yml", ".json"):
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
    path = Path(resolved.base_dir) / Path(wanted).expanduser()
    return ClusterReading(view=read_cluster(path), warnings=())


def _of_nodes(machines: Machines, resolved: ResolvedJob) -> ClusterReading:
    """Return what a runtime's machines are to a job, as far as quotas let it have them."""
    found = _of_machines(machines.nodes, resolved)
    if machines.instances is None:
        return found
    ranked = [role for role in resolved.roles if role.rank_offset is not None]
    per_instance = min(devices_of(role, resolved) for role in ranked)
    quota = machines.instances * per_instance
    return replace(found, view=replace(found.view, quota=quota))


def _with_measured(
    found: ClusterReading, nodes: Sequence[NodeView], measured: MeasuredNodes
) -> ClusterReading:
    """Return the cluster with the links that a run measured on nodes of the same kind."""
    on = [node for node in nodes if node.name in measured.nodes]
    devices = [device_of(node.labels) for node in on if node.gpus]
    kinds = {device.name for device in devices if isinstance(device, Device)}
    groups = tuple(
        with_links(group, measured.links)
        if on and (group.device.name in kinds or group.device.is_host)
        else group
        for group in found.view.groups
    )
    if groups == found.view.groups:
        return found
    said = f"assumed: links reach what run '{measured.run_id}' measured"
    network = any(link.kind == "inter_node" for link in measured.links)
    others = [each for each in found.warnings if not (network and each.startswith("assumed: "))]
    return ClusterReading(view=replace(found.view, groups=groups), warnings=(*others, said))


def _of_machines(nodes: Sequence[NodeView], resolved: ResolvedJob) -> ClusterReading:
    """Return the GPUs of machines where a job asks for some, else their cores."""
    name = f"the {resolved.runtime} nodes"
    if any(accelerators(role) for role in resolved.roles):
        return cluster_of_nodes([_node_document(node) for node in nodes if node.gpus], name=name)
    cores = max(requested_cores(role) for role in resolved.roles)
    sizes = Counter((int(node.cpus // cores), node.memory_bytes) for node in nodes)
    groups = [
        NodeGroup(
            name=f"nodes-{place}",
            count=count,
            device=catalogue.cpu(cores, memory_bytes=memory / ranks),
            devices_per_node=ranks,
            intra_node=catalogue.link("shared-memory"),
            nic=catalogue.network(10.0),
        )
        for place, ((ranks, memory), count) in enumerate(sizes.items(), start=1)
        if ranks
    ]
    if not groups:
        raise InputError(
            problems=[
                Problem(
                    code="not_supported",
                    field="spec.plan.cluster",
                    value="nodes",
                    message=f"no node has the {cores:g} processors that one rank asks for",
                )
            ]
        )
    return ClusterReading(view=ClusterView(name=name, groups=tuple(groups)), warnings=())


def _node_document(node: NodeView) -> Mapping[str, Any]:
    """Return a machine as the API server of Kubernetes would describe it."""
    has = {"cpu": node.cpus, "memory": node.memory_bytes, "nvidia.com/gpu": node.gpus}
    return {
        "metadata": {"name": node.name, "labels": dict(node.labels)},
        "status": {"allocatable": {key: str(amount) for key, amount in has.items()}},
    }
