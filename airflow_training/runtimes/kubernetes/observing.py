"""From a pod to the observation that decisions are made from. Pure.

What ended an instance is told in this order: out of memory, the pod's own reason, a disruption,
the container's reason, signal, exit code. Once the training container has ended, the instance has,
whatever its sidecars still do.
"""

from __future__ import annotations

from typing import NamedTuple

from airflow_training.control import reasons
from airflow_training.control.observations import InstanceState, Observation
from airflow_training.control.reports import ProgressReport
from airflow_training.documents.text import headline
from airflow_training.runtimes.kubernetes import names
from airflow_training.runtimes.kubernetes.fitting import never_fits_by_message
from airflow_training.runtimes.kubernetes.group_status import GroupStatus
from airflow_training.runtimes.kubernetes.image_pulls import refused_twice
from airflow_training.runtimes.kubernetes.missing_python import lacks_python, python_advice
from airflow_training.runtimes.kubernetes.pod_attempts import AgentReport, with_agent_report
from airflow_training.runtimes.kubernetes.pod_view import (
    READY_TO_START,
    ContainerEnd,
    ContainerStatus,
    PodCondition,
    PodView,
)
from airflow_training.runtimes.kubernetes.unfit import NodeFact

__all__ = [
    "CANNOT_START_SECONDS",
    "OVERDUE_SECONDS",
    "SETTLE_SECONDS",
    "SLOW_START_SECONDS",
    "observe",
    "observe_again_at",
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
_EXPLAINED = frozenset(
    {"SchedulingGated", "Scheduling", "Unschedulable", "Starting", reasons.NEVER_FITS}
)
"""What a pod says that waits for another object, which may know more."""
_ALL_WELL = frozenset({"Started", "Starting", "Initializing"})
_OWN_WORDS = frozenset({"Unschedulable", reasons.NEVER_FITS})
_MAX_MESSAGE = 2000
_NOT_MOUNTED = (
    "its node cannot mount its volumes, or give it a network (kubectl describe pod says which)"
)
_NO_REASON = (
    "container '{}': its node has not started it for {:g} s, and does not say why"
    " (kubectl describe pod may say more)"
)


class _InstanceStatus(NamedTuple):
    """State, reason and message of an instance."""

    state: InstanceState
    reason: str
    message: str = ""


class _Obstacle(NamedTuple):
    """What keeps a container from being started."""

    container: str
    reason: str
    message: str


def observe(
    pod: PodView,
    *,
    now: float,
    progress: ProgressReport | None = None,
    environment: tuple[str, ...] = (),
    turn: AgentReport | None = None,
    holder: GroupStatus | None = None,
    answers_since: float = 0.0,
    node_fact: NodeFact | None = None,
) -> Observation:
    """Observation of one of our pods; `now` is in epoch seconds, `turn` the agent's last word.

    `holder`: what holds it says, where that was asked. `answers_since`: since when the server answers again.
    `node_fact`: what is wrong with its node.

    Raises KeyError and ValueError for a pod that does not carry our labels.
    """
    ref, own = pod.ref, pod.own
    end = own.end
    said = _explained(_status_of(pod, own, now=now, answers_since=answers_since), holder)
    running = said.state == "running" and end is None
    held = said.state == "pending" and said.reason == "WaitingForDependency"
    alive = running or said.state == "pending"
    if node_fact is not None and alive and not held and _says_more(node_fact, said):
        said = _InstanceStatus(said.state, *node_fact)
    failed, ended = said.state == "failed", said.state in ("succeeded", "failed")
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
        scheduled=bool(pod.node),
        # a startup probe that is not ours says when the instance can be reached at all
        address_live=running and (own.started or names.PORT_PROBE in pod.annotations),
        port_open=running and own.started,
        ready=running and pod.condition("Ready").status == "True",
        node=pod.node,
        address=pod.annotations.get(names.ADDRESS, ""),
        state_since=_since(pod, own, now=now),
        started_at=_started_at(own),
        finished_at=_finished_at(pod, end) if ended else None,
        progress=progress,
        environment=environment,
        output=end.output if end and said.state == "succeeded" else None,
        outlived_by=end.outlived_by if end and said.state == "succeeded" else "",
        lingers=ended and _sidecar_runs(pod, own),
    )
    return with_agent_report(seen, pod, turn)


def _says_more(fact: NodeFact, said: _InstanceStatus) -> bool:
    """Return whether what a node says goes before what the pod does: one that is only cordoned runs on."""
    return fact.reason == reasons.NODE_UNFIT or said.reason in _ALL_WELL


def observe_again_at(pod: PodView, *, now: float, answers_since: float = 0.0) -> float | None:
    """Return when `observe` says something else though the pod stays as it is; None: never."""
    settles_at = _settles_at(pod, pod.own.end)
    if settles_at is not None:
        return settles_at if settles_at > now else None
    if pod.is_over:
        return None
    if pod.deletion is not None:
        overdue_at = _overdue_at(pod)
        return overdue_at if overdue_at is not None and overdue_at > now else None
    stuck = _stuck(pod) or _not_ready_to_start(pod)
    if stuck.reason in _NEVER_PASSES if stuck else not _is_idle(pod):
        return None
    limit = CANNOT_START_SECONDS if stuck else SLOW_START_SECONDS
    at = max(_could_start_since(pod, now=now), answers_since) + limit
    return at if at > now else None


# state -------------------------------------------------------------------------------------------
def _status_of(
    pod: PodView, own: ContainerStatus, *, now: float, answers_since: float
) -> _InstanceStatus:
    end = own.end
    settles_at = _settles_at(pod, end)
    if settles_at is not None and now < settles_at:
        cleans_up = "its container has ended, the kubelet cleans up"
        return _InstanceStatus("running", "Ending", cleans_up)
    if end is not None or pod.is_over:
        return _ended(pod, end)
    lost = _lost(pod)
    if lost:
        return _InstanceStatus("unknown", "NodeLost", lost)
    if pod.deletion is not None:
        overdue_at = _overdue_at(pod)
        if overdue_at is None or now < overdue_at:
            why = _disruption(pod, end) or PodCondition()
            return _InstanceStatus("terminating", why.reason or "Deleted", why.message)
        due = f"node {pod.node} was to end it by {pod.deletion.due}"
        return _InstanceStatus(
            "terminating", reasons.OVERDUE, f"{due} and has not said that it did"
        )
    if own.running:
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


def _settles_at(pod: PodView, end: ContainerEnd | None) -> float | None:
    """Return until when the pod may yet say why its container ended; None: it has said all.

    A kubelet tells the exit code first. That it was the one who ended the pod (an eviction, the
    deadline, a shutdown of the node) it tells with the last phase, when all volumes are unmounted.
    Where other containers live on there is no last phase, and the exit code has to do.
    """
    if end is None or end.finished_at is None or end.reason == "OOMKilled":
        return None
    if pod.is_over or pod.deletion is not None or _disruption(pod, end) is not None:
        return None
    return end.finished_at + SETTLE_SECONDS


def _ended(pod: PodView, end: ContainerEnd | None) -> _InstanceStatus:
    """Return how an instance ended: exit 0 counts only where nothing told it to end before."""
    if end is not None and end.reason == "OOMKilled":
        # where a container leaves no message, its kubelet shows the end of its log as one
        return _InstanceStatus("failed", "OOMKilled", "it used more memory than its limit")
    if pod.phase == "Failed" and pod.reason:
        return _InstanceStatus("failed", pod.reason, pod.message)
    disruption = _disruption(pod, end)
    if disruption is not None:
        return _InstanceStatus("failed", disruption.reason or disruption.type, disruption.message)
    if _was_deleted_before(pod, end):
        why = "it was deleted before it had ended by itself"
        if end is not None and end.exit_code == 0:
            why += ": its exit code 0 came after SIGTERM, and tells of no end of the training"
        return _InstanceStatus("failed", "Deleted", why)
    if end is not None:
        return _by_container(pod, end)
    if pod.phase == "Succeeded":
        return _InstanceStatus("succeeded", "Completed")
    failed = _failed_init(pod)
    if failed is not None:
        return _init_failure(pod, *failed)
    return _InstanceStatus("failed", "Error", pod.message or "the pod failed without a reason")


def _by_container(pod: PodView, end: ContainerEnd) -> _InstanceStatus:
    if end.exit_code == 0:
        return _InstanceStatus("succeeded", "Completed", end.agent_message)
    if lacks_python(end.message):
        return _InstanceStatus("failed", "AgentNeedsPython", python_advice(pod))
    if end.reason == "Unknown":  # what containerd says of what it finds after the node has booted
        return _InstanceStatus(
            "failed", "ContainerStatusUnknown", end.message or "its node has started anew"
        )
    reason = end.agent_reason or end.reason or "Error"
    return _InstanceStatus("failed", reason, end.agent_message or end.message)


_REFUSED = 2
"""What the program that makes environments exits with where another try changes nothing."""


def _init_failure(pod: PodView, name: str, end: ContainerEnd) -> _InstanceStatus:
    ours = name in (names.AGENT_CONTAINER, names.ENVIRONMENT_CONTAINER)
    if ours and lacks_python(end.message):
        return _InstanceStatus("failed", "AgentNeedsPython", python_advice(pod))
    if name == names.ENVIRONMENT_CONTAINER:
        refused = end.exit_code == _REFUSED
        reason = "EnvironmentRefused" if refused else "EnvironmentFailed"
        return _InstanceStatus("failed", reason, end.message or f"exit code {end.exit_code}")
    text = f"init container '{name}' ended with exit code {end.exit_code}"
    last = headline(end.message)
    return _InstanceStatus("failed", end.reason or "Error", f"{text}: {last}" if last else text)


def _pending(pod: PodView, *, now: float, answers_since: float) -> _InstanceStatus:
    if not pod.node:
        return _unplaced(pod)
    stuck = _stuck(pod)
    waited = now - max(_could_start_since(pod, now=now), answers_since)
    if stuck is None and waited >= CANNOT_START_SECONDS:
        stuck = _not_ready_to_start(pod)
    if stuck is not None:
        return _stuck_says(pod, stuck, waited=waited)
    if waited >= SLOW_START_SECONDS and _is_idle(pod):
        name = pod.annotations.get(names.CONTAINER, "")
        return _InstanceStatus("failed", NOT_STARTED, _NO_REASON.format(name, SLOW_START_SECONDS))
    init = _current_init(pod)
    if init == names.AGENT_CONTAINER and names.HELD in pod.annotations:
        return _InstanceStatus(
            "pending", "WaitingForDependency", "held until what it depends on is there"
        )
    if init is not None:
        return _InstanceStatus("pending", "Initializing", f"init container '{init}' runs")
    return _InstanceStatus("pending", "Starting")


def _unplaced(pod: PodView) -> _InstanceStatus:
    scheduled = pod.condition("PodScheduled")
    if pod.gates or scheduled.reason == "SchedulingGated":
        # The server's own words only say that there are gates.
        queue = pod.labels.get(names.KUEUE_QUEUE)
        waits_for = f"its turn in queue '{queue}'" if queue else ", ".join(pod.gates) or "its gates"
        return _InstanceStatus("pending", "SchedulingGated", f"waits for {waits_for}")
    if scheduled.status != "False":
        return _InstanceStatus("pending", "Scheduling")
    never = never_fits_by_message(scheduled.message)
    if never:
        return _InstanceStatus("pending", reasons.NEVER_FITS, never)
    return _InstanceStatus("pending", scheduled.reason or "Unschedulable", scheduled.message)


def _stuck_says(pod: PodView, stuck: _Obstacle, *, waited: float) -> _InstanceStatus:
    """Return a failure where a container can never start, or could not for too long."""
    name, reason, message = stuck
    if lacks_python(message):
        return _InstanceStatus("failed", "AgentNeedsPython", python_advice(pod))
    refused = refused_twice(pod, name, reason, message)
    message = refused or message
    text = f"container '{name}': {message}" if message else f"container '{name}' cannot start"
    if refused or reason in _NEVER_PASSES or waited >= CANNOT_START_SECONDS:
        return _InstanceStatus("failed", reason, text)
    return _InstanceStatus("pending", reason, text)


def _lost(pod: PodView) -> str:
    """Return how we know that nothing is heard from the node, or an empty text.

    The node controller, not the kubelet, turns Ready to Unknown, or to False without a reason.
    """
    ready = pod.condition("Ready")
    by_controller = ready.status == "Unknown" or (
        ready.status == "False" and ready.reason in ("", "NodeNotReady")
    )
    if pod.node and (pod.phase == "Unknown" or pod.reason == "NodeLost" or by_controller):
        return f"nothing is heard from node {pod.node}; it may still run there"
    return ""


def _overdue_at(pod: PodView) -> float | None:
    """Return from when on it is odd that a deleted pod is still there; None without a node."""
    return pod.deletion.due_at + OVERDUE_SECONDS if pod.deletion and pod.node else None


def _restarts_inside(own: ContainerStatus) -> str:
    last = own.last_end
    if not own.restarts or last is None:
        return ""
    reason = last.reason or "Error"
    return f"restarted {own.restarts} times inside the pod, last after {reason} ({last.exit_code})"


def _sidecar_runs(pod: PodView, own: ContainerStatus) -> bool:
    """Return whether a container goes on beside the training one, so that its pod does not end."""
    beside = any(each.running for each in pod.containers if each.name != own.name)
    return beside and bool(own.name) and not pod.is_over


def _helper_that_died(pod: PodView, own: ContainerStatus) -> str:
    """Return how a container beside the training one has died; "" where none has."""
    for each in pod.statuses():
        died = next((end for end in (each.end, each.last_end) if end and end.exit_code), None)
        if died is not None and each.name != own.name:
            how = f"exit code {died.exit_code} ({died.reason or 'Error'})"
            return f"container '{each.name}' died with {how}"
    return ""


# what the parts of a pod say ---------------------------------------------------------------------
def _disruption(pod: PodView, end: ContainerEnd | None) -> PodCondition | None:
    """Return the condition by which the platform said that it ends the pod, where it came first.

    `TerminationTarget` is Kueue's.
    """
    finished = end.finished_at if end else None
    for kind in ("DisruptionTarget", "TerminationTarget"):
        found = pod.condition(kind)
        if found.status != "True":
            continue
        if found.reason == "TerminationByKubelet":
            return found  # written with the last phase only, after the containers have ended
        if found.since is None or finished is None or found.since <= finished:
            return found
    return None


def _was_deleted_before(pod: PodView, end: ContainerEnd | None) -> bool:
    """Return whether somebody deleted the pod while its container still ran."""
    if pod.deletion is None:
        return False
    return end is None or end.finished_at is None or end.finished_at >= pod.deletion.asked_at


def _failed_init(pod: PodView) -> tuple[str, ContainerEnd] | None:
    for each in pod.init_containers:
        if each.end is not None and each.end.exit_code != 0:
            return each.name, each.end
    return None


def _current_init(pod: PodView) -> str | None:
    """Return the name of the init container that is at work; None where none runs.

    A sidecar runs on beside the later ones, so the last running one counts.
    """
    return next((each.name for each in reversed(pod.init_containers) if each.running), None)


def _stuck(pod: PodView) -> _Obstacle | None:
    """Return what cannot be started now."""
    for each in pod.statuses():
        waits = each.waiting
        if waits is not None and (waits.reason in _MAY_PASS or waits.reason in _NEVER_PASSES):
            return _Obstacle(each.name, waits.reason, waits.message)
    return None


def _not_ready_to_start(pod: PodView) -> _Obstacle | None:
    """Return the same for a pod on a node that has not got its volumes and its network yet."""
    has_started = any(each.has_started for each in pod.statuses())
    if pod.condition(READY_TO_START).status != "False" or has_started:
        return None
    return _Obstacle(pod.annotations.get(names.CONTAINER, ""), NOT_READY_TO_START, _NOT_MOUNTED)


def _is_idle(pod: PodView) -> bool:
    """Return whether a pod has its node, and neither its training container nor one before it runs."""
    own = pod.own
    begun = own.running or own.end is not None or _current_init(pod) is not None
    return bool(pod.node) and not begun


# times and the end -------------------------------------------------------------------------------
def _exit_code(pod: PodView, end: ContainerEnd | None, said: _InstanceStatus) -> int | None:
    if said.state not in ("succeeded", "failed"):
        return None
    if end is not None:
        return end.exit_code
    if said.state == "succeeded":
        return 0
    failed = _failed_init(pod)
    return failed[1].exit_code if failed else None


def _started_at(own: ContainerStatus) -> float | None:
    return own.end.started_at if own.end is not None else own.running_at


def _finished_at(pod: PodView, end: ContainerEnd | None) -> float | None:
    if end is not None and end.finished_at is not None:
        return end.finished_at
    failed = _failed_init(pod)
    if failed is not None:
        return failed[1].finished_at
    return (_disruption(pod, end) or pod.condition("Ready")).since


def _could_start_since(pod: PodView, *, now: float) -> float:
    """Return since when nothing else keeps a container from starting: its node, and those before it."""
    scheduled = pod.condition("PodScheduled").since
    placed = next((each for each in (scheduled, pod.started_at) if each is not None), now)
    ends = (each.end.finished_at for each in pod.init_containers if each.end is not None)
    return max(placed, *(each for each in ends if each is not None), placed)


def _since(pod: PodView, own: ContainerStatus, *, now: float) -> float:
    """Return since when it is in its state, as far as the pod tells."""
    end, deletion = own.end, pod.deletion
    known = (
        end.finished_at if end else None,
        (deletion.due_at if end else deletion.asked_at) if deletion else None,
        _started_at(own),
        pod.condition("PodScheduled").since,
    )
    return next((each for each in known if each is not None), now)
