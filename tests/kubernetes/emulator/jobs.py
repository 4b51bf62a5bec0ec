"""A small job controller: parallelism, completions, Indexed mode, backoffLimit, deadline, suspend."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from tests.kubernetes.emulator import kinds
from tests.kubernetes.emulator.clock import now, parsed, stamp
from tests.kubernetes.emulator.errors import ApiError
from tests.kubernetes.emulator.registry import DeleteOptions, Registry
from tests.kubernetes.emulator.store import Change, Entry, Object

INDEX = "batch.kubernetes.io/job-completion-index"


class JobController:
    def __init__(self, registry: Registry, soon: Callable[..., object]) -> None:
        self._registry = registry
        self._store = registry.store
        self._soon = soon
        self._woken: set[tuple[str, str]] = set()
        self._counted: dict[str, set[str]] = {}
        """uid of a job -> uids of its pods that were counted as failed."""
        self._succeeded: dict[str, dict[str, str]] = {}
        """uid of a job -> uid of a succeeded pod -> its index."""
        self._serial = 0
        self._store.listeners.append(self._on_change)

    def _on_change(self, change: Change) -> None:
        entry = change.entry
        if entry.kind is kinds.JOBS and change.type != "DELETED":
            self._wake(entry.namespace, entry.name)
        elif entry.kind is kinds.PODS:
            for owner in entry.obj["metadata"].get("ownerReferences") or ():
                if owner["kind"] == "Job" and owner.get("controller"):
                    self._wake(entry.namespace, owner["name"])

    def _wake(self, namespace: str, name: str) -> None:
        if (namespace, name) not in self._woken:
            self._woken.add((namespace, name))
            self._soon(self._sync, namespace, name)

    def _sync(self, namespace: str, name: str) -> None:
        self._woken.discard((namespace, name))
        job = self._store.find(kinds.JOBS, namespace, name)
        if job is None or job.obj["metadata"].get("deletionTimestamp"):
            return
        spec, status = job.obj["spec"], dict(job.obj.get("status") or {})
        if any(one["type"] in ("Complete", "Failed") for one in status.get("conditions") or ()):
            return
        pods = self._pods(job)
        active = [p for p in pods if p.obj["status"]["phase"] in ("Pending", "Running")]
        active = [p for p in active if not p.obj["metadata"].get("deletionTimestamp")]
        failed = self._counted.setdefault(job.uid, set())
        done = self._succeeded.setdefault(job.uid, {})
        for pod in pods:
            if pod.obj["status"]["phase"] == "Failed":
                failed.add(pod.uid)
            elif pod.obj["status"]["phase"] == "Succeeded":
                done[pod.uid] = _index(pod)
        if not status.get("startTime") and not spec.get("suspend"):
            status["startTime"] = stamp()
            self._deadline_later(job)
        indexed = spec["completionMode"] == "Indexed"
        finished = len(set(done.values())) if indexed else len(done)
        completions = spec.get("completions")
        over = self._failure(spec, status, len(failed))
        if over is None and (
            finished >= completions if completions is not None else bool(done) and not active
        ):
            over = ("Complete", "CompletionsReached", "Reached expected number of succeeded pods")
        if over is not None or spec.get("suspend"):
            for pod in active:
                self._delete(pod)
            active = []
        if over is not None:
            self._finish(status, *over)
        elif not spec.get("suspend"):
            active += self._create_missing(job, active, set(done.values()), finished)
        status["active"], status["failed"], status["succeeded"] = len(active), len(failed), finished
        status["ready"] = sum(_ready(pod) for pod in active)
        status["terminating"] = sum(
            1 for pod in pods if pod.obj["metadata"].get("deletionTimestamp")
        )
        status["uncountedTerminatedPods"] = {}
        if indexed and done:
            status["completedIndexes"] = ",".join(sorted(set(done.values()), key=int))
        self._registry.set_status(
            job, {key: v for key, v in status.items() if v != 0 or key in ("ready", "terminating")}
        )

    def _pods(self, job: Entry) -> list[Entry]:
        return [
            pod
            for pod in self._store.entries(kinds.PODS, job.namespace)
            if any(o["uid"] == job.uid for o in pod.obj["metadata"].get("ownerReferences") or ())
        ]

    def _failure(self, spec: Object, status: Object, failures: int) -> tuple[str, str, str] | None:
        seconds = spec.get("activeDeadlineSeconds")
        if seconds is not None and status.get("startTime"):
            age = (now() - parsed(status["startTime"])).total_seconds()
            if age >= seconds:
                return "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"
        if failures > spec["backoffLimit"]:
            return "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        return None

    def _deadline_later(self, job: Entry) -> None:
        seconds = job.obj["spec"].get("activeDeadlineSeconds")
        if seconds is not None:
            # A second later: start times are whole seconds.
            asyncio.get_running_loop().call_later(seconds + 1, self._wake, job.namespace, job.name)

    def _finish(self, status: Object, kind: str, reason: str, message: str) -> None:
        first = "SuccessCriteriaMet" if kind == "Complete" else "FailureTarget"
        status["conditions"] = [
            *(status.get("conditions") or ()),
            *(
                {
                    "type": one, "status": "True", "lastProbeTime": stamp(),
                    "lastTransitionTime": stamp(), "reason": reason, "message": message,
                }
                for one in (first, kind)
            ),
        ]  # fmt: skip
        if kind == "Complete":
            status["completionTime"] = stamp()

    def _create_missing(
        self, job: Entry, active: list[Entry], done: set[str], finished: int
    ) -> list[Entry]:
        spec = job.obj["spec"]
        wanted = spec["parallelism"]
        completions = spec.get("completions")
        if completions is not None:
            wanted = min(wanted, completions - finished)
        elif done:  # a work queue: no new pods after the first success
            wanted = len(active)
        indexed = spec["completionMode"] == "Indexed"
        taken = done | {_index(pod) for pod in active}
        free = (n for n in range(completions or 0) if str(n) not in taken)
        created = []
        for _ in range(wanted - len(active)):
            index = next(free, None) if indexed else None
            try:
                created.append(self._create(job, index))
            except ApiError:  # quota: the job tries again when something changes
                break
        for pod in active[wanted:]:
            self._delete(pod)
        return created

    def _create(self, job: Entry, index: int | None) -> Entry:
        template = json.loads(json.dumps(job.obj["spec"]["template"]))
        meta = template.setdefault("metadata", {})
        meta.pop("creationTimestamp", None)
        meta["ownerReferences"] = [
            {
                "apiVersion": "batch/v1", "kind": "Job", "name": job.name, "uid": job.uid,
                "controller": True, "blockOwnerDeletion": True,
            }
        ]  # fmt: skip
        self._serial += 1
        if index is None:
            meta["generateName"] = f"{job.name}-"
        else:
            meta.setdefault("annotations", {})[INDEX] = str(index)
            meta.setdefault("labels", {})[INDEX] = str(index)
            meta["generateName"] = f"{job.name}-{index}-"
            template["spec"].setdefault("hostname", f"{job.name}-{index}")
            variable = {
                "name": "JOB_COMPLETION_INDEX",
                "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}},
            }
            for container in template["spec"]["containers"]:
                container.setdefault("env", []).append(dict(variable))
        return self._registry.create(kinds.PODS, job.namespace, template)

    def _delete(self, pod: Entry) -> None:
        self._registry.delete(kinds.PODS, pod.namespace, pod.name, DeleteOptions(uid=pod.uid))


def _index(pod: Entry) -> str:
    return str((pod.obj["metadata"].get("annotations") or {}).get(INDEX, ""))


def _ready(pod: Entry) -> bool:
    conditions = pod.obj["status"].get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
