"""What the reasons say that Slurm ends an allocation with."""

from __future__ import annotations

from airflow_training.control.reason_facts import NODE_LOST, ReasonFacts, Reasons
from airflow_training.runtimes.agent_reasons import AGENT_REASONS

__all__ = ["REASONS"]

REASONS: Reasons = {
    **AGENT_REASONS,
    # no cause: that of a time limit says that another try cannot help, and here it goes on from its checkpoint
    "SlurmTimeLimit": ReasonFacts("preemption", "pod"),
    "SlurmPreempted": ReasonFacts("preemption", "pod", "preempted"),
    "SlurmNodeFail": ReasonFacts("infrastructure", "node", NODE_LOST),
    "SlurmLaunchFailed": ReasonFacts("infrastructure", "node"),
    # by an administrator or the user: how the script took that says nothing about it
    "SlurmCancelled": ReasonFacts("infrastructure", "pod", "instance-deleted"),
    # somebody has signalled a step, and its allocation goes on
    "Terminated": ReasonFacts("infrastructure", "pod"),
    "SlurmJobLost": ReasonFacts("infrastructure", "pod"),
    "SlurmStepFailed": ReasonFacts("infrastructure", "node"),
}
