"""Which failure explains the end of a job, as far as exit reasons tell; logs may know better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_training.control import reasons
from airflow_training.control.failures import Failure, ended_by_term
from airflow_training.control.model import InstanceEntry, InstanceKey, RoleEntry
from airflow_training.spec.resolved import ResolvedJob

__all__ = [
    "CAUSE_IDS",
    "cause",
    "cause_id",
    "cause_of_failure",
    "cause_of_role",
    "proof_of",
    "with_diagnosis",
]

CAUSE_IDS: Mapping[str, str] = {
    "OOMKilled": "host-out-of-memory",
    "Evicted": "evicted",
    "Unschedulable": "unschedulable",
    reasons.SCHEDULE_TIMEOUT: "unschedulable",
    "OutOfcpu": "unschedulable",
    "OutOfmemory": "unschedulable",
    "OutOfpods": "unschedulable",
    "Preempted": "preempted",
    "Preempting": "preempted",
    "PreemptionByScheduler": "preempted",
    "DisruptionTarget": "preempted",
    "DeletionByTaintManager": "preempted",
    "EvictionByEvictionAPI": "preempted",
    "TerminationByKubelet": "preempted",
    "NodeLost": "node-lost",
    "NodeShutdown": "node-lost",
    "Shutdown": "node-lost",
    "DeletionByPodGC": "node-lost",
    reasons.UNKNOWN_TOO_LONG: "node-lost",
    "ErrImagePull": "image-pull-failure",
    "ImagePullBackOff": "image-pull-failure",
    "ErrImageNeverPull": "image-pull-failure",
    "InvalidImageName": "image-pull-failure",
    "CreateContainerConfigError": "container-start-error",
    "CreateContainerError": "container-start-error",
    "RunContainerError": "container-start-error",
    "ContainerCannotRun": "container-start-error",
    "StartError": "container-start-error",
    "CommandNotFound": "container-start-error",
    "AgentNeedsPython": "container-start-error",
    reasons.DEADLINE_EXCEEDED: "time-limit",
    reasons.DEPENDENCY_TIMEOUT: "rendezvous-timeout",
}
"""Reason -> id of the cause."""

_SIGNALS: Mapping[int, str] = {
    2: "user-interrupt",
    4: "segfault",
    6: "segfault",
    7: "segfault",
    11: "segfault",
}
_EXIT_CODES: Mapping[int, str] = {
    1: "python-exception",
    126: "container-start-error",
    127: "container-start-error",
}

_CAUSES: Mapping[str, tuple[str, str]] = {
    "container-start-error": ("configuration", "no"),
    "evicted": ("resource", "yes"),
    "host-out-of-memory": ("resource", "no"),
    "image-pull-failure": ("configuration", "no"),
    "node-lost": ("infrastructure", "yes"),
    "preempted": ("preemption", "yes"),
    "python-exception": ("user-error", "no"),
    "rendezvous-timeout": ("infrastructure", "yes"),
    "segfault": ("user-error", "once"),
    "time-limit": ("preemption", "no"),
    "unknown": ("infrastructure", "once"),
    "unschedulable": ("resource", "yes"),
    "user-interrupt": ("user-error", "no"),
}
"""Id of the cause -> category, and whether another try can help: yes, once, no."""

_LONGEST_PROOF = 300
_TOLD_CONFIDENCE, _GUESSED_CONFIDENCE = 0.9, 0.3
"""Of a reason that the runtime gives, and of what only an exit code or signal hints at."""


def cause_id(*, reason: str, exit_code: int | None, signal: int | None) -> str:
    """Return the id that reason, signal or exit code stand for, else `unknown`."""
    if reason in CAUSE_IDS:
        return CAUSE_IDS[reason]
    if signal is None and exit_code is not None and exit_code > 128:
        signal = exit_code - 128
    if signal is not None:
        return _SIGNALS.get(signal, "unknown")
    return _EXIT_CODES.get(exit_code or 0, "unknown")


def cause(
    *,
    reason: str,
    message: str,
    at: float | None,
    role: str | None = None,
    index: int | None = None,
    attempt: int | None = None,
    exit_code: int | None = None,
    signal: int | None = None,
) -> dict[str, Any]:
    """Return a cause object as `logs diagnose` prints it, with who failed and how; `at` in epoch seconds."""
    found = cause_id(reason=reason, exit_code=exit_code, signal=signal)
    category, retryable = _CAUSES[found]
    return {
        "id": found,
        "category": category,
        "retryable": retryable,
        "confidence": _TOLD_CONFIDENCE if reason in CAUSE_IDS else _GUESSED_CONFIDENCE,
        "rank": None,
        "file": None,
        "line": None,
        "offset": None,
        "evidence": message or reason,
        "advice": "",
        "role": role,
        "index": index,
        "attempt": attempt,
        "reason": reason,
        "message": message,
        "at": at,
        "exit_code": exit_code,
        "signal": signal,
    }


def proof_of(cause: Mapping[str, Any]) -> str:
    """Return what a log says about a cause, as a line for people; empty where no log told it."""
    if not cause.get("advice"):
        return ""
    sure = f"{100 * cause['confidence']:.0f} % sure"
    return f"{cause['id']} ({cause['category']}, {sure}): {cause['evidence'][:_LONGEST_PROOF]}"


def with_diagnosis(known: Mapping[str, Any], found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a root cause with what the logs say; where both name a cause, the runtime is believed.

    `found`: a cause object of a diagnosis, with the `role`, `index` and `attempt` whose log proves it.
    """
    if found["id"] == "unknown":
        return known
    if known["id"] != found["id"] and known["reason"] in CAUSE_IDS:
        return known
    who = {}
    if found["role"] is not None and (known["role"], known["index"]) != (
        found["role"],
        found["index"],
    ):
        who = dict.fromkeys(("reason", "message", "exit_code", "signal", "at"))
    return {**known, **who, **found}


def cause_of_failure(failure: Failure) -> dict[str, Any]:
    """Return the cause object of one failure."""
    return cause(
        reason=failure.reason or reasons.INSTANCE_FAILED,
        message=failure.message or failure.describe(),
        at=failure.at,
        role=failure.role,
        index=failure.index,
        attempt=failure.attempt,
        exit_code=failure.exit_code,
        signal=failure.signal,
    )


def cause_of_role(
    spec: ResolvedJob,
    roles: Mapping[str, RoleEntry],
    instances: Mapping[InstanceKey, InstanceEntry],
    name: str,
) -> dict[str, Any] | None:
    """Return what made a role fail: its earliest failure, or that of a role it depends on."""
    if not name:
        return None
    for upstream in _explaining_roles(spec, roles, name):
        failed = [
            entry
            for entry in instances.values()
            if entry.role == upstream
            and entry.failure_class is not None
            and entry.final
            and entry.state == "failed"
        ]
        if failed:
            first = min(failed, key=_when)
            return cause(
                reason=first.reason,
                message=first.message,
                at=first.finished_at or first.last_transition_at,
                role=first.role,
                index=first.index,
                attempt=first.attempt,
                exit_code=first.exit_code,
                signal=first.signal,
            )
    entry = roles[name]
    return cause(reason=entry.reason, message=entry.message, at=entry.last_transition_at, role=name)


def _when(entry: InstanceEntry) -> tuple[float, bool, int]:
    """Order failures in time; of two at the same moment, one ended by TERM is the consequence."""
    pulled_down = ended_by_term(signal=entry.signal, exit_code=entry.exit_code)
    return entry.finished_at or entry.last_transition_at, pulled_down, entry.index


def _explaining_roles(spec: ResolvedJob, roles: Mapping[str, RoleEntry], name: str) -> list[str]:
    """Return the role itself, after the failed roles that it waited for, if that is why it failed."""
    if roles[name].reason != reasons.DEPENDENCY_FAILED:
        return [name]
    found: list[str] = []
    for dependency in spec.role(name).depends_on:
        if roles[dependency.role].state == "Failed":
            found += _explaining_roles(spec, roles, dependency.role)
    return [*found, name]
