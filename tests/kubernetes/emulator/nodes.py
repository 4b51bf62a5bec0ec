"""Nodes: their documents, what pods on them use, and losing one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.kubernetes.emulator.clock import stamp

Object = dict[str, Any]

UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node of a test cluster; amounts are Kubernetes quantities."""

    name: str
    cpu: str = "64"
    memory: str = "256Gi"
    gpus: int = 0
    pods: int = 110
    labels: Mapping[str, str] = field(default_factory=dict)


def document(node: Node, number: int) -> Object:
    amounts = {"cpu": node.cpu, "memory": node.memory, "pods": str(node.pods)}
    if node.gpus:
        amounts["nvidia.com/gpu"] = str(node.gpus)
    return {
        "metadata": {
            "name": node.name,
            "labels": {
                "kubernetes.io/hostname": node.name, "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64", **node.labels,
            },
        },
        "spec": {},
        "status": {
            "capacity": amounts, "allocatable": dict(amounts),
            "addresses": [
                {"type": "InternalIP", "address": f"10.0.{number // 250}.{number % 250 + 1}"},
                {"type": "Hostname", "address": node.name},
            ],
            "conditions": [ready_condition("True", "KubeletReady", "kubelet is posting ready status")],
            "nodeInfo": {
                "kubeletVersion": "v1.36.0", "architecture": "amd64", "operatingSystem": "linux",
                "bootID": node.name, "machineID": node.name, "systemUUID": node.name,
                "containerRuntimeVersion": "containerd://2.2.0", "kernelVersion": "6.12.0",
                "kubeProxyVersion": "", "osImage": "emulator",
            },
        },
    }  # fmt: skip


def ready_condition(status: str, reason: str, message: str) -> Object:
    return condition("Ready", status, reason, message)


def condition(kind: str, status: str, reason: str, message: str) -> Object:
    return {
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastHeartbeatTime": stamp(), "lastTransitionTime": stamp(),
    }  # fmt: skip


def is_ready(node: Mapping[str, Any]) -> bool:
    conditions = node["status"].get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def internal_ip(node: Mapping[str, Any]) -> str:
    return next(
        (one["address"] for one in node["status"]["addresses"] if one["type"] == "InternalIP"),
        "10.0.0.1",
    )


def tolerates(tolerations: Any, taint: Mapping[str, str]) -> bool:
    for one in tolerations or ():
        if one.get("effect") and one["effect"] != taint["effect"]:
            continue
        if one.get("operator", "Equal") == "Exists":
            if not one.get("key") or one["key"] == taint["key"]:
                return True
        elif one.get("key") == taint["key"] and one.get("value", "") == taint.get("value", ""):
            return True
    return False


def event(
    *,
    namespace: str,
    about: Mapping[str, Any],
    kind: str,
    reason: str,
    message: str,
    source: str,
    serial: int,
    warning: bool = False,
) -> Object:
    """Return a core/v1 Event about an object."""
    meta = about["metadata"]
    return {
        "metadata": {"name": f"{meta['name']}.{serial:016x}", "namespace": namespace},
        "involvedObject": {
            "kind": kind, "namespace": meta.get("namespace", ""), "name": meta["name"],
            "uid": meta["uid"], "apiVersion": "v1", "resourceVersion": meta["resourceVersion"],
        },
        "reason": reason, "message": message, "type": "Warning" if warning else "Normal",
        "source": {"component": source}, "firstTimestamp": stamp(), "lastTimestamp": stamp(),
        "count": 1, "eventTime": None, "reportingComponent": source, "reportingInstance": "",
    }  # fmt: skip
