"""Volcano and coscheduling: which pods belong to a PodGroup, and what its status says."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from tests.kubernetes.emulator import kinds
from tests.kubernetes.emulator.clock import stamp
from tests.kubernetes.emulator.kinds import Kind
from tests.kubernetes.emulator.podstatus import with_condition
from tests.kubernetes.emulator.registry import Registry
from tests.kubernetes.emulator.store import Change, Entry, Object

Group = tuple[str, str, str]

VOLCANO_ANNOTATION = "scheduling.k8s.io/group-name"
COSCHEDULING_LABEL = "scheduling.x-k8s.io/pod-group"


class PodGroups:
    """The gangs of a cluster where Volcano or coscheduling is installed."""

    def __init__(
        self, registry: Registry, installed: tuple[str, ...], soon: Callable[..., object]
    ) -> None:
        self._registry = registry
        self._store = registry.store
        self._soon = soon
        self._serial = itertools.count(1)
        self._kinds: dict[str, Kind] = {}
        if "volcano" in installed:
            self._kinds["volcano"] = kinds.VOLCANO_PODGROUPS
        if "coscheduling" in installed:
            self._kinds["coscheduling"] = kinds.COSCHEDULING_PODGROUPS
        if self._kinds:
            self._store.listeners.append(self._on_change)

    def group_of(self, pod: Entry) -> Group | None:
        meta, spec = pod.obj["metadata"], pod.obj["spec"]
        if "volcano" in self._kinds and spec.get("schedulerName") == "volcano":
            name = (meta.get("annotations") or {}).get(VOLCANO_ANNOTATION)
            return ("volcano", pod.namespace, name) if name else None
        if "coscheduling" in self._kinds:
            name = (meta.get("labels") or {}).get(COSCHEDULING_LABEL)
            return ("coscheduling", pod.namespace, name) if name else None
        return None

    def _find(self, group: Group) -> Entry | None:
        return self._store.find(self._kinds[group[0]], group[1], group[2])

    def members_needed(self, group: Group) -> int | None:
        entry = self._find(group)
        if entry is None:
            return None
        queue = (entry.obj.get("spec") or {}).get("queue") or "default"
        if group[0] == "volcano" and self._store.find(kinds.VOLCANO_QUEUES, "", queue) is None:
            return 10**6  # volcano leaves such a group pending for ever
        return int((entry.obj.get("spec") or {}).get("minMember", 1))

    def placed(self, group: Group) -> None:
        entry = self._find(group)
        if entry is None:
            return
        status: Object = {**(entry.obj.get("status") or {})}
        if group[0] == "volcano":
            status["phase"] = "Running"
            status["conditions"] = with_condition(
                status.get("conditions"),
                self._condition("Scheduled", "tasks in gang are ready to be scheduled", ""),
            )
            for one in status["conditions"]:
                if one["type"] == "Unschedulable":
                    one["status"] = "False"
        else:
            status["phase"] = "Scheduled"
        self._registry.set_status(entry, status)

    def unplaced(self, group: Group, *, pending: int, why: str) -> None:
        entry = self._find(group)
        if entry is None:
            return
        status: Object = {**(entry.obj.get("status") or {})}
        if group[0] == "volcano":
            status["phase"] = "Inqueue" if pending else "Pending"
            needed = int((entry.obj.get("spec") or {}).get("minMember", 1))
            text = f"{pending}/{needed} tasks in gang unschedulable: {why}"
            for one in status.get("conditions") or ():
                if one["type"] == "Unschedulable" and one["message"] == text:
                    return  # the transition id of a repetition says nothing new
            status["conditions"] = with_condition(
                status.get("conditions"),
                self._condition("Unschedulable", "NotEnoughResources", text),
            )
        else:
            status["phase"] = "PreScheduling" if pending else "Pending"
        self._registry.set_status(entry, status)

    def _condition(self, kind: str, reason: str, message: str) -> Object:
        found: Object = {
            "type": kind, "status": "True", "lastTransitionTime": stamp(), "reason": reason,
            "transitionID": f"{next(self._serial):08x}",
        }  # fmt: skip
        return {**found, "message": message} if message else found

    def _on_change(self, change: Change) -> None:
        entry = change.entry
        if entry.kind in self._kinds.values() and change.type == "ADDED":
            self._soon(self._begin, entry)
        elif entry.kind is kinds.PODS:
            group = self.group_of(entry)
            old = change.previous.obj["status"].get("phase") if change.previous else ""
            if group is not None and (
                change.type == "DELETED" or old != entry.obj["status"].get("phase")
            ):
                self._soon(self._count, group)

    def _begin(self, entry: Entry) -> None:
        if not (entry.obj.get("status") or {}).get("phase"):
            self._registry.set_status(
                entry, {**(entry.obj.get("status") or {}), "phase": "Pending"}
            )

    def _count(self, group: Group) -> None:
        entry = self._find(group)
        if entry is None:
            return
        phases = [
            pod.obj["status"].get("phase")
            for pod in self._store.entries(kinds.PODS, group[1])
            if self.group_of(pod) == group
        ]
        status: Object = {**(entry.obj.get("status") or {})}
        for key, phase in (
            ("running", "Running"),
            ("succeeded", "Succeeded"),
            ("failed", "Failed"),
        ):
            status[key] = phases.count(phase)
        if phases and all(phase == "Succeeded" for phase in phases):
            status["phase"] = "Completed" if group[0] == "volcano" else "Finished"
        self._registry.set_status(entry, status)
