"""What has to be made anew after a failure: the process, its container, the pod, on another node. Pure.

Two published tables and nothing else: `LEVELS_OF` by the class of the failure and the condition of
the environment, and `AT_LEAST` by reasons that already say what is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from airflow_training.control import reasons
from airflow_training.control.environment import Condition, EnvironmentState
from airflow_training.spec.resolved import FailureClass

__all__ = ["AT_LEAST", "LEVELS", "LEVELS_OF", "Level", "Recovery", "recovery_level"]

Level = Literal["process", "container", "pod", "node", "job"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""The cheapest first."""

LEVELS_OF: Mapping[FailureClass, Mapping[Condition, Level]] = {
    "user": {
        "healthy": "process",
        "strained": "process",
        "outOfMemory": "container",
        "diskFull": "pod",
        "deviceLost": "node",
        "unknown": "container",
    },
    "infrastructure": {
        "healthy": "process",
        "strained": "pod",
        "outOfMemory": "container",
        "diskFull": "node",
        "deviceLost": "node",
        "unknown": "pod",
    },
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
    "unknown": {
        "healthy": "process",
        "strained": "pod",
        "outOfMemory": "container",
        "diskFull": "node",
        "deviceLost": "node",
        "unknown": "pod",
    },
}

AT_LEAST: Mapping[str, Level] = {
    reasons.HANG: "process",
    # the container is over, or never came to be
    "OOMKilled": "container",
    "StartError": "container",
    "CommandNotFound": "container",
    "CheckpointRefused": "container",
    "RestoreFailed": "container",
    reasons.STORE_NOT_READY: "container",
    # the pod is gone, or cannot become anything
    "AgentNeedsPython": "pod",
    "ContainerCannotRun": "pod",
    "CreateContainerConfigError": "pod",
    "CreateContainerError": "pod",
    "ErrImageNeverPull": "pod",
    "ErrImagePull": "pod",
    "ImagePullBackOff": "pod",
    "InvalidImageName": "pod",
    "RunContainerError": "pod",
    "Terminated": "pod",
    "Unschedulable": "pod",
    "Preempted": "pod",
    "Preempting": "pod",
    "PreemptionByScheduler": "pod",
    "DisruptionTarget": "pod",
    "EvictionByEvictionAPI": "pod",
    "DeletionByPodGC": "pod",
    "Deleted": "pod",
    "CreateFailed": "pod",
    "AgentLost": "pod",
    "ContainerStatusUnknown": "pod",
    reasons.VANISHED: "pod",
    # the node does not want it, or is not there
    "Evicted": "node",
    "NodeAffinity": "node",
    "NodeLost": "node",
    "NodeShutdown": "node",
    "OutOfcpu": "node",
    "OutOfephemeral-storage": "node",
    "OutOfmemory": "node",
    "OutOfpods": "node",
    "Shutdown": "node",
    "TerminationByKubelet": "node",
    "DeletionByTaintManager": "node",
    "UnexpectedAdmissionError": "node",
    reasons.UNKNOWN_TOO_LONG: "node",
    # the agent looked, and found it unfit
    reasons.ENVIRONMENT_NOT_READY: "node",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """How much is made anew, and what for."""

    level: Level
    why: str


def recovery_level(
    failure_class: FailureClass,
    reason: str,
    environment: EnvironmentState | None,
    capabilities: Collection[Level],
) -> Recovery:
    """Return the cheapest of `capabilities` that is enough; the whole job where none is.

    `reason`: of the failed instance. `environment`: at its end; None: nothing was recorded.
    """
    condition: Condition = "unknown" if environment is None else environment.condition
    wanted = LEVELS_OF[failure_class][condition]
    why = f"class {failure_class}, environment {condition}"
    if environment is not None and environment.why:
        why += f" ({environment.why})"
    least = AT_LEAST.get(reason, "process")
    if LEVELS.index(least) > LEVELS.index(wanted):
        wanted, why = least, f"{why}; {reason} needs at least a new {least}"
    for level in LEVELS[LEVELS.index(wanted) :]:
        if level in capabilities:
            if level != wanted:
                why += f"; a new {wanted} alone is not possible here"
            return Recovery(level=level, why=why)
    return Recovery(level="job", why=f"{why}; a new {wanted} alone is not possible here")
