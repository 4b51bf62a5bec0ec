"""What a failure is: its class, the rule that matches it, and what its exit code says. Pure.

The class comes from the pod reason and disruption first, then from the signal, then from the
exit code. Whether there is another try is decided in `restarts`, not here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from airflow_training.control import reasons
from airflow_training.control.environment import EnvironmentState
from airflow_training.control.model import Diagnosed
from airflow_training.frameworks.exit_codes import TABLES
from airflow_training.spec.resolved import ExitCodeTable, FailureClass, FailureRule

__all__ = [
    "REASON_CLASSES",
    "SIGNAL_CLASSES",
    "Failure",
    "classify",
    "ended_by_term",
    "exit_code_says",
    "matching_rule",
    "rule_matches",
]

REASON_CLASSES: Mapping[str, FailureClass] = {
    # memory, disk, capacity
    "OOMKilled": "resource",
    "Evicted": "resource",
    "OutOfcpu": "resource",
    "OutOfmemory": "resource",
    "OutOfpods": "resource",
    "OutOfephemeral-storage": "resource",
    reasons.UNSCHEDULABLE: "resource",
    # somebody more important, or the platform, wanted the place
    "Preempted": "preemption",
    "Preempting": "preemption",
    "PreemptionByScheduler": "preemption",
    "DisruptionTarget": "preemption",
    "DeletionByTaintManager": "preemption",
    "EvictionByEvictionAPI": "preemption",
    "TerminationByKubelet": "preemption",
    # the place itself was lost or unfit
    "NodeLost": "infrastructure",
    "NodeShutdown": "infrastructure",
    "Shutdown": "infrastructure",
    "Terminated": "infrastructure",
    "NodeAffinity": "infrastructure",
    "UnexpectedAdmissionError": "infrastructure",
    "DeletionByPodGC": "infrastructure",
    "ContainerStatusUnknown": "infrastructure",
    "CreateFailed": "infrastructure",
    "AgentLost": "infrastructure",
    reasons.VANISHED: "infrastructure",
    reasons.UNKNOWN_TOO_LONG: "infrastructure",
    reasons.HANG: "infrastructure",
    # what the job asked for cannot be started
    "ErrImagePull": "user",
    "ImagePullBackOff": "user",
    "ErrImageNeverPull": "user",
    "InvalidImageName": "user",
    "CreateContainerConfigError": "user",
    "CreateContainerError": "user",
    "RunContainerError": "user",
    "ContainerCannotRun": "user",
    "StartError": "user",
    "CommandNotFound": "user",
    "AgentNeedsPython": "user",
    reasons.CHECKPOINT_REFUSED: "user",
    "RestoreFailed": "infrastructure",
    # somebody deleted it: how it took that says nothing about the script
    "Deleted": "infrastructure",
}
"""Reasons that say more than signal or exit code; any other reason (`Error`) says nothing."""

SIGNAL_CLASSES: Mapping[int, FailureClass] = {
    1: "infrastructure",  # HUP: the other end of the session went away
    2: "user",  # INT: a person
    3: "user",
    4: "user",
    6: "user",
    7: "user",
    8: "user",
    9: "infrastructure",  # KILL from outside; the OOM killer has a reason of its own
    10: "user",
    11: "user",
    12: "user",
    15: "infrastructure",  # TERM that we did not ask for
}

_RETRYABLE_CLASSES = frozenset({"infrastructure", "preemption", "resource", "unknown"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One attempt of one instance that ended badly."""

    role: str
    index: int
    attempt: int
    at: float
    """When it happened as far as known, epoch seconds."""
    reason: str = ""
    message: str = ""
    exit_code: int | None = None
    signal: int | None = None
    failure_class: FailureClass = "unknown"
    node: str = ""
    environment: EnvironmentState | None = None
    """What the instance had around it then; None: nothing was recorded."""
    diagnosed: Diagnosed | None = None
    """What its log says, where that is known in time."""

    def describe(self) -> str:
        """Return `exit code 1`, `signal 9 (OOMKilled)`, ... for people."""
        if self.signal is not None:
            what = f"signal {self.signal}"
        elif self.exit_code is not None:
            what = f"exit code {self.exit_code}"
        else:
            return self.reason or "no exit code"
        why = [self.reason] if self.reason not in ("", "Error") else []
        if self.diagnosed is not None:
            why.append(self.diagnosed.cause["id"])
        return f"{what} ({', '.join(why)})" if why else what


def classify(
    *, reason: str, disrupted: bool, signal: int | None, exit_code: int | None
) -> FailureClass:
    """Return the class a failure is charged to."""
    told = REASON_CLASSES.get(reason)
    if (
        told == "resource"
    ):  # whoever ended it, a draining node or its kubelet: it would happen again
        return told
    if disrupted:
        return "preemption"
    if told is not None:
        return told
    if signal is None and exit_code is not None and 128 < exit_code <= 128 + 64:
        signal = exit_code - 128  # shells report the signal of their child this way
    if signal is not None:
        return SIGNAL_CLASSES.get(signal, "unknown")
    if exit_code is not None and 0 < exit_code <= 128:
        return "user"
    return "unknown"


def ended_by_term(*, signal: int | None, exit_code: int | None) -> bool:
    """Return whether something was told to end, so that it hardly was the first to fail."""
    return signal == 15 or exit_code == 143


def exit_code_says(table: ExitCodeTable, failure: Failure) -> Literal["retryable", "permanent"]:
    """Return what `restartPolicy: ExitCode` makes of a failure.

    A reason that names the platform's fault comes before the exit code it left behind; a code in
    neither list falls to the failure's class, of which only `user` is permanent.
    """
    named = TABLES.get(table.name)
    if named is not None and not table.retryable and not table.permanent:
        table = named
    code = failure.exit_code
    if code is None and failure.signal is not None:
        code = 128 + failure.signal
    if failure.reason in REASON_CLASSES or failure.failure_class == "preemption":
        code = None
    if code in table.retryable:
        return "retryable"
    if code in table.permanent:
        return "permanent"
    return "retryable" if failure.failure_class in _RETRYABLE_CLASSES else "permanent"


def matching_rule(rules: tuple[FailureRule, ...], failure: Failure) -> FailureRule | None:
    """Return the first rule that matches, before `restartPolicy` is asked."""
    return next((rule for rule in rules if rule_matches(rule, failure)), None)


def rule_matches(rule: FailureRule, failure: Failure) -> bool:
    """Return whether every criterion that the rule gives holds; one without criteria matches all."""
    if rule.target_roles and failure.role not in rule.target_roles:
        return False
    if rule.on_classes and failure.failure_class not in rule.on_classes:
        return False
    if rule.on_reasons and failure.reason not in rule.on_reasons:
        return False
    if rule.on_exit_codes and not _code_matches(rule, failure):
        return False
    return not rule.on_message_pattern or bool(
        _pattern(rule.on_message_pattern).search(failure.message)
    )


def _code_matches(rule: FailureRule, failure: Failure) -> bool:
    code = failure.exit_code
    if code is None and failure.signal is not None:
        code = 128 + failure.signal
    if code is None:  # vanished, never started: no list of codes says anything about it
        return False
    return (code in rule.on_exit_codes) == (rule.exit_code_operator == "In")


@lru_cache(maxsize=256)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)
