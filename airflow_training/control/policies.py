"""When a role or the job has succeeded, failed, or can no longer succeed. Counts in, verdict out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from airflow_training.control import reasons
from airflow_training.control.model import RoleState
from airflow_training.documents.resolved import ResolvedJob, ResolvedRole, Threshold
from airflow_training.documents.text import counted

__all__ = [
    "JobVerdict",
    "RoleVerdict",
    "job_verdict",
    "required_count",
    "role_verdict",
    "success_targets",
]

_TERMINAL_ROLE = frozenset({"Succeeded", "Failed", "Stopped"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleVerdict:
    state: Literal["Succeeded", "Failed"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobVerdict:
    state: Literal["Succeeded", "Failed"]
    reason: str
    message: str
    role: str = ""
    """The role that decided it, where one did."""


def required_count(threshold: Threshold, replicas: int) -> int:
    """Return how many of `replicas` instances a threshold means, at least 1, at most all."""
    if threshold == "All":
        count = replicas
    elif threshold == "Any":
        count = 1
    elif isinstance(threshold, str):
        count = math.ceil(replicas * float(threshold.rstrip("%")) / 100)
    else:
        count = threshold
    return max(1, min(count, replicas))


def role_verdict(
    role: ResolvedRole, *, replicas: int, succeeded: int, failed: int
) -> RoleVerdict | None:
    """Return the end of a role; None while it goes on.

    `succeeded` and `failed`: instances that are final. Failure is looked at first.
    """
    if replicas == 0:
        return RoleVerdict(
            state="Succeeded", reason=reasons.COMPLETED, message="the role has no instances"
        )
    to_fail = required_count(role.min_failed, replicas)
    to_succeed = required_count(role.min_succeeded, replicas)
    if failed >= to_fail:
        return RoleVerdict(
            state="Failed",
            reason=reasons.INSTANCE_FAILED,
            message=f"{failed} of {counted(replicas, 'instance')} failed for good, minFailed is {to_fail}",
        )
    if succeeded >= to_succeed:
        return RoleVerdict(
            state="Succeeded",
            reason=reasons.COMPLETED,
            message=f"{succeeded} of {counted(replicas, 'instance')} succeeded, {to_succeed} needed",
        )
    if succeeded + failed >= replicas:
        return RoleVerdict(
            state="Failed",
            reason=reasons.SUCCESS_UNREACHABLE,
            message=f"only {succeeded} of {counted(replicas, 'instance')} succeeded, {to_succeed} needed,"
            " and none is left to run",
        )
    return None


def success_targets(job: ResolvedJob) -> Sequence[str]:
    """Return the roles whose success decides: those named, else the tracked ones, else all."""
    named = job.success_policy.target_roles
    tracked = [role.name for role in job.roles if role.tracked]
    return named or tracked or [role.name for role in job.roles]


def job_verdict(job: ResolvedJob, states: Mapping[str, RoleState]) -> JobVerdict | None:
    """Return the end of the job from the states of its roles; None while it goes on."""
    watched = job.failure_policy.target_roles or [role.name for role in job.roles]
    failed = [name for name in watched if states[name] == "Failed"]
    if failed and (job.failure_policy.operator == "Any" or len(failed) == len(watched)):
        return JobVerdict(
            state="Failed",
            reason=reasons.ROLE_FAILED,
            message=f"role {failed[0]} failed",
            role=failed[0],
        )
    targets = success_targets(job)
    succeeded = [name for name in targets if states[name] == "Succeeded"]
    any_is_enough = job.success_policy.operator == "Any"
    if len(succeeded) == len(targets) or (succeeded and any_is_enough):
        return JobVerdict(
            state="Succeeded",
            reason=reasons.COMPLETED,
            message="succeeded: " + ", ".join(succeeded),
        )
    lost = [name for name in targets if states[name] in ("Failed", "Stopped")]
    out_of_reach = len(lost) == len(targets) if any_is_enough else bool(lost)
    if out_of_reach and not _may_continue(job, targets, states):
        return JobVerdict(
            state="Failed",
            reason=reasons.SUCCESS_UNREACHABLE,
            message="the job cannot succeed without " + ", ".join(lost) + " and nothing else runs",
            role=lost[0],
        )
    return None


def _may_continue(
    job: ResolvedJob, targets: Sequence[str], states: Mapping[str, RoleState]
) -> bool:
    """Return whether a role that counts has not ended; untracked ones may run for ever."""
    return any(
        states[role.name] not in _TERMINAL_ROLE
        for role in job.roles
        if role.tracked or role.name in targets
    )
