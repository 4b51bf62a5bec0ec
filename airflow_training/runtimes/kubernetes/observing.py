"""From a pod, as the API server shows it, to the observation that decisions are made from. Pure.

What ended an instance is told in this order: out of memory, the pod's own reason, a disruption,
the container's reason, signal, exit code. Once the training container has ended, the instance has,
whatever its sidecars still do.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from airflow_training.control import reasons
from airflow_training.control.model import InstanceState, Observation, ProgressReport
from airflow_training.control.run_output import RunOutput
from airflow_training.documents.times import parse_time
from airflow_training.runtimes.kubernetes import names
from airflow_training.runtimes.kubernetes.fitting import never_fits_by_message
from airflow_training.runtimes.kubernetes.gangs import GROUP_LABELS, KUEUE_QUEUE, VOLCANO_GROUP
from airflow_training.runtimes.kubernetes.group_status import GroupStatus
from airflow_training.runtimes.kubernetes.image_pulls import IMAGES_REFUSED, refused_twice
from airflow_training.runtimes.kubernetes.pod_attempts import AgentReport, with_agent_report
from airflow_training.runtimes.kubernetes.unfit import NodeFact

__all__ = [
    "CANNOT_START_SECONDS",
    "OVERDUE_SECONDS",
    "SETTLE_SECONDS",
    "SLOW_START_SECONDS",
    "has_run",
    "is_ending",
    "is_over",
    "observe",
    "observe_again_at",
    "started_at",
    "trimmed",
]

CANNOT_START_SECONDS = 300.0
"""How long a container may be unable to start (its image, its Secrets) before that is a failure."""
SLOW_START_SECONDS = 1800.0
"""How long the same may take where its node names no error: it may pull a large image."""
OVERDUE_SECONDS = 30.0
"""How long after its grace a deleted pod may still be there before its node is named."""
SETTLE_SECONDS = 5.0
"""How long after the end of its container a pod may take to say why the kubelet ended it."""

NOT_READY_TO_START = "PodNotReadyToStart"
"""Neither its volumes nor its network are there, so no image is pulled yet either."""
NOT_STARTED = "ContainerCreating"
"""Its node has not started it, and does not say what is missing."""
_MAY_PASS = frozenset(
    {
        "ErrImagePull",
        "ImageInspectError",
        "ImagePullBackOff",
        "RegistryUnavailable",
        "SignatureValidationFailed",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        NOT_READY_TO_START,
    }
)
"""What keeps a container from starting and may yet change."""
_NEVER_PASSES = frozenset({"InvalidImageName", "ErrImageNeverPull"})
_READY_TO_START = "PodReadyToStartContainers"
_CONDITIONS = frozenset(
    {"PodScheduled", "Ready", "DisruptionTarget", "TerminationTarget", _READY_TO_START}
)
_GROUP_MARKS = (*GROUP_LABELS, KUEUE_QUEUE, VOLCANO_GROUP)
_EXPLAINED = frozenset(
    {"SchedulingGated", "Scheduling", "Unschedulable", "Starting", reasons.NEVER_FITS}
)
"""What a pod says that waits for another object, which may know more."""
_ALL_WELL = frozenset({"Started", "Starting", "Initializing"})
_OWN_WORDS = frozenset({"Unschedulable", reasons.NEVER_FITS})
_PHASES_OVER = frozenset({"Succeeded", "Failed"})
_MAX_MESSAGE = 2000
_NOT_MOUNTED = (
    "its node cannot mount its volumes, or give it a network (kubectl describe pod says which)"
)
_NO_REASON = (
    "container '{}': its node has not started it for {:g} s, and does not say why"
    " (kubectl describe pod may say more)"
)
_NEEDS_PYTHON = (
    "the image of container '{container}' has no python3, which the agent needs to {what}:"
    " use an image with Python 3.8 or newer, or do without {without}"
)


class _InstanceStatus(NamedTuple):
    """State, reason and message of an instance."""

    state: InstanceState
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ContainerEnd:
    """How a container ended."""

    exit_code: int
    signal: int | None
    reason: str
    message: str
    started_at: float | None
    finished_at: float | None
    result: Mapping[str, Any]
    """What the agent left in the termination message; empty where it left nothing."""


def observe(
    pod: Mapping[str, Any],
    *,
    now: float,
    progress: ProgressReport | None = None,
    environment: tuple[str, ...] = (),
    turn: AgentReport | None = None,
    holder: GroupStatus | None = None,
    answers_since: float = 0.0,
    node_fact: NodeFact | None = None,
) -> Observation:
    """Return what a pod of ours does; `now` is in epoch seconds, `turn` what its agent said.

    `holder`: what holds it says, where that was asked. `answers_since`: since when the server answers again.
    `node_fact`: what is wrong with its node.

    Raises KeyError and ValueError for a pod that does not carry our labels.
    """
    ref = names.parse_ref(pod)
    annotations = pod["metadata"].get("annotations") or {}
    own = _training_container(pod)
    end = _end_of(own)
    said = _explained(_status_of(pod, own, end, now=now, answers_since=answers_since), holder)
    running = said.state == "running" and end is None
    held = said.state == "pending" and said.reason == "WaitingForDependency"
    alive = running or said.state == "pending"
    if node_fact is not None and alive and not held and _says_more(node_fact, said):
        said = _InstanceStatus(said.state, *node_fact)
    started = own.get("started", True) is not False
    node = (pod.get("spec") or {}).get("nodeName") or ""
    failed = said.state == "failed"
    seen = Observation(
        key=ref.key,
        uid=ref.uid,
        attempt_id=ref.attempt_id,
        state=said.state,
        reason=said.reason,
        message=said.message[:_MAX_MESSAGE],
        exit_code=_exit_code(pod, end, said),
        signal=end.signal if end and failed else None,
        disrupted=(failed or said.state == "terminating") and _disruption(pod, end) is not None,
        held=held,
        scheduled=bool(node),
        # a startup probe that is not ours says when the instance can be reached at all
        address_live=running and (started or names.PORT_PROBE in annotations),
        port_open=running and started,
        ready=running and _condition(pod, "Ready").get("status") == "True",
        node=node,
        address=annotations.get(names.ADDRESS, ""),
        state_since=_since(pod, own, end, now=now),
        started_at=_started_at(own, end),
        finished_at=_finished_at(pod, end) if said.state in ("succeeded", "failed") else None,
        progress=progress,
        environment=environment,
        output=_output(end) if said.state == "succeeded" else None,
        lingers=said.state in ("succeeded", "failed") and _sidecar_runs(pod, own),
    )
    return with_agent_report(seen, pod, turn)


def _says_more(fact: NodeFact, said: _InstanceStatus) -> bool:
    """Return whether what a node says goes before what the pod does: one that is only cordoned runs on."""
    return fact.reason == reasons.NODE_UNFIT or said.reason in _ALL_WELL


def is_over(pod: Mapping[str, Any]) -> bool:
    """Return whether nothing of a pod runs or ever will, though its object may stay for a while.

    A finalizer (Kueue's) keeps the object of an ended pod. A pod that is deleted before it got a
    node never gets one. On a lost node nobody knows, so such a pod is not over.
    """
    if _status(pod).get("phase") in _PHASES_OVER:
        return True
    return _is_deleted(pod) and not (pod.get("spec") or {}).get("nodeName")


def is_ending(pod: Mapping[str, Any]) -> bool:
    """Return whether all containers of a pod have ended by themselves, and its last phase is to come."""
    names_of_all = {each["name"] for each in (pod.get("spec") or {}).get("containers") or ()}
    ended = {
        each["name"]
        for each in _status(pod).get("containerStatuses") or ()
        if "terminated" in (each.get("state") or {})
    }
    return (
        bool(names_of_all) and names_of_all <= ended and not is_over(pod) and not _is_deleted(pod)
    )


def container_started(pod: Mapping[str, Any], container: str) -> str:
    """Return since when a container of a pod runs, as a time stamp; "" where it does not."""
    for each in _status(pod).get("containerStatuses") or ():
        if each["name"] == container:
            return str(((each.get("state") or {}).get("running") or {}).get("startedAt") or "")
    return ""


def runs_container(pod: Mapping[str, Any], container: str) -> bool:
    """Return whether a container of a pod runs, as far as anybody knows."""
    return not is_over(pod) and bool(container_started(pod, container))


def has_run(pod: Mapping[str, Any], container: str) -> bool:
    """Return whether a container of a pod that is still there runs, or has ended in it."""
    for each in _status(pod).get("containerStatuses") or ():
        if each["name"] == container and "terminated" in (each.get("state") or {}):
            return True
    return runs_container(pod, container)


def started_at(pod: Mapping[str, Any]) -> float | None:
    """Return since when a pod's own deadline runs; None before its kubelet has seen it."""
    return _epoch(_status(pod).get("startTime"))


def observe_again_at(
    pod: Mapping[str, Any], *, now: float, answers_since: float = 0.0
) -> float | None:
    """Return when `observe` says something else though the pod stays as it is; None: never."""
    settles_at = _settles_at(pod, _end_of(_training_container(pod)))
    if settles_at is not None:
        return settles_at if settles_at > now else None
    if is_over(pod):
        return None
    if _is_deleted(pod):
        overdue_at = _overdue_at(pod)
        return overdue_at if overdue_at is not None and overdue_at > now else None
    stuck = _stuck(pod) or _not_ready_to_start(pod)
    if stuck[1] in _NEVER_PASSES if stuck else not _is_idle(pod):
        return None
    limit = CANNOT_START_SECONDS if stuck else SLOW_START_SECONDS
    at = max(_could_start_since(pod, now=now), answers_since) + limit
    return at if at > now else None


def trimmed(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return only what `observe` and the other functions here read: a watch keeps thousands."""
    metadata, status = pod["metadata"], _status(pod)
    kept_metadata = {
        key: metadata[key]
        for key in (
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "finalizers",
        )
        if metadata.get(key) is not None
    }
    for key in ("labels", "annotations"):
        ours = {
            sys.intern(name): sys.intern(value)
            for name, value in (metadata.get(key) or {}).items()
            if name.startswith(("airflow-training/", "app.kubernetes.io/", *_GROUP_MARKS))
            and name not in (names.RELEASE, names.ORDER)
        }
        if ours:
            kept_metadata[key] = ours
    spec = {
        key: value
        for key, value in (pod.get("spec") or {}).items()
        if key in ("nodeName", "schedulingGates")
    }
    kept_status = {
        key: status[key]
        for key in ("phase", "reason", "message", "startTime", IMAGES_REFUSED)
        if status.get(key)
    }
    kept_status["conditions"] = [
        each for each in status.get("conditions") or () if each.get("type") in _CONDITIONS
    ]
    for key in ("initContainerStatuses", "containerStatuses"):
        kept_status[key] = [
            {
                part: each[part]
                for part in ("name", "state", "lastState", "ready", "started", "restartCount")
                if each.get(part) not in (None, {})
            }
            for each in status.get(key) or ()
        ]
    return {"metadata": kept_metadata, "spec": spec, "status": kept_status}


# state -------------------------------------------------------------------------------------------
def _status_of(
    pod: Mapping[str, Any],
    own: Mapping[str, Any],
    end: _ContainerEnd | None,
    *,
    now: float,
    answers_since: float,
) -> _InstanceStatus:
    settles_at = _settles_at(pod, end)
    if settles_at is not None and now < settles_at:
        return _InstanceStatus(
            "running", "Ending", "its container has ended, the kubelet cleans up"
        )
    if end is not None or is_over(pod):
        return _ended(pod, end)
    lost = _lost(pod)
    if lost:
        return _InstanceStatus("unknown", "NodeLost", lost)
    if _is_deleted(pod):
        overdue_at = _overdue_at(pod)
        if overdue_at is None or now < overdue_at:
            why = _disruption(pod, end) or {}
            return _InstanceStatus(
                "terminating", why.get("reason") or "Deleted", why.get("message") or ""
            )
        node = pod["spec"]["nodeName"]
        due = pod["metadata"]["deletionTimestamp"]
        message = f"node {node} was to end it by {due} and has not said that it did"
        return _InstanceStatus("terminating", reasons.OVERDUE, message)
    if "running" in (own.get("state") or {}):
        died = _helper_that_died(pod, own)
        return (
            _InstanceStatus("running", reasons.HELPER_DIED, died)
            if died
            else _InstanceStatus("running", "Started", _restarts_inside(own))
        )
    return _pending(pod, now=now, answers_since=answers_since)


def _explained(said: _InstanceStatus, holder: GroupStatus | None) -> _InstanceStatus:
    """Return what a waiting pod says with the words of what holds it."""
    if holder is None or said.state != "pending" or said.reason not in _EXPLAINED:
        return said
    own = said.message if said.reason in _OWN_WORDS and not holder.reason else ""
    message = "; ".join(filter(None, (own, holder.message)))
    return _InstanceStatus(said.state, holder.reason or said.reason, message)


def _settles_at(pod: Mapping[str, Any], end: _ContainerEnd | None) -> float | None:
    """Return until when the pod may yet say why its container ended; None: it has said all.

    A kubelet tells the exit code first. That it was the one who ended the pod (an eviction, the
    deadline, a shutdown of the node) it tells with the last phase, when all volumes are unmounted.
    Where other containers live on there is no last phase, and the exit code has to do.
    """
    if end is None or end.finished_at is None or end.reason == "OOMKilled":
        return None
    if is_over(pod) or _is_deleted(pod) or _disruption(pod, end) is not None:
        return None
    return end.finished_at + SETTLE_SECONDS


def _ended(pod: Mapping[str, Any], end: _ContainerEnd | None) -> _InstanceStatus:
    """Return how an instance ended: exit 0 counts only where nothing told it to end before."""
    status = _status(pod)
    if end is not None and end.reason == "OOMKilled":
        # where a container leaves no message, its kubelet shows the end of its log as one
        return _InstanceStatus("failed", "OOMKilled", "it used more memory than its limit")
    if status.get("phase") == "Failed" and status.get("reason"):
        return _InstanceStatus("failed", status["reason"], status.get("message") or "")
    disruption = _disruption(pod, end)
    if disruption is not None:
        reason = disruption.get("reason") or disruption["type"]
        return _InstanceStatus("failed", reason, disruption.get("message") or "")
    if _was_deleted_before(pod, end):
        return _InstanceStatus("failed", "Deleted", "it was deleted before it had ended by itself")
    if end is not None:
        return _by_container(pod, end)
    if status.get("phase") == "Succeeded":
        return _InstanceStatus("succeeded", "Completed")
    failed = _failed_init(pod)
    if failed is not None:
        return _init_failure(pod, *failed)
    return _InstanceStatus(
        "failed", "Error", status.get("message") or "the pod failed without a reason"
    )


def _by_container(pod: Mapping[str, Any], end: _ContainerEnd) -> _InstanceStatus:
    if end.exit_code == 0:
        return _InstanceStatus("succeeded", "Completed", str(end.result.get("message") or ""))
    if _lacks_python(end.message):
        return _InstanceStatus("failed", "AgentNeedsPython", _python_advice(pod))
    if end.reason == "Unknown":  # what containerd says of what it finds after the node has booted
        return _InstanceStatus(
            "failed", "ContainerStatusUnknown", end.message or "its node has started anew"
        )
    said = str(end.result.get("message") or "") or end.message
    reason = str(end.result.get("reason") or "") or end.reason or "Error"
    return _InstanceStatus("failed", reason, said)


def _init_failure(pod: Mapping[str, Any], name: str, end: _ContainerEnd) -> _InstanceStatus:
    if name == names.AGENT_CONTAINER and _lacks_python(end.message):
        return _InstanceStatus("failed", "AgentNeedsPython", _python_advice(pod))
    text = f"init container '{name}' ended with exit code {end.exit_code}"
    return _InstanceStatus(
        "failed", end.reason or "Error", f"{text}: {end.message}" if end.message else text
    )


def _pending(pod: Mapping[str, Any], *, now: float, answers_since: float) -> _InstanceStatus:
    scheduled = _condition(pod, "PodScheduled")
    if not (pod.get("spec") or {}).get("nodeName"):
        gates = [each.get("name", "") for each in pod.get("spec", {}).get("schedulingGates") or ()]
        if gates or scheduled.get("reason") == "SchedulingGated":
            # The server's own words only say that there are gates.
            queue = (pod["metadata"].get("labels") or {}).get(KUEUE_QUEUE)
            waits_for = f"its turn in queue '{queue}'" if queue else ", ".join(gates) or "its gates"
            return _InstanceStatus("pending", "SchedulingGated", f"waits for {waits_for}")
        if scheduled.get("status") == "False":
            reason, message = (
                scheduled.get("reason") or "Unschedulable",
                scheduled.get("message") or "",
            )
            never = never_fits_by_message(message)
            return (
                _InstanceStatus("pending", reasons.NEVER_FITS, never)
                if never
                else _InstanceStatus("pending", reason, message)
            )
        return _InstanceStatus("pending", "Scheduling")
    stuck = _stuck(pod)
    waited = now - max(_could_start_since(pod, now=now), answers_since)
    if stuck is None and waited >= CANNOT_START_SECONDS:
        stuck = _not_ready_to_start(pod)
    if stuck is not None:
        return _stuck_says(pod, *stuck, waited=waited)
    if waited >= SLOW_START_SECONDS and _is_idle(pod):
        name = (pod["metadata"].get("annotations") or {}).get(names.CONTAINER, "")
        return _InstanceStatus("failed", NOT_STARTED, _NO_REASON.format(name, SLOW_START_SECONDS))
    name, init = _current_init(pod)
    if name == names.AGENT_CONTAINER and names.HELD in (pod["metadata"].get("annotations") or {}):
        return _InstanceStatus(
            "pending", "WaitingForDependency", "held until what it depends on is there"
        )
    if init:
        return _InstanceStatus("pending", "Initializing", f"init container '{name}' runs")
    return _InstanceStatus("pending", "Starting")


def _stuck_says(
    pod: Mapping[str, Any], name: str, reason: str, message: str, *, waited: float
) -> _InstanceStatus:
    """Return a failure where a container can never start, or could not for too long."""
    if _lacks_python(message):
        return _InstanceStatus("failed", "AgentNeedsPython", _python_advice(pod))
    refused = refused_twice(pod, name, reason, message)
    message = refused or message
    text = f"container '{name}': {message}" if message else f"container '{name}' cannot start"
    if refused or reason in _NEVER_PASSES or waited >= CANNOT_START_SECONDS:
        return _InstanceStatus("failed", reason, text)
    return _InstanceStatus("pending", reason, text)


def _lost(pod: Mapping[str, Any]) -> str:
    """Return how we know that nothing is heard from the node, or an empty text.

    The node controller, not the kubelet, turns Ready to Unknown, or to False without a reason.
    """
    status, ready = _status(pod), _condition(pod, "Ready")
    node = (pod.get("spec") or {}).get("nodeName") or "(unknown)"
    if not (pod.get("spec") or {}).get("nodeName"):
        return ""
    by_controller = ready.get("status") == "Unknown" or (
        ready.get("status") == "False" and ready.get("reason", "") in ("", "NodeNotReady")
    )
    if status.get("phase") == "Unknown" or status.get("reason") == "NodeLost" or by_controller:
        return f"nothing is heard from node {node}; it may still run there"
    return ""


def _overdue_at(pod: Mapping[str, Any]) -> float | None:
    """Return from when on it is odd that a deleted pod is still there; None without a node."""
    due = _epoch(pod["metadata"].get("deletionTimestamp"))
    if due is None or not (pod.get("spec") or {}).get("nodeName"):
        return None
    return due + OVERDUE_SECONDS


def _restarts_inside(own: Mapping[str, Any]) -> str:
    count = own.get("restartCount") or 0
    last = (own.get("lastState") or {}).get("terminated")
    if not count or not last:
        return ""
    reason = last.get("reason") or "Error"
    return f"restarted {count} times inside the pod, last after {reason} ({last.get('exitCode')})"


def _sidecar_runs(pod: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    """Return whether a container goes on beside the training one, so that its pod does not end."""
    beside = [
        each
        for each in _statuses(pod, "containerStatuses")
        if each.get("name") != own.get("name") and "running" in (each.get("state") or {})
    ]
    return bool(beside) and bool(own) and not is_over(pod)


def _helper_that_died(pod: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """Return how a container beside the training one has died; "" where none has."""
    for each in _all_statuses(pod):
        end = (each.get("state") or {}).get("terminated") or {}
        again = (each.get("lastState") or {}).get("terminated") or {}
        died = end if end.get("exitCode") else again if again.get("exitCode") else {}
        if died and each.get("name") != own.get("name"):
            how = f"exit code {died['exitCode']} ({died.get('reason') or 'Error'})"
            return f"container '{each.get('name')}' died with {how}"
    return ""


# what the parts of a pod say ---------------------------------------------------------------------
def _status(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    status: Mapping[str, Any] = pod.get("status") or {}
    return status


def _is_deleted(pod: Mapping[str, Any]) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _condition(pod: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    found = (each for each in _status(pod).get("conditions") or () if each.get("type") == kind)
    return next(found, {})


def _statuses(pod: Mapping[str, Any], key: str) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = _status(pod).get(key) or ()
    return found


def _training_container(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the status of the training container; empty while the kubelet has told none."""
    wanted = (pod["metadata"].get("annotations") or {}).get(names.CONTAINER)
    found = _statuses(pod, "containerStatuses")
    return next((each for each in found if wanted in (None, each.get("name"))), {})


def _end_of(container: Mapping[str, Any]) -> _ContainerEnd | None:
    """Return how a container ended; None while it has not, or may yet start again."""
    state = container.get("state") or {}
    ended = state.get("terminated")
    if ended is None:
        return None
    exit_code = int(ended.get("exitCode", 0))
    message = ended.get("message") or ""
    result = _result(message)
    number = ended.get("signal") or result.get("signal")
    if not number and 128 < exit_code <= 128 + 64:
        number = exit_code - 128  # container runtimes report a signal this way
    return _ContainerEnd(
        exit_code=exit_code,
        signal=int(number) if number else None,
        reason=ended.get("reason") or "",
        message="" if result else message.strip(),
        started_at=_epoch(ended.get("startedAt")),
        finished_at=_epoch(ended.get("finishedAt")),
        result=result,
    )


def _result(message: str) -> Mapping[str, Any]:
    """Return what our agent left in a termination message."""
    try:
        found = json.loads(message)["airflow-training"]
    except (ValueError, TypeError, KeyError):
        return {}
    return found if isinstance(found, dict) else {}


def _disruption(pod: Mapping[str, Any], end: _ContainerEnd | None) -> Mapping[str, Any] | None:
    """Return the condition by which the platform said that it ends the pod, where it came first.

    `TerminationTarget` is Kueue's.
    """
    for kind in ("DisruptionTarget", "TerminationTarget"):
        found = _condition(pod, kind)
        if found.get("status") != "True":
            continue
        if found.get("reason") == "TerminationByKubelet":
            return found  # written with the last phase only, after the containers have ended
        at = _epoch(found.get("lastTransitionTime"))
        finished = end.finished_at if end else None
        if at is None or finished is None or at <= finished:
            return found
    return None


def _was_deleted_before(pod: Mapping[str, Any], end: _ContainerEnd | None) -> bool:
    """Return whether somebody deleted the pod while its container still ran."""
    due = _epoch(pod["metadata"].get("deletionTimestamp"))
    if due is None:
        return False
    asked = due - float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
    return end is None or end.finished_at is None or end.finished_at >= asked


def _failed_init(pod: Mapping[str, Any]) -> tuple[str, _ContainerEnd] | None:
    for each in _statuses(pod, "initContainerStatuses"):
        end = _end_of(each)
        if end is not None and end.exit_code != 0:
            return each.get("name", ""), end
    return None


def _current_init(pod: Mapping[str, Any]) -> tuple[str, bool]:
    """Return (name, whether one runs) of the init container that is at work.

    A sidecar runs on beside the later ones, so the last running one counts.
    """
    running = [
        each.get("name", "")
        for each in _statuses(pod, "initContainerStatuses")
        if "running" in (each.get("state") or {})
    ]
    return (running[-1], True) if running else ("", False)


def _stuck(pod: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Return (container, reason, message) of what cannot be started now."""
    for each in _all_statuses(pod):
        waiting = (each.get("state") or {}).get("waiting") or {}
        reason = waiting.get("reason") or ""
        if reason in _MAY_PASS or reason in _NEVER_PASSES:
            return each.get("name", ""), reason, waiting.get("message") or ""
    return None


def _not_ready_to_start(pod: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Return the same for a pod on a node that has not got its volumes and its network yet."""
    if _condition(pod, _READY_TO_START).get("status") != "False" or _has_started(pod):
        return None
    own = (pod["metadata"].get("annotations") or {}).get(names.CONTAINER, "")
    return own, NOT_READY_TO_START, _NOT_MOUNTED


def _is_idle(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod has its node, and neither its training container nor one before it runs."""
    own = _training_container(pod).get("state") or {}
    placed = bool((pod.get("spec") or {}).get("nodeName"))
    return placed and not ("running" in own or "terminated" in own or _current_init(pod)[1])


def _has_started(pod: Mapping[str, Any]) -> bool:
    """Return whether any container of a pod has ever run."""
    states = (
        {**(each.get("state") or {}), **(each.get("lastState") or {})}
        for each in _all_statuses(pod)
    )
    return any("running" in state or "terminated" in state for state in states)


def _all_statuses(pod: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from _statuses(pod, "initContainerStatuses")
    yield from _statuses(pod, "containerStatuses")


def _lacks_python(message: str) -> bool:
    """Return whether a container runtime says that our `python3` is not in the image."""
    text = message.lower()
    return "python3" in text and (
        "not found" in text or "no such file" in text or "executable file" in text
    )


def _python_advice(pod: Mapping[str, Any]) -> str:
    own = (pod["metadata"].get("annotations") or {}).get(names.CONTAINER, "")
    for each in _statuses(pod, "initContainerStatuses"):
        state = each.get("state") or {}
        held_up = (state.get("waiting") or state.get("terminated") or {}).get("message") or ""
        if each.get("name") == names.AGENT_CONTAINER and _lacks_python(held_up):
            return _NEEDS_PYTHON.format(
                container=each["name"],
                what="hold an instance and to write its files",
                without="createAllHold; [training] agent_image names the image",
            )
    return _NEEDS_PYTHON.format(
        container=own,
        what="upload the output and to report progress",
        without="spec.output and [training] callback_url",
    )


# times and the end -------------------------------------------------------------------------------
def _exit_code(
    pod: Mapping[str, Any], end: _ContainerEnd | None, said: _InstanceStatus
) -> int | None:
    if said.state not in ("succeeded", "failed"):
        return None
    if end is not None:
        return end.exit_code
    if said.state == "succeeded":
        return 0
    failed = _failed_init(pod)
    return failed[1].exit_code if failed else None


def _output(end: _ContainerEnd | None) -> RunOutput | None:
    found = end.result.get("output") if end else None
    return RunOutput.from_document(found) if isinstance(found, dict) else None


def _started_at(own: Mapping[str, Any], end: _ContainerEnd | None) -> float | None:
    if end is not None:
        return end.started_at
    return _epoch(((own.get("state") or {}).get("running") or {}).get("startedAt"))


def _finished_at(pod: Mapping[str, Any], end: _ContainerEnd | None) -> float | None:
    if end is not None and end.finished_at is not None:
        return end.finished_at
    failed = _failed_init(pod)
    if failed is not None:
        return failed[1].finished_at
    disruption = _disruption(pod, end)
    return _epoch((disruption or _condition(pod, "Ready")).get("lastTransitionTime"))


def _could_start_since(pod: Mapping[str, Any], *, now: float) -> float:
    """Return since when nothing else keeps a container from starting: its node, and those before it."""
    scheduled = _epoch(_condition(pod, "PodScheduled").get("lastTransitionTime"))
    started = _epoch(_status(pod).get("startTime"))
    placed = next((each for each in (scheduled, started) if each is not None), now)
    ends = (
        _epoch(((each.get("state") or {}).get("terminated") or {}).get("finishedAt"))
        for each in _statuses(pod, "initContainerStatuses")
    )
    return max(placed, *(each for each in ends if each is not None), placed)


def _since(
    pod: Mapping[str, Any], own: Mapping[str, Any], end: _ContainerEnd | None, *, now: float
) -> float:
    """Return since when it is in its state, as far as the pod tells."""
    deleted = _epoch(pod["metadata"].get("deletionTimestamp"))
    if deleted is not None and end is None:
        deleted -= float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
    known = (
        end.finished_at if end else None,
        deleted,
        _started_at(own, end),
        _epoch(_condition(pod, "PodScheduled").get("lastTransitionTime")),
    )
    return next((each for each in known if each is not None), now)


def _epoch(text: str | None) -> float | None:
    """Return epoch seconds of a time as the API server writes it."""
    if not text:
        return None
    return parse_time(text).timestamp()
