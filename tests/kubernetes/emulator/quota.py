"""ResourceQuota: what pods and other objects use, and what would exceed it."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from tests.kubernetes.emulator import kinds
from tests.kubernetes.emulator.errors import forbidden
from tests.kubernetes.emulator.kinds import Kind
from tests.kubernetes.emulator.quantities import quantity, written
from tests.kubernetes.emulator.store import Store

Amounts = dict[str, Fraction]


def pod_requests(spec: Mapping[str, Any], field: str = "requests") -> Amounts:
    """Return what a pod asks for: its containers' sum, or its largest init container."""
    total: Amounts = {}
    for container in spec["containers"]:
        for name, text in ((container.get("resources") or {}).get(field) or {}).items():
            total[name] = total.get(name, Fraction(0)) + quantity(text)
    largest: Amounts = {}
    for container in spec.get("initContainers") or ():
        for name, text in ((container.get("resources") or {}).get(field) or {}).items():
            if container.get("restartPolicy") == "Always":  # a sidecar runs beside the others
                total[name] = total.get(name, Fraction(0)) + quantity(text)
            else:
                largest[name] = max(largest.get(name, Fraction(0)), quantity(text))
    return {
        name: max(total.get(name, Fraction(0)), largest.get(name, Fraction(0)))
        for name in {**total, **largest}
    }


def _usage(kind: Kind, obj: Mapping[str, Any]) -> Amounts:
    count = {kind.plural: Fraction(1)} if not kind.group else {}
    count[f"count/{kind.qualified}"] = Fraction(1)
    if kind is not kinds.PODS:
        return count
    if (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return {"count/pods": Fraction(1)}
    for field in ("requests", "limits"):
        for name, value in pod_requests(obj["spec"], field).items():
            count[f"{field}.{name}"] = value
            if field == "requests" and name in ("cpu", "memory"):
                count[name] = value
    return count


COUNTED = (
    kinds.PODS, kinds.SERVICES, kinds.CONFIGMAPS, kinds.SECRETS, kinds.JOBS, kinds.QUOTAS,
)  # fmt: skip


def used(store: Store, namespace: str, hard: Mapping[str, str]) -> Amounts:
    total: Amounts = dict.fromkeys(hard, Fraction(0))
    for kind in COUNTED:
        for entry in store.entries(kind, namespace):
            for name, value in _usage(kind, entry.obj).items():
                if name in total:
                    total[name] += value
    return total


def _joined(names: list[str], amounts: Mapping[str, Fraction]) -> str:
    return ",".join(f"{name}={written(amounts[name], name)}" for name in sorted(names))


def check(store: Store, kind: Kind, obj: Mapping[str, Any]) -> None:
    """Raise the real server's 403 where creating `obj` would exceed a quota."""
    namespace = obj["metadata"].get("namespace", "")
    if kind not in COUNTED:
        return
    for entry in store.entries(kinds.QUOTAS, namespace):
        hard = (entry.obj.get("spec") or {}).get("hard") or {}
        wanted = {name: value for name, value in _usage(kind, obj).items() if name in hard}
        name = obj["metadata"]["name"]
        if kind is kinds.PODS:
            _must_specify(entry.name, hard, obj, name)
        if not wanted:
            continue
        now = used(store, namespace, hard)
        limits = {key: quantity(text) for key, text in hard.items()}
        over = [key for key, value in wanted.items() if value and now[key] + value > limits[key]]
        if over:
            raise forbidden(
                kind, name,
                f"exceeded quota: {entry.name}, requested: {_joined(over, wanted)}, "
                f"used: {_joined(over, now)}, limited: {_joined(over, limits)}",
            )  # fmt: skip


def _must_specify(quota: str, hard: Mapping[str, str], pod: Mapping[str, Any], name: str) -> None:
    """Refuse a pod that does not say what it uses of a limited compute resource."""
    missing: dict[str, list[str]] = {}
    for key in sorted(hard):
        field, _, resource = key.rpartition(".")
        if resource not in ("cpu", "memory") or field not in ("", "requests", "limits"):
            continue
        for container in pod["spec"]["containers"]:
            given = (container.get("resources") or {}).get(field or "requests") or {}
            if resource not in given:
                missing.setdefault(key, []).append(container["name"])
    if missing:
        listed = "; ".join(f"{key} for: {','.join(names)}" for key, names in missing.items())
        raise forbidden(kinds.PODS, name, f"failed quota: {quota}: must specify {listed}")
