"""What the reasons say that pods, their containers and their conditions carry."""

from __future__ import annotations

import re
from collections.abc import Mapping

from airflow_training.control.reason_facts import NODE_LOST, AnotherTry, ReasonFacts, Reasons
from airflow_training.runtimes.agent_reasons import AGENT_REASONS

__all__ = ["REASONS", "is_final"]

_OF_REGISTRIES: Mapping[re.Pattern[str], AnotherTry] = {
    # the architecture of another node, a limit that is counted again, a registry or name server that is away
    re.compile(
        r"(?i:no match(?:ing manifest)? for (?:platform|\S+/)|too ?many ?requests|rate limit|time(?:d )?-?out"
        r"|deadline exceeded|no such host|connection (?:refused|reset))|\b(?:429|5\d\d) [A-Z]"
    ): "perhaps",
    re.compile(
        r"(?i)not found|\bnotfound\b|manifest unknown|name unknown|does not exist|unauthorized|denied"
        r"|403 forbidden|no basic auth credentials"
    ): "never",
}
"""What registries say of an image, in words that container runtimes pass on."""


def _image() -> ReasonFacts:
    return ReasonFacts("user", "node", "image-pull-failure", "perhaps", _OF_REGISTRIES)


REASONS: Reasons = {
    **AGENT_REASONS,
    # memory, disk, capacity
    "Evicted": ReasonFacts("resource", "node", "evicted"),
    "OutOfcpu": ReasonFacts("resource", "node", "unschedulable"),
    "OutOfmemory": ReasonFacts("resource", "node", "unschedulable"),
    "OutOfpods": ReasonFacts("resource", "node", "unschedulable"),
    "OutOfephemeral-storage": ReasonFacts("resource", "node"),
    # somebody more important, or the platform, wanted the place
    "Preempted": ReasonFacts("preemption", "pod", "preempted"),
    "Preempting": ReasonFacts("preemption", "pod", "preempted"),
    "PreemptionByScheduler": ReasonFacts("preemption", "pod", "preempted"),
    "DisruptionTarget": ReasonFacts("preemption", "pod", "preempted"),
    "DeletionByTaintManager": ReasonFacts("preemption", "node", "preempted"),
    "EvictionByEvictionAPI": ReasonFacts("preemption", "pod", "preempted"),
    "TerminationByKubelet": ReasonFacts("preemption", "node", "preempted"),
    # the place itself was lost or unfit
    "NodeLost": ReasonFacts("infrastructure", "node", NODE_LOST),
    "NodeShutdown": ReasonFacts("infrastructure", "node", NODE_LOST),
    "Shutdown": ReasonFacts("infrastructure", "node", NODE_LOST),
    "Terminated": ReasonFacts("infrastructure", "pod"),
    "NodeAffinity": ReasonFacts("infrastructure", "node"),
    "UnexpectedAdmissionError": ReasonFacts("infrastructure", "node"),
    "DeletionByPodGC": ReasonFacts("infrastructure", "pod", NODE_LOST),
    "ContainerStatusUnknown": ReasonFacts("infrastructure", "pod", NODE_LOST),
    # what the job asked for cannot be started
    "ErrImagePull": _image(),
    "ImagePullBackOff": _image(),
    "RegistryUnavailable": _image(),
    "ImageInspectError": ReasonFacts("user", "node", "image-pull-failure", "perhaps"),
    "SignatureValidationFailed": ReasonFacts("user", "pod", "image-pull-failure", "never"),
    "ErrImageNeverPull": ReasonFacts("user", "node", "image-pull-failure", "perhaps"),
    "InvalidImageName": ReasonFacts("user", "pod", "image-pull-failure", "never"),
    "CreateContainerConfigError": ReasonFacts("user", "pod", "container-start-error", "perhaps"),
    "CreateContainerError": ReasonFacts("user", "node", "container-start-error", "perhaps"),
    "RunContainerError": ReasonFacts("user", "node", "container-start-error", "perhaps"),
    "ContainerCannotRun": ReasonFacts("user", "node", "container-start-error", "perhaps"),
    "PodNotReadyToStart": ReasonFacts("infrastructure", "node", another_try="perhaps"),
    "ContainerCreating": ReasonFacts("infrastructure", "node", another_try="perhaps"),
    "AgentNeedsPython": ReasonFacts("user", "pod", "container-start-error", "never"),
}


def is_final(reason: str, message: str) -> bool:
    """Return whether a container that waits with this will never start, whoever tries."""
    return reason in REASONS and REASONS[reason].answer(message) == "never"
