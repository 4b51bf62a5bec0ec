"""Roles and sizes of roles that somebody typed, checked against a run's job."""

from __future__ import annotations

from collections.abc import Collection

from airflow_training.documents.resolved import ResolvedJob
from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import InputError

__all__ = ["check_replicas", "check_role"]


def check_role(name: str, known: Collection[str]) -> None:
    """Raise InputError (`unknown_role`) unless a run has this role."""
    if name in known:
        return
    raise InputError.of(
        code="unknown_role",
        field="--role",
        value=name,
        message=f"no role is called {name!r}",
        allowed=sorted(known),
        hint=did_you_mean(name, known),
    )


def check_replicas(job: ResolvedJob, role: str, replicas: int, *, most: int) -> None:
    """Raise InputError unless a role of the job may get this size. `most`: of all settings."""
    check_role(role, [each.name for each in job.roles])
    found = job.role(role)
    low, high = found.min_replicas, found.max_replicas
    if (low is not None and replicas < low) or (high is not None and replicas > high):
        upper = high if high is not None else "any"
        raise _out_of_range(f"role {role!r} runs with {low or 0} to {upper} instances", replicas)
    if replicas > most:
        raise _out_of_range(
            f"{replicas} are more than [training] max_replicas, which is {most}", replicas
        )


def _out_of_range(message: str, replicas: int) -> InputError:
    return InputError.of(code="out_of_range", field="--replicas", message=message, value=replicas)
