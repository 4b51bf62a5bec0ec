"""A cluster view from Kubernetes nodes: plain documents as the API server gives them."""

from __future__ import annotations

import functools
import importlib.resources
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_training.documents.quantities import parse_quantity
from airflow_training.documents.text import counted
from airflow_training.errors import InputError
from airflow_training.planning.sources.node_labels import RESOURCES, count_of, device_of
from airflow_training.planning.view import catalogue
from airflow_training.planning.view.cluster import ClusterView, Device, Link, NodeGroup

__all__ = ["ClusterReading", "cluster_of_nodes", "takes_work"]

_INSTANCE_TYPE = "node.kubernetes.io/instance-type"
_UNKNOWN_NETWORK = "ethernet-10"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReading:
    """A view, and what had to be left out or assumed for it."""

    view: ClusterView
    warnings: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _NodeDevices:
    name: str
    device: Device
    devices: int
    nic: Link
    nics: int
    cpus: float
    memory_bytes: float


def cluster_of_nodes(
    nodes: Sequence[Mapping[str, Any]], *, name: str = "kubernetes"
) -> ClusterReading:
    """Cluster of the nodes that accept work now; those cordoned or not ready are left out.

    Where a node has accelerators, nodes without are left out. The rate of the network is known only
    for instance types of large clouds; elsewhere it is assumed, with a warning.

    Raises:
        InputError: nothing is left to plan for.
    """
    warnings: list[str] = []
    ready = [node for node in nodes if takes_work(node)]
    if len(ready) < len(nodes):
        warnings.append(
            f"left out: {counted(len(nodes) - len(ready), 'node')} cordoned or not ready"
        )
    with_devices = [node for node in ready if _devices(node)]
    if with_devices:
        read = [_accelerated(node, warnings) for node in with_devices]
    else:
        read = [_plain(node, warnings) for node in ready]
    known = [node for node in read if node is not None]
    if not known:
        raise _nothing(warnings)
    if len(known) > 1 and any(node.nic.name == _UNKNOWN_NETWORK for node in known):
        warnings.append(
            f"assumed: {_UNKNOWN_NETWORK} between nodes; a cluster file can say what it is"
        )
    return ClusterReading(
        view=ClusterView(name=name, groups=_grouped(known)),
        warnings=tuple(dict.fromkeys(warnings)),
    )


def takes_work(node: Mapping[str, Any]) -> bool:
    """Return whether pods may go to a node now: it is neither cordoned nor unready."""
    if (node.get("spec") or {}).get("unschedulable"):
        return False
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = [each.get("status") for each in conditions if each.get("type") == "Ready"]
    return all(status == "True" for status in ready)


def _allocatable(node: Mapping[str, Any]) -> Mapping[str, float]:
    status = node.get("status") or {}
    amounts = status.get("allocatable") or status.get("capacity") or {}
    wanted = ("cpu", "memory", *RESOURCES)
    return {key: parse_quantity(amounts[key]) for key in wanted if key in amounts}


def _labels(node: Mapping[str, Any]) -> Mapping[str, str]:
    labels: Mapping[str, str] = node["metadata"].get("labels") or {}
    return labels


def _devices(node: Mapping[str, Any]) -> int:
    """Return the devices of a node; time-slicing multiplies the resource, never the devices."""
    offered = count_of(_allocatable(node))
    physical = _labels(node).get("nvidia.com/gpu.count", "")
    return min(offered, int(physical)) if physical.isdigit() else offered


def _accelerated(node: Mapping[str, Any], warnings: list[str]) -> _NodeDevices | None:
    labels = _labels(node)
    instance = _instances().get(labels.get(_INSTANCE_TYPE, ""))
    device = device_of(labels)
    if device is None and instance is not None:
        device = catalogue.device(instance["device"])
    if not isinstance(device, Device):
        said = f"the catalogue has no '{device}'" if device else "no label names its devices"
        warnings.append(f"left out: {node['metadata']['name']}: {said}")
        return None
    return _node(node, device, _devices(node), instance)


def _plain(node: Mapping[str, Any], warnings: list[str]) -> _NodeDevices | None:
    amounts = _allocatable(node)
    if not amounts.get("cpu") or not amounts.get("memory"):
        warnings.append(f"left out: {node['metadata']['name']}: it offers no CPU or no memory")
        return None
    device = catalogue.cpu(amounts["cpu"], memory_bytes=amounts["memory"])
    return _node(node, device, 1, _instances().get(_labels(node).get(_INSTANCE_TYPE, "")))


def _node(
    node: Mapping[str, Any], device: Device, devices: int, instance: Mapping[str, Any] | None
) -> _NodeDevices:
    amounts = _allocatable(node)
    nic, nics = catalogue.link(_UNKNOWN_NETWORK), 1
    if instance is not None:
        nic = catalogue.link(f"{instance['nic']}-{instance['nic_gbit_s']:g}")
        nics = instance["nics_per_node"]
    elif device.name.startswith("TPU"):
        # chips of one slice reach those of other hosts as they do each other
        nic, nics = catalogue.usual_link(device.name) or nic, devices
    return _NodeDevices(
        name=node["metadata"]["name"],
        device=device,
        devices=devices,
        nic=nic,
        nics=nics,
        cpus=amounts.get("cpu", 0.0),
        memory_bytes=amounts.get("memory", 0.0),
    )


def _grouped(nodes: Sequence[_NodeDevices]) -> tuple[NodeGroup, ...]:
    """Return groups of nodes that are equal for training; a group has what its poorest node has."""
    equal: dict[tuple[str, int, str, int], list[_NodeDevices]] = defaultdict(list)
    for node in nodes:
        equal[node.device.name, node.devices, node.nic.name, node.nics].append(node)
    names = [device for device, *_ in equal]
    seen: dict[str, int] = defaultdict(int)
    groups = []
    for (device, devices, _, nics), members in equal.items():
        seen[device] += 1
        first = min(members, key=lambda node: node.device.memory_bytes)
        usual = catalogue.usual_link(device)
        groups.append(
            NodeGroup(
                name=f"{device}-{seen[device]}" if names.count(device) > 1 else device,
                count=len(members),
                device=first.device,
                devices_per_node=devices,
                intra_node=usual or first.nic,
                nic=first.nic,
                nics_per_node=nics,
                host_cpus=min(node.cpus for node in members),
                host_memory_bytes=min(node.memory_bytes for node in members),
            )
        )
    return tuple(groups)


def _nothing(warnings: Sequence[str]) -> InputError:
    return InputError.of(
        code="not_supported",
        field="cluster",
        message="no node of the cluster can be planned for"
        + "".join(f"\n  {warning}" for warning in warnings),
        hint="describe the cluster in a file",
    )


@functools.cache
def _instances() -> Mapping[str, Mapping[str, Any]]:
    folder = importlib.resources.files("airflow_training.planning").joinpath("data")
    text = folder.joinpath("instances.json").read_text("utf-8")
    return {entry["name"]: entry for entry in json.loads(text)["instances"]}
