"""What the cluster's DNS would answer, as lines of /etc/hosts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.kubernetes.emulator import kinds
from tests.kubernetes.emulator.store import Store

HEAD = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n"


def hostname_of(pod: Mapping[str, Any]) -> str:
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])[:63]


def _forms(name: str, namespace: str, *, same: bool) -> list[str]:
    """Return the spellings that resolve: short ones only inside the namespace."""
    short = [name] if same else []
    return [*short, *(f"{name}.{rest}" for rest in (
        namespace, f"{namespace}.svc", f"{namespace}.svc.cluster.local",
    ))]  # fmt: skip


def service_lines(store: Store, seen_from: str) -> list[str]:
    """Return address and names for all services and their pods, seen from a namespace."""
    lines = []
    for service in store.entries(kinds.SERVICES):
        spec = service.obj["spec"]
        if not spec.get("selector"):
            continue
        same = service.namespace == seen_from
        for pod in store.entries(kinds.PODS, service.namespace):
            status = pod.obj["status"]
            address = status.get("podIP")
            over = status.get("phase") in ("Succeeded", "Failed")
            labels = pod.obj["metadata"].get("labels") or {}
            if not address or over or not spec["selector"].items() <= labels.items():
                continue
            if not (spec.get("publishNotReadyAddresses") or _ready(pod.obj)):
                continue
            names = _forms(service.name, service.namespace, same=same)
            if pod.obj["spec"].get("subdomain") == service.name:
                own = f"{hostname_of(pod.obj)}.{service.name}"
                names = _forms(own, service.namespace, same=same) + names
            lines.append(f"{address}\t{' '.join(names)}\n")
    return lines


def _ready(pod: Mapping[str, Any]) -> bool:
    return any(
        one["type"] == "Ready" and one["status"] == "True"
        for one in pod["status"].get("conditions") or ()
    ) and not pod["metadata"].get("deletionTimestamp")


def own_line(pod: Mapping[str, Any], address: str) -> str:
    """Return the line a kubelet writes for the pod itself."""
    name, subdomain = hostname_of(pod), pod["spec"].get("subdomain")
    if subdomain:
        namespace = pod["metadata"]["namespace"]
        return f"{address}\t{name}.{subdomain}.{namespace}.svc.cluster.local {name}\n"
    return f"{address}\t{name}\n"
