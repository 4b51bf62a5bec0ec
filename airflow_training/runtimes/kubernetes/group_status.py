"""Why a pod waits, as the objects say that hold it: Kueue's Workload, PodGroups, the pod's events. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_training.control import reasons
from airflow_training.runtimes.kubernetes import names
from airflow_training.runtimes.kubernetes.pod_view import PodView

__all__ = [
    "START_SECONDS",
    "GroupStatus",
    "by_events",
    "by_pod_group",
    "by_workload",
    "group_of",
    "is_held",
    "is_queued",
    "place_in_queue",
]

_PLACE_SECONDS = 5.0
"""How long a pod may be without a node before anybody is asked why: most have one in a second."""
START_SECONDS = 30.0
"""How long a pod that has its node may take to start before its events are looked at."""

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """What holds a pod says of it."""

    message: str
    reason: str = ""
    """"": the pod's own stays."""


def is_held(pod: PodView, *, now: float) -> bool:
    """Return whether somebody else knows why a pod does not start."""
    if pod.phase != "Pending" or pod.deletion is not None:
        return False
    if not pod.node:
        return pod.created_at is None or now - pod.created_at >= _PLACE_SECONDS
    if any(each.waiting is None for each in pod.statuses()):
        return False
    placed = pod.condition("PodScheduled").since
    return placed is not None and now - placed >= START_SECONDS


def group_of(pod: PodView) -> str:
    """Return the name of the gang that a pod belongs to; "" without one."""
    found = [pod.labels.get(name) for name in names.GROUP_LABELS]
    found.append(pod.annotations.get(names.VOLCANO_GROUP))
    return next((each for each in found if each), "")


def is_queued(pod: PodView) -> bool:
    """Return whether Kueue lets a pod wait."""
    return names.KUEUE_GROUP in pod.labels


# Kueue -------------------------------------------------------------------------------------------
def by_workload(workload: Object, *, place: str = "") -> GroupStatus | None:
    """Status of a group by its Workload; None where that reserves nothing any more."""
    status = workload.get("status") or {}
    evicted, reserved = _condition(status, "Evicted"), _condition(status, "QuotaReserved")
    if (workload.get("spec") or {}).get("active") is False:
        why = _message(evicted) or "somebody set spec.active to false"
        return GroupStatus(
            f"its Workload is deactivated and stays out of the queue: {why}", "Deactivated"
        )
    if _condition(status, "Admitted").get("status") == "True":
        return None
    if reserved.get("status") == "True":
        return GroupStatus(_checks(status))
    said = reserved.get("message") or "it waits in its queue"
    reason = reasons.NEVER_FITS if _is_beyond(said) else ""
    parts = [said, place, _again(status)]
    if evicted.get("status") == "True":
        parts.insert(0, f"Kueue ended it before: {_message(evicted)}")
    return GroupStatus("; ".join(filter(None, parts)), reason)


def _is_beyond(said: str) -> bool:
    """Return whether a queue says that it could not take a group even when it is empty."""
    return "> maximum capacity" in said and "insufficient unused quota" not in said


def _checks(status: Object) -> str:
    waiting = [
        f"{each.get('name')} ({each.get('state')}{_after(': ', each.get('message'))})"
        for each in status.get("admissionChecks") or ()
        if each.get("state") != "Ready"
    ]
    checks = f"admission check {', '.join(waiting)}" if waiting else "Kueue's admission"
    return f"it has its quota and waits for {checks}"


def _again(status: Object) -> str:
    state = status.get("requeueState") or {}
    if not state.get("requeueAt"):
        return ""
    return f"it is put into the queue again at {state['requeueAt']}, time {state.get('count', 1)}"


def place_in_queue(pending: Sequence[Object], group: str) -> str:
    """Return which place a group has, as Kueue's visibility API lists what waits in a LocalQueue."""
    for each in pending:
        if each["metadata"]["name"] == group:
            place = int(each.get("positionInLocalQueue", 0)) + 1
            whole = int(each.get("positionInClusterQueue", 0)) + 1
            return (
                f"place {place} of {len(pending)} in its queue, {whole} in the whole cluster queue"
            )
    return ""


# PodGroups ---------------------------------------------------------------------------------------
def by_pod_group(group: Object) -> GroupStatus | None:
    """Status of a group by its PodGroup (Volcano, coscheduling); None where all of it is placed."""
    status = group.get("status") or {}
    phase = status.get("phase") or ""
    if phase in ("Running", "Scheduled", "Finished", "Completed"):
        return None
    refused = _condition(status, "Unschedulable")
    if refused.get("status") == "True" and refused.get("message"):
        return GroupStatus(f"its gang is {phase or 'Pending'}: {refused['message']}")
    wanted = (group.get("spec") or {}).get("minMember")
    have = f", {status['scheduled']} of {wanted} placed" if "scheduled" in status else ""
    return GroupStatus(f"its gang is {phase}{have}") if phase else None


# events ------------------------------------------------------------------------------------------
def by_events(events: Sequence[Object], uid: str) -> GroupStatus | None:
    """Return the newest warning about a pod, else since when its image is pulled."""
    about = [
        each
        for each in events
        if (each.get("involvedObject") or {}).get("uid") == uid and each.get("message")
    ]
    warnings = [each for each in about if each.get("type") == "Warning"]
    if warnings:
        newest = max(warnings, key=_event_time)
        return GroupStatus(f"{newest.get('reason', 'Warning')}: {newest['message']}")
    pulling = [each for each in about if each.get("reason") == "Pulling"]
    if not pulling:
        return None
    newest = max(pulling, key=_event_time)
    return GroupStatus(f"{newest['message']} since {_event_time(newest)}")


def _event_time(event: Object) -> str:
    series = event.get("series") or {}
    found = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return str(next((each for each in found if each), ""))


# parts -------------------------------------------------------------------------------------------
def _condition(status: Object, kind: str) -> Object:
    found = (each for each in status.get("conditions") or () if each.get("type") == kind)
    return next(found, {})


def _message(condition: Object) -> str:
    return f"{condition.get('reason', '')}{_after(': ', condition.get('message'))}".strip()


def _after(separator: str, text: str | None) -> str:
    return f"{separator}{text}" if text else ""
