"""Binds pods to nodes where they fit, each by itself."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from tests.kubernetes.emulator import kinds, nodes
from tests.kubernetes.emulator.clock import stamp
from tests.kubernetes.emulator.podstatus import with_condition
from tests.kubernetes.emulator.quantities import quantity
from tests.kubernetes.emulator.quota import Amounts, pod_requests
from tests.kubernetes.emulator.registry import Registry
from tests.kubernetes.emulator.store import Change, Entry, Object

Milli = dict[str, int]
"""Resource -> thousandths: whole numbers add up faster than fractions."""


def milli(amounts: Amounts) -> Milli:
    return {name: -int(-amount * 1000 // 1) for name, amount in amounts.items()}


class NodeSpace:
    """What is free on one node."""

    def __init__(self, obj: Mapping[str, Any]) -> None:
        self.obj = obj
        allocatable = obj["status"]["allocatable"]
        self.all = milli({name: quantity(text) for name, text in allocatable.items()})
        self.free = dict(self.all)

    def take(self, wanted: Milli) -> None:
        for name, amount in wanted.items():
            self.free[name] = self.free.get(name, 0) - amount

    def give(self, wanted: Milli) -> None:
        for name, amount in wanted.items():
            self.free[name] = self.free.get(name, 0) + amount


class Scheduler:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store
        self._pending: dict[str, Entry] = {}
        self._requests: dict[str, Milli] = {}
        self._placed: dict[str, tuple[str, Milli]] = {}
        self._spaces: dict[str, NodeSpace] = {}
        self._woken = False
        self._serial = itertools.count(1)
        self._store.listeners.append(self._on_change)

    def _on_change(self, change: Change) -> None:
        kind = change.entry.kind
        if kind is kinds.PODS:
            self._on_pod(change)
        elif kind is kinds.NODES and not _same_placement(change):
            self._count_space()
            self.wake()

    def _on_pod(self, change: Change) -> None:
        entry, status = change.entry, change.entry.obj["status"]
        uid = entry.uid
        gone = change.type == "DELETED"
        node = entry.obj["spec"].get("nodeName")
        leaving = gone or entry.obj["metadata"].get("deletionTimestamp")
        if leaving or node or status["phase"] != "Pending":
            self._pending.pop(uid, None)
        else:
            new = uid not in self._pending
            self._pending[uid] = entry
            if new:
                self.wake()
        over = gone or status["phase"] in ("Succeeded", "Failed")
        if node and not over and uid not in self._placed:
            self._placed[uid] = (node, self._wanted(entry))
            if node in self._spaces:
                self._spaces[node].take(self._wanted(entry))
        elif over:
            self._requests.pop(uid, None)
            placed = self._placed.pop(uid, None)
            if placed is not None:
                if placed[0] in self._spaces:
                    self._spaces[placed[0]].give(placed[1])
                if self._pending:
                    self.wake()

    def _wanted(self, entry: Entry) -> Milli:
        found = self._requests.get(entry.uid)
        if found is None:
            found = milli({**pod_requests(entry.obj["spec"]), "pods": Fraction(1)})
            self._requests[entry.uid] = found
        return found

    def wake(self) -> None:
        """Look at all pending pods soon."""
        if not self._woken:
            self._woken = True
            asyncio.get_running_loop().call_soon(self._round)

    def _round(self) -> None:
        self._woken = False
        for entry in sorted(
            self._pending.values(), key=lambda e: -int(e.obj["spec"].get("priority", 0))
        ):
            self._place(entry)

    def _count_space(self) -> None:
        """Count anew what is free: the nodes changed."""
        self._spaces = {
            entry.name: NodeSpace(entry.obj) for entry in self._store.entries(kinds.NODES)
        }
        for node, wanted in self._placed.values():
            if node in self._spaces:
                self._spaces[node].take(wanted)

    def _place(self, entry: Entry) -> None:
        node, why = self._fit(entry)
        if node is None:
            self._set_scheduled(entry, "Unschedulable", why)
        else:
            self._bind(entry, node)

    def _fit(self, entry: Entry) -> tuple[str | None, str]:
        """Return the node that takes the pod and it likes best, or the scheduler's words for why none.

        The emptiest of those it likes equally.
        """
        wanted = self._wanted(entry)
        spec = entry.obj["spec"]
        reasons: Counter[str] = Counter()
        helpless = 0
        best: str | None = None
        for name, space in self._spaces.items():
            objection = _objection(spec, space.obj)
            why = objection or [
                "Too many pods" if resource == "pods" else f"Insufficient {resource}"
                for resource, amount in wanted.items()
                if amount > space.free.get(resource, 0)
            ]
            if why:
                reasons.update(why)
                # of a node that is too small the end of other pods makes no larger one
                helpless += bool(objection) or any(
                    amount > space.all.get(name, 0) for name, amount in wanted.items()
                )
            elif best is None or _better(spec, space, self._spaces[best]):
                best = name
        if best is not None:
            return best, ""
        return None, _message(len(self._spaces), reasons, helpless)

    def _bind(self, entry: Entry, node: str) -> None:
        self._pending.pop(entry.uid, None)
        obj = {
            **entry.obj,
            "metadata": dict(entry.obj["metadata"]),
            "spec": {**entry.obj["spec"], "nodeName": node},
            "status": {
                **entry.obj["status"],
                "conditions": with_condition(
                    [
                        one
                        for one in entry.obj["status"].get("conditions") or ()
                        if one["type"] != "PodScheduled"
                    ],
                    _scheduled(value=True),
                ),
            },
        }
        self._registry.write(entry, obj)

    def _set_scheduled(self, entry: Entry, reason: str, message: str) -> None:
        current = self._store.find(kinds.PODS, entry.namespace, entry.name)
        if current is None or current.uid != entry.uid:
            return
        status = dict(current.obj["status"])
        status["conditions"] = with_condition(
            status.get("conditions"), _scheduled(value=False, reason=reason, message=message)
        )
        if status == current.obj["status"]:
            return
        self._registry.set_status(current, status)
        if reason == "Unschedulable":
            self._report(current.obj, message)

    def _report(self, pod: Mapping[str, Any], message: str) -> None:
        event: Object = nodes.event(
            namespace=pod["metadata"]["namespace"], about=pod, kind="Pod",
            reason="FailedScheduling", message=message, source="default-scheduler",
            serial=next(self._serial), warning=True,
        )  # fmt: skip
        space = self._store.find(kinds.NAMESPACES, "", pod["metadata"]["namespace"])
        if space is not None and not space.obj["metadata"].get("deletionTimestamp"):
            self._registry.create(kinds.EVENTS, pod["metadata"]["namespace"], event)


def _same_placement(change: Change) -> bool:
    """Return whether a change of a node can make no difference to what fits."""
    if change.previous is None or change.type == "DELETED":
        return False
    old, new = change.previous.obj, change.entry.obj
    return bool(
        old["spec"] == new["spec"]
        and old["metadata"].get("labels") == new["metadata"].get("labels")
        and old["status"].get("allocatable") == new["status"].get("allocatable")
        and nodes.is_ready(old) == nodes.is_ready(new)
    )


def _scheduled(*, value: bool, reason: str = "", message: str = "") -> Object:
    found: Object = {
        "type": "PodScheduled", "status": "True" if value else "False",
        "lastProbeTime": None, "lastTransitionTime": stamp(),
    }  # fmt: skip
    return {**found, "reason": reason, "message": message} if reason else found


def _fuller(one: NodeSpace, other: NodeSpace) -> bool:
    return one.free.get("pods", 0) < other.free.get("pods", 0)


def _better(spec: Mapping[str, Any], one: NodeSpace, other: NodeSpace) -> bool:
    liked = _preference(spec, one.obj) - _preference(spec, other.obj)
    return liked > 0 or (liked == 0 and _fuller(other, one))


def _preference(spec: Mapping[str, Any], node: Mapping[str, Any]) -> int:
    """Return the weights of the terms that the node fulfils."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}
    weight = 0
    for each in affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
        term = each["preference"]
        if all(_expression(one, labels) for one in term.get("matchExpressions") or ()) and all(
            _expression(one, fields) for one in term.get("matchFields") or ()
        ):
            weight += each["weight"]
    return weight


def _objection(spec: Mapping[str, Any], node: Mapping[str, Any]) -> list[str]:
    """Return why a node does not take the pod whatever is free on it."""
    for taint in node["spec"].get("taints") or ():
        if taint["effect"] == "PreferNoSchedule" or nodes.tolerates(spec.get("tolerations"), taint):
            continue
        if taint["key"] == nodes.UNSCHEDULABLE:
            return ["node(s) were unschedulable"]
        value = f": {taint['value']}" if taint.get("value") else ": "
        return [f"node(s) had untolerated taint {{{taint['key']}{value}}}"]
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(k) != v for k, v in (spec.get("nodeSelector") or {}).items()):
        return ["node(s) didn't match Pod's node affinity/selector"]
    terms = (
        ((spec.get("affinity") or {}).get("nodeAffinity") or {})
        .get("requiredDuringSchedulingIgnoredDuringExecution", {})
        .get("nodeSelectorTerms")
    )
    if terms and not any(
        all(_expression(one, labels) for one in term.get("matchExpressions") or ())
        for term in terms
    ):
        return ["node(s) didn't match Pod's node affinity/selector"]
    return []


def _expression(rule: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value, values = labels.get(rule["key"]), rule.get("values") or ()
    return {
        "In": value in values, "NotIn": value not in values, "Exists": value is not None,
        "DoesNotExist": value is None,
    }.get(rule["operator"], False)  # fmt: skip


def _message(count: int, reasons: Counter[str], helpless: int) -> str:
    if not count:
        return "no nodes available to schedule pods"
    listed = ", ".join(sorted(f"{number} {reason}" for reason, number in reasons.items()))
    parts = []
    if helpless:
        parts.append(f"{helpless} Preemption is not helpful for scheduling")
    if count - helpless:
        parts.append(f"{count - helpless} No preemption victims found for incoming pod")
    return (
        f"0/{count} nodes are available: {listed}. preemption: 0/{count} nodes are available: "
        f"{', '.join(parts)}."
    )
