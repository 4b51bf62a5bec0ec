"""Kueue's plain-pod integration: gates and finalizers at create, groups admitted by quota.

Not emulated: cohorts, borrowing, preemption between workloads (tests evict by hand), flavors' node
labels, fair sharing, topology.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from tests.kubernetes.emulator import kinds
from tests.kubernetes.emulator.clock import stamp
from tests.kubernetes.emulator.errors import ApiError
from tests.kubernetes.emulator.kinds import Kind
from tests.kubernetes.emulator.podstatus import with_condition
from tests.kubernetes.emulator.quantities import quantity, written
from tests.kubernetes.emulator.quota import Amounts, pod_requests
from tests.kubernetes.emulator.registry import DeleteOptions, Registry
from tests.kubernetes.emulator.store import Change, Entry, Object

QUEUE = "kueue.x-k8s.io/queue-name"
MANAGED = "kueue.x-k8s.io/managed"
GATE = "kueue.x-k8s.io/admission"
GROUP = "kueue.x-k8s.io/pod-group-name"
TOTAL = "kueue.x-k8s.io/pod-group-total-count"
RETRIABLE = "kueue.x-k8s.io/retriable-in-group"
ROLE_HASH = "kueue.x-k8s.io/role-hash"
IN_USE = "kueue.x-k8s.io/resource-in-use"


class Kueue:
    def __init__(self, registry: Registry, soon: Callable[..., object]) -> None:
        self._registry = registry
        self._store = registry.store
        self._soon = soon
        self._woken: set[tuple[str, str]] = set()
        self._admitting = False
        registry.webhooks.append(self._admit_pod)
        self._store.listeners.append(self._on_change)

    # The webhook

    def _admit_pod(self, kind: Kind, obj: Object) -> None:
        if kind is not kinds.PODS:
            return
        meta, spec = obj["metadata"], obj["spec"]
        labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
        _check_group(labels, annotations)
        if not labels.get(QUEUE):
            return
        meta["labels"] = {**labels, MANAGED: "true"}
        finalizers = list(meta.get("finalizers") or ())
        if MANAGED not in finalizers:
            meta["finalizers"] = [*finalizers, MANAGED]
        gates = list(spec.get("schedulingGates") or ())
        if {"name": GATE} not in gates:
            spec["schedulingGates"] = [*gates, {"name": GATE}]
        if labels.get(GROUP):
            meta["annotations"] = {ROLE_HASH: _role_hash(spec), **annotations}

    # Following the cluster

    def _on_change(self, change: Change) -> None:
        entry = change.entry
        meta = entry.obj["metadata"]
        if entry.kind is kinds.PODS and (meta.get("labels") or {}).get(MANAGED) == "true":
            self._wake(entry.namespace, _workload_name(entry))
        elif entry.kind is kinds.WORKLOADS:
            if change.type == "DELETED":
                self._soon(self._abandoned, entry)
            elif meta.get("deletionTimestamp"):
                self._soon(self._release_workload, entry)
            self._wake_admission()
        elif entry.kind in (kinds.LOCAL_QUEUES, kinds.CLUSTER_QUEUES):
            if change.type == "ADDED":
                self._soon(self._activate, entry)
            self._wake_admission()

    def _wake(self, namespace: str, name: str) -> None:
        if (namespace, name) not in self._woken:
            self._woken.add((namespace, name))
            self._soon(self._sync, namespace, name)

    def _wake_admission(self) -> None:
        if not self._admitting:
            self._admitting = True
            self._soon(self._admit_workloads)

    def _activate(self, queue: Entry) -> None:
        self._set_condition(queue, "Active", "True", "Ready", "Can admit new workloads")

    def _set_condition(
        self, entry: Entry, kind: str, value: str, reason: str, message: str
    ) -> Entry:
        current = self._store.find(entry.kind, entry.namespace, entry.name)
        if current is None or current.uid != entry.uid:
            return entry
        status = {**(current.obj.get("status") or {})}
        condition = {
            "type": kind, "status": value, "reason": reason, "message": message,
            "lastTransitionTime": stamp(), "observedGeneration": 1,
        }  # fmt: skip
        status["conditions"] = with_condition(status.get("conditions"), condition)
        return self._registry.set_status(current, status)

    # One group, or one pod without a group

    def _members(self, namespace: str, name: str) -> list[Entry]:
        return [
            pod
            for pod in self._store.entries(kinds.PODS, namespace)
            if (pod.obj["metadata"].get("labels") or {}).get(MANAGED) == "true"
            and _workload_name(pod) == name
        ]

    def _sync(self, namespace: str, name: str) -> None:
        self._woken.discard((namespace, name))
        pods = self._members(namespace, name)
        workload = self._store.find(kinds.WORKLOADS, namespace, name)
        if not pods:
            if workload is not None and not workload.obj["metadata"].get("deletionTimestamp"):
                self._registry.delete(kinds.WORKLOADS, namespace, name)
            return
        group = _group(pods[0])
        if not group and pods[0].obj["metadata"].get("deletionTimestamp"):
            self._finalize(pods)
            return
        if workload is None:
            self._compose(namespace, name, pods)
            return
        if workload.obj["metadata"].get("deletionTimestamp"):
            return
        pods = self._replace(workload, pods) if group else pods
        self._follow(workload, pods)

    def _compose(self, namespace: str, name: str, pods: list[Entry]) -> None:
        """Make the workload as soon as all pods of the group exist."""
        active = [pod for pod in pods if _runnable(pod)]
        self._finalize([pod for pod in pods if not _runnable(pod)])
        total = _total(pods[0])
        if len(active) < total:
            return
        queues = {pod.obj["metadata"]["labels"].get(QUEUE) for pod in active}
        if len(queues) > 1 or len({_total(pod) for pod in active}) > 1:
            return  # such a group is never composed
        active.sort(key=_age)
        self._remove(active[total:])
        active = active[:total]
        roles: dict[str, list[Entry]] = {}
        for pod in active:
            roles.setdefault(_role(pod), []).append(pod)
        document: Object = {
            "apiVersion": kinds.WORKLOADS.api_version(), "kind": "Workload",
            "metadata": {
                "name": name, "finalizers": [IN_USE],
                "ownerReferences": [_owner(pod) for pod in active],
            },
            "spec": {
                "queueName": queues.pop(), "active": True,
                "podSets": [
                    {
                        "name": role, "count": len(members),
                        "template": {"metadata": {}, "spec": members[0].obj["spec"]},
                    }
                    for role, members in sorted(roles.items())
                ],
            },
        }  # fmt: skip
        if _group(pods[0]):
            document["metadata"]["annotations"] = {"kueue.x-k8s.io/is-group-workload": "true"}
        if len(roles) <= 8:
            self._registry.create(kinds.WORKLOADS, namespace, document)

    def _replace(self, workload: Entry, pods: list[Entry]) -> list[Entry]:
        """Let go of pods whose replacement is there, and of those that are too many."""
        kept: list[Entry] = []
        absent = 0
        for pod_set in workload.obj["spec"]["podSets"]:
            mine = [pod for pod in pods if _role(pod) == pod_set["name"]]
            active = sorted((pod for pod in mine if _runnable(pod)), key=_age)
            inactive = sorted((pod for pod in mine if not _runnable(pod)), key=_age)
            absent += max(0, pod_set["count"] - len(active))
            self._remove(active[pod_set["count"] :])
            replaced = min(len(inactive), max(0, len(mine) - pod_set["count"]))
            self._finalize(inactive[:replaced])
            kept += active[: pod_set["count"]] + inactive[replaced:]
        owners = workload.obj["metadata"].get("ownerReferences") or []
        known = {one["uid"] for one in owners}
        new = [_owner(pod) for pod in kept if pod.uid not in known]
        if new:
            self._registry.change(
                workload, lambda obj: obj["metadata"].update(ownerReferences=[*owners, *new])
            )
        self._tell_waiting(workload, absent)
        return kept

    def _tell_waiting(self, workload: Entry, absent: int) -> None:
        there = _condition(workload, "WaitingForReplacementPods")
        if absent and (there is None or there["status"] != "True"):
            self._set_condition(
                workload, "WaitingForReplacementPods", "True", "PodsFailed",
                "Some Failed pods need replacement",
            )  # fmt: skip
        elif not absent and there is not None and there["status"] != "False":
            self._set_condition(
                workload, "WaitingForReplacementPods", "False", "PodsReady",
                "No pods need replacement",
            )  # fmt: skip

    def _follow(self, workload: Entry, pods: list[Entry]) -> None:
        total = _total(pods[0]) if pods else 1
        succeeded = sum(pod.obj["status"]["phase"] == "Succeeded" for pod in pods)
        ended = all(pod.obj["status"]["phase"] in ("Succeeded", "Failed") for pod in pods)
        final = any(
            (pod.obj["metadata"].get("annotations") or {}).get(RETRIABLE) == "false" for pod in pods
        )
        single = bool(pods) and not _group(pods[0])
        if pods and (succeeded >= total or (ended and (final or single))):
            if not _true(workload, "Finished"):
                good = "Succeeded" if succeeded >= total else "Failed"
                self._set_condition(
                    workload, "Finished", "True", good, f"Pods succeeded: {succeeded}/{total}."
                )
            self._finalize(pods)
            return
        self._tell_reclaimable(workload, pods)
        current = self._store.find(kinds.WORKLOADS, workload.namespace, workload.name)
        if current is not None and _true(current, "Admitted"):
            for pod in pods:
                if not pod.obj["metadata"].get("deletionTimestamp"):
                    self._ungate(pod)

    def _tell_reclaimable(self, workload: Entry, pods: list[Entry]) -> None:
        counts: dict[str, int] = {}
        for pod in pods:
            if pod.obj["status"]["phase"] == "Succeeded":
                counts[_role(pod)] = counts.get(_role(pod), 0) + 1
        current = self._store.find(kinds.WORKLOADS, workload.namespace, workload.name)
        if counts and current is not None:
            found = [{"name": role, "count": count} for role, count in sorted(counts.items())]
            status = {**(current.obj.get("status") or {}), "reclaimablePods": found}
            self._registry.set_status(current, status)

    def _ungate(self, pod: Entry) -> None:
        gates = pod.obj["spec"].get("schedulingGates") or []
        if {"name": GATE} not in gates:
            return

        def without(obj: Object) -> None:
            left = [one for one in gates if one["name"] != GATE]
            obj["spec"]["schedulingGates"] = left
            if not left:
                del obj["spec"]["schedulingGates"]

        self._registry.change(pod, without)

    def _finalize(self, pods: list[Entry]) -> None:
        for pod in pods:
            if MANAGED in (pod.obj["metadata"].get("finalizers") or ()):
                self._registry.change(pod, _without_finalizer)

    def _remove(self, pods: list[Entry]) -> None:
        """Excess pods: finalized and deleted, the newest of them."""
        self._finalize(pods)
        for pod in pods:
            self._delete(pod)

    def _delete(self, pod: Entry) -> None:
        try:
            self._registry.delete(kinds.PODS, pod.namespace, pod.name, DeleteOptions(uid=pod.uid))
        except ApiError:
            return

    def _abandoned(self, workload: Entry) -> None:
        """A deleted workload takes its pods along."""
        if _true(workload, "Finished"):
            return
        pods = self._members(workload.namespace, workload.name)
        owners = {o["uid"] for o in workload.obj["metadata"].get("ownerReferences") or ()}
        for pod in pods:
            if pod.uid in owners:
                self._delete(pod)
                self._finalize([pod])

    def _release_workload(self, workload: Entry) -> None:
        current = self._store.find(kinds.WORKLOADS, workload.namespace, workload.name)
        if current is not None:
            self._registry.change(current, lambda obj: obj["metadata"].pop("finalizers", None))

    # Quota

    def _admit_workloads(self) -> None:
        self._admitting = False
        waiting = [
            entry
            for entry in self._store.entries(kinds.WORKLOADS)
            if not _true(entry, "QuotaReserved")
            and not _true(entry, "Finished")
            and not entry.obj["metadata"].get("deletionTimestamp")
        ]
        for workload in sorted(waiting, key=_age):
            self._try_admit(workload)

    def _try_admit(self, workload: Entry) -> None:
        name = workload.obj["spec"]["queueName"]
        local = self._store.find(kinds.LOCAL_QUEUES, workload.namespace, name)
        if local is None:
            self._refuse(workload, "Inadmissible", f"LocalQueue {name} doesn't exist")
            return
        cluster_name = local.obj["spec"]["clusterQueue"]
        cluster = self._store.find(kinds.CLUSTER_QUEUES, "", cluster_name)
        if cluster is None:
            self._refuse(workload, "Inadmissible", f"ClusterQueue {cluster_name} doesn't exist")
            return
        wanted = _wanted(workload)
        free = self._free(cluster)
        for resource, amount in wanted.items():
            if resource == "pods" and resource not in free:
                continue
            if resource not in free:
                why = f"resource {resource} unavailable in ClusterQueue"
                self._refuse(workload, "Pending", _unassigned(workload, why))
                return
            if amount > free[resource]:
                more = written(amount - free[resource], resource)
                why = (
                    f"insufficient unused quota for {resource} in flavor {_flavor(cluster)}, "
                    f"{more} more needed"
                )
                self._refuse(workload, "Pending", _unassigned(workload, why))
                return
        status = {**(workload.obj.get("status") or {})}
        status["admission"] = {
            "clusterQueue": cluster_name,
            "podSetAssignments": [
                {
                    "name": one["name"], "count": one["count"],
                    "flavors": dict.fromkeys(wanted, _flavor(cluster)),
                }
                for one in workload.obj["spec"]["podSets"]
            ],
        }  # fmt: skip
        entry = self._registry.set_status(workload, status)
        text = f"Quota reserved in ClusterQueue {cluster_name}"
        entry = self._set_condition(entry, "QuotaReserved", "True", "QuotaReserved", text)
        if _condition(entry, "Evicted") is not None:
            entry = self._set_condition(
                entry, "Evicted", "False", "QuotaReserved", "Previously: evicted"
            )
        self._set_condition(entry, "Admitted", "True", "Admitted", "The workload is admitted")
        self._wake(workload.namespace, workload.name)

    def _refuse(self, workload: Entry, reason: str, message: str) -> None:
        there = _condition(workload, "QuotaReserved")
        if there is None or there["message"] != message:
            self._set_condition(workload, "QuotaReserved", "False", reason, message)

    def _free(self, cluster: Entry) -> Amounts:
        free: Amounts = {}
        for group in cluster.obj["spec"].get("resourceGroups") or ():
            for flavor in group["flavors"]:
                for one in flavor["resources"]:
                    name = one["name"]
                    free[name] = free.get(name, Fraction(0)) + quantity(one["nominalQuota"])
        for entry in self._store.entries(kinds.WORKLOADS):
            admission = (entry.obj.get("status") or {}).get("admission")
            if (
                admission
                and admission["clusterQueue"] == cluster.name
                and not _true(entry, "Finished")
            ):
                for name, amount in _wanted(entry).items():
                    free[name] = free.get(name, Fraction(0)) - amount
        return free

    def evict(self, namespace: str, name: str, *, reason: str, message: str) -> None:
        """Take a workload's quota away, as a preemption does: its pods are deleted."""
        workload = self._registry.get(kinds.WORKLOADS, namespace, name)
        status = {**(workload.obj.get("status") or {})}
        status.pop("admission", None)
        entry = self._registry.set_status(workload, status)
        for kind, value in (("Evicted", "True"), ("QuotaReserved", "False"), ("Admitted", "False")):
            entry = self._set_condition(entry, kind, value, reason, message)
        for pod in self._members(namespace, name):
            if pod.obj["status"]["phase"] not in ("Succeeded", "Failed"):
                status = {**pod.obj["status"]}
                target = {
                    "type": "TerminationTarget", "status": "True", "reason": "WorkloadEvicted",
                    "message": message, "lastProbeTime": None, "lastTransitionTime": stamp(),
                }  # fmt: skip
                status["conditions"] = with_condition(status.get("conditions"), target)
                self._registry.set_status(pod, status)
                self._delete(pod)


def _check_group(labels: Mapping[str, str], annotations: Mapping[str, str]) -> None:
    grouped, total = bool(labels.get(GROUP)), annotations.get(TOTAL)
    both = f"both the '{TOTAL}' annotation and the '{GROUP}' label should be set"
    why = ""
    if grouped and total is None:
        why = f"metadata.annotations[{TOTAL}]: Required value: {both}"
    elif total is not None and not grouped:
        why = f"metadata.labels[{GROUP}]: Required value: {both}"
    elif total is not None and (not total.isdecimal() or int(total) < 1):
        why = (
            f'metadata.annotations[{TOTAL}]: Invalid value: "{total}": incorrect annotation value '
            f"'{TOTAL}={total}': group total count should be greater than zero"
        )
    elif labels.get(MANAGED, "true") != "true":
        why = f"metadata.labels[{MANAGED}]: Forbidden: managed label value can only be 'true'"
    if why:
        raise ApiError(
            403, "Forbidden", f'admission webhook "vpod.kb.io" denied the request: {why}'
        )


def _role_hash(spec: Mapping[str, Any]) -> str:
    """Return what pods of one shape share: kinds of resources, not names or commands."""

    def shapes(field: str) -> list[Any]:
        return [
            {
                "resources": {"requests": (one.get("resources") or {}).get("requests")},
                "ports": one.get("ports"),
            }
            for one in spec.get(field) or ()
        ]

    keys = ("nodeSelector", "affinity", "tolerations", "priority", "topologySpreadConstraints")
    shape = {key: spec.get(key) for key in keys}
    shape |= {"containers": shapes("containers"), "initContainers": shapes("initContainers")}
    return hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:8]


def _without_finalizer(obj: Object) -> None:
    left = [one for one in obj["metadata"].get("finalizers") or () if one != MANAGED]
    if left:
        obj["metadata"]["finalizers"] = left
    else:
        obj["metadata"].pop("finalizers", None)


def _group(pod: Entry) -> str:
    return str((pod.obj["metadata"].get("labels") or {}).get(GROUP, ""))


def _workload_name(pod: Entry) -> str:
    group = _group(pod)
    if group:
        return group
    digest = hashlib.sha256(f"{pod.name}{pod.uid}".encode()).hexdigest()[:5]
    return f"pod-{pod.name}-{digest}"


def _total(pod: Entry) -> int:
    if not _group(pod):
        return 1
    return int(pod.obj["metadata"]["annotations"][TOTAL])


def _role(pod: Entry) -> str:
    return str((pod.obj["metadata"].get("annotations") or {}).get(ROLE_HASH, "main"))


def _runnable(pod: Entry) -> bool:
    """Return whether a pod can run, runs or succeeded."""
    if pod.obj["metadata"].get("deletionTimestamp") and not pod.obj["spec"].get("nodeName"):
        return False
    return bool(pod.obj["status"]["phase"] != "Failed")


def _age(entry: Entry) -> tuple[str, int]:
    return entry.obj["metadata"]["creationTimestamp"], entry.version


def _owner(pod: Entry) -> Object:
    return {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}


def _condition(entry: Entry, kind: str) -> Object | None:
    conditions = (entry.obj.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one["type"] == kind), None)


def _true(entry: Entry, kind: str) -> bool:
    found = _condition(entry, kind)
    return found is not None and found["status"] == "True"


def _flavor(cluster: Entry) -> str:
    groups = cluster.obj["spec"].get("resourceGroups") or ()
    return str(groups[0]["flavors"][0]["name"]) if groups else "default-flavor"


def _unassigned(workload: Entry, why: str) -> str:
    return f"couldn't assign flavors to pod set {workload.obj['spec']['podSets'][0]['name']}: {why}"


def _wanted(workload: Entry) -> Amounts:
    """Return what a workload uses: finished pods of it are reclaimed."""
    done = {
        one["name"]: one["count"]
        for one in (workload.obj.get("status") or {}).get("reclaimablePods") or ()
    }
    total: Amounts = {}
    for pod_set in workload.obj["spec"]["podSets"]:
        count = pod_set["count"] - done.get(pod_set["name"], 0)
        each = {**pod_requests(pod_set["template"]["spec"]), "pods": Fraction(1)}
        for name, amount in each.items():
            total[name] = total.get(name, Fraction(0)) + count * amount
    return total
