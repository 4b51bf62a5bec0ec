"""What the reasons say that pods, their containers and their conditions carry."""

from __future__ import annotations

from airflow_training.control.reason_facts import ReasonFacts, Reasons
from airflow_training.runtimes.agent_reasons import AGENT_REASONS

__all__ = ["REASONS"]

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
    "NodeLost": ReasonFacts("infrastructure", "node", "node-lost"),
    "NodeShutdown": ReasonFacts("infrastructure", "node", "node-lost"),
    "Shutdown": ReasonFacts("infrastructure", "node", "node-lost"),
    "Terminated": ReasonFacts("infrastructure", "pod"),
    "NodeAffinity": ReasonFacts("infrastructure", "node"),
    "UnexpectedAdmissionError": ReasonFacts("infrastructure", "node"),
    "DeletionByPodGC": ReasonFacts("infrastructure", "pod", "node-lost"),
    "ContainerStatusUnknown": ReasonFacts("infrastructure", "pod"),
    # what the job asked for cannot be started
    "ErrImagePull": ReasonFacts("user", "pod", "image-pull-failure"),
    "ImagePullBackOff": ReasonFacts("user", "pod", "image-pull-failure"),
    "ErrImageNeverPull": ReasonFacts("user", "pod", "image-pull-failure"),
    "InvalidImageName": ReasonFacts("user", "pod", "image-pull-failure", hopeless=True),
    "CreateContainerConfigError": ReasonFacts("user", "pod", "container-start-error"),
    "CreateContainerError": ReasonFacts("user", "pod", "container-start-error"),
    "RunContainerError": ReasonFacts("user", "pod", "container-start-error"),
    "ContainerCannotRun": ReasonFacts("user", "pod", "container-start-error"),
    "AgentNeedsPython": ReasonFacts("user", "pod", "container-start-error", hopeless=True),
}
