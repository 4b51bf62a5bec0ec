"""What the reasons say that our agent gives, on whichever runtime it runs, and those of control."""

from __future__ import annotations

from airflow_training.control.reason_facts import OWN_REASONS, ReasonFacts, Reasons

__all__ = ["AGENT_REASONS"]

AGENT_REASONS: Reasons = {
    **OWN_REASONS,
    "StartError": ReasonFacts("user", "container", "container-start-error"),
    "CommandNotFound": ReasonFacts("user", "container", "container-start-error"),
    "RestoreFailed": ReasonFacts("infrastructure", "container"),
    "CodeFailed": ReasonFacts("infrastructure", "container"),
    "CodeDamaged": ReasonFacts("user", "container", another_try="never"),
    "EnvironmentFailed": ReasonFacts("infrastructure", "container"),
    "EnvironmentRefused": ReasonFacts("user", "container", another_try="never"),
    "PackagesFailed": ReasonFacts("user", "container", another_try="never"),
    # somebody deleted it: how it took that says nothing about the script
    "Deleted": ReasonFacts("infrastructure", "pod", "instance-deleted"),
    "AgentLost": ReasonFacts("infrastructure", "pod"),
}
