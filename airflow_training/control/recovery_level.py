"""What has to be made anew after a failure: the process, its container, the pod, on another node. Pure.

One published table, `LEVELS_OF`, by the class of the failure and the condition of the environment; and
no less than what a reason says that is already gone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from airflow_training.control.environment import Condition, EnvironmentState
from airflow_training.control.reason_facts import LEVELS, Level, ReasonFacts
from airflow_training.documents.resolved import FailureClass

__all__ = ["LEVELS_OF", "RecoveryChoice", "recovery_level"]

_UNCLEAR: Mapping[Condition, Level] = {
    "healthy": "process",
    "strained": "pod",
    "outOfMemory": "container",
    "diskFull": "node",
    "deviceLost": "node",
    "unknown": "pod",
}
LEVELS_OF: Mapping[FailureClass, Mapping[Condition, Level]] = {
    "user": {
        "healthy": "process",
        "strained": "process",
        "outOfMemory": "container",
        "diskFull": "pod",
        "deviceLost": "node",
        "unknown": "container",
    },
    "infrastructure": _UNCLEAR,
    "preemption": {
        "healthy": "pod",
        "strained": "pod",
        "outOfMemory": "pod",
        "diskFull": "node",
        "deviceLost": "node",
        "unknown": "pod",
    },
    "resource": {
        "healthy": "container",
        "strained": "node",
        "outOfMemory": "container",
        "diskFull": "node",
        "deviceLost": "node",
        "unknown": "pod",
    },
    "unknown": _UNCLEAR,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryChoice:
    """How much is made anew, and what for."""

    level: Level
    why: str


def recovery_level(
    failure_class: FailureClass,
    reason: str,
    known: ReasonFacts | None,
    environment: EnvironmentState | None,
    capabilities: Collection[Level],
) -> RecoveryChoice:
    """Return the cheapest of `capabilities` that is enough; the whole job where none is.

    `reason`: of the failed instance; `known`: what it says. `environment`: at its end; None: nothing was recorded.
    """
    condition: Condition = "unknown" if environment is None else environment.condition
    wanted = LEVELS_OF[failure_class][condition]
    why = f"class {failure_class}, environment {condition}"
    if environment is not None and environment.why:
        why += f" ({environment.why})"
    least: Level = "process" if known is None else known.level
    if LEVELS.index(least) > LEVELS.index(wanted):
        wanted, why = least, f"{why}; {reason} needs at least a new {least}"
    for level in LEVELS[LEVELS.index(wanted) :]:
        if level in capabilities:
            if level != wanted:
                why += f"; a new {wanted} alone is not possible here"
            return RecoveryChoice(level=level, why=why)
    return RecoveryChoice(level="job", why=f"{why}; a new {wanted} alone is not possible here")
