"""Names of what a run creates, and whether they fit into a DNS label. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_training.errors import Problem

__all__ = ["MAX_LABEL", "check_names", "instance_name", "service_host", "service_name"]

MAX_LABEL = 63
_HASH = "-00000"
"""Stands for `-<hash>` where the run is not known yet: names are checked as long as they get."""


def instance_name(prefix: str, role: str, index: int) -> str:
    """Return the name of an instance: its pod, its host name, its folder on this machine."""
    return f"{prefix}-{role}-{index}"


def service_name(prefix: str, role: str) -> str:
    """Return the name of a role's headless service."""
    return f"{prefix}-{role}"


def service_host(prefix: str, namespace: str, role: str, index: int) -> str:
    """Return the name under which other instances reach this one inside a cluster."""
    return f"{instance_name(prefix, role, index)}.{service_name(prefix, role)}.{namespace}.svc"


def check_names(job: str, roles: Sequence[tuple[str, int]]) -> list[Problem]:
    """Return `name_too_long` for each role (name, most instances ever) whose names do not fit."""
    problems = []
    for position, (role, most) in enumerate(roles):
        longest = instance_name(job + _HASH, role, max(most - 1, 0))
        if len(longest) > MAX_LABEL:
            over = len(longest) - MAX_LABEL
            blame_job = len(job) >= len(role)
            problems.append(
                Problem(
                    code="name_too_long",
                    field="metadata.name" if blame_job else f"spec.roles[{position}].name",
                    value=job if blame_job else role,
                    message=f"makes the name '{longest}' of {len(longest)} characters, at most"
                    f" {MAX_LABEL} fit",
                    hint=f"take {over} character{'s' if over > 1 else ''} away from the name of"
                    " the job or of the role",
                )
            )
    return problems
