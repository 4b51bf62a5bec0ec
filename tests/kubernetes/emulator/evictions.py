"""Disruptions: the DisruptionTarget condition that a pod gets before it is taken away."""

from __future__ import annotations

from tests.kubernetes.emulator import kinds
from tests.kubernetes.emulator.podstatus import condition, with_condition
from tests.kubernetes.emulator.registry import DeleteOptions, Registry
from tests.kubernetes.emulator.store import Entry


class Evictions:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def disrupt(self, pod: Entry, reason: str, message: str, *, phase: str = "") -> None:
        status = {**pod.obj["status"]}
        target = condition("DisruptionTarget", value=True, reason=reason, message=message)
        status["conditions"] = with_condition(status.get("conditions"), target)
        if phase and status.get("phase") not in ("Succeeded", "Failed"):
            status["phase"] = phase
        self._registry.set_status(pod, status)

    def evict(self, pod: Entry, options: DeleteOptions) -> None:
        self.disrupt(pod, "EvictionByEvictionAPI", "Eviction API: evicting")
        self._registry.delete(kinds.PODS, pod.namespace, pod.name, options)
