"""A cluster view from what a job asks for: as if its instances were all the devices there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_training.admission.plan.sizes import instance_amounts
from airflow_training.documents.resolved import ResolvedJob, ResolvedRole
from airflow_training.errors import InputError, Problem
from airflow_training.planning.sources.node_labels import count_of, device_of
from airflow_training.planning.sources.reading import Mistakes
from airflow_training.planning.view import catalogue
from airflow_training.planning.view.cluster import ClusterView, Device, Link, NodeGroup

__all__ = ["cluster_of_request"]

_NETWORK = "ethernet-10"
"""Nobody asks for a network; this is what any cluster has."""


def cluster_of_request(job: ResolvedJob, *, on_one_machine: bool) -> ClusterView:
    """Return the devices that the ranks of a job ask for.

    An instance is a node with the accelerators it asks for, or, without any, one device of its CPU
    cores (one core where it asks for none); `on_one_machine`: all instances are on one node. A role that
    may grow counts with its `maxReplicas`. The kind of accelerator comes from the node selector.

    Raises:
        InputError: no role takes part in the training, or the kind of its accelerators is not said.
    """
    mistakes = Mistakes()
    asked: list[_InstanceRequest] = []
    for role in job.roles:
        if role.rank_offset is not None:
            with mistakes:
                asked.append(_asked(role))
    mistakes.complain()
    equal = _merged([each for each in asked if each.instances])
    if not equal:
        problem = Problem(
            code="not_supported",
            field="spec.roles",
            message="no role asks for an instance to train",
        )
        raise InputError(problems=[problem])
    group = _on_one_machine if on_one_machine else _on_nodes
    return ClusterView(name=job.name, groups=tuple(group(each) for each in equal))


@dataclass(frozen=True, slots=True, kw_only=True)
class _InstanceRequest:
    """Equal instances."""

    role: str
    instances: int
    device: Device
    devices: int
    """Of one instance."""
    cpus: float
    memory_bytes: float


def _asked(role: ResolvedRole) -> _InstanceRequest:
    pod: Mapping[str, Any] = role.template.get("spec") or {}
    amounts = instance_amounts(role)
    accelerators = count_of(amounts)
    if accelerators:
        device = _accelerator(role.name, pod)
    else:
        device = catalogue.cpu(amounts.get("cpu") or 1.0, memory_bytes=amounts.get("memory"))
    return _InstanceRequest(
        role=role.name,
        instances=max(role.replicas, role.max_replicas or 0),
        device=device,
        devices=max(1, accelerators),
        cpus=amounts.get("cpu", 0.0),
        memory_bytes=amounts.get("memory", 0.0),
    )


def _merged(asked: Sequence[_InstanceRequest]) -> Sequence[_InstanceRequest]:
    """Return roles whose instances are equal as one, named after the first."""
    merged: list[_InstanceRequest] = []
    for each in asked:
        for place, other in enumerate(merged):
            if replace(each, role=other.role, instances=other.instances) == other:
                merged[place] = replace(other, instances=other.instances + each.instances)
                break
        else:
            merged.append(each)
    return merged


def _on_nodes(asked: _InstanceRequest) -> NodeGroup:
    return _group(
        asked, count=asked.instances, devices=asked.devices, nic=catalogue.link(_NETWORK), share=1
    )


def _on_one_machine(asked: _InstanceRequest) -> NodeGroup:
    return _group(
        asked,
        count=1,
        devices=asked.devices * asked.instances,
        nic=catalogue.link("shared-memory"),
        share=asked.instances,
    )


def _group(
    asked: _InstanceRequest, *, count: int, devices: int, nic: Link, share: int
) -> NodeGroup:
    return NodeGroup(
        name=asked.role,
        count=count,
        device=asked.device,
        devices_per_node=devices,
        intra_node=catalogue.usual_link(asked.device.name) or catalogue.link("shared-memory"),
        nic=nic,
        host_cpus=asked.cpus * share,
        host_memory_bytes=asked.memory_bytes * share,
    )


def _accelerator(role: str, pod: Mapping[str, Any]) -> Device:
    device = device_of(pod.get("nodeSelector") or {})
    if isinstance(device, Device):
        return device
    said = f"the catalogue has no '{device}'" if device else "which kind is not said"
    problem = Problem(
        code="not_supported",
        field=f"spec.roles.{role}",
        message=f"asks for accelerators to plan for, and {said}",
        hint="add a node selector such as nvidia.com/gpu.product, or plan for a cluster file",
    )
    raise InputError(problems=[problem])
