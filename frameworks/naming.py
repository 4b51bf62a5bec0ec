"""Names of what a run creates, valid on every server, and whether they fit into a DNS label. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from airflow_training.errors import Problem

__all__ = [
    "MAX_LABEL",
    "check_names",
    "fit_label",
    "instance_name",
    "service_host",
    "service_name",
]

MAX_LABEL = 63
_HASH = "-00000"
"""Stands for `-<hash>` where the run is not known yet: names are checked as long as they get."""
_DIGEST = 10
"""Hex digits that make a shortened name another one than every other."""


def fit_label(name: str, end: str = "") -> str:
    """Return a name and its end; what is too long for a DNS label is cut, and keeps its digest."""
    room = MAX_LABEL - len(end)
    if len(name) <= room:
        return name + end
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]
    return f"{name[: room - _DIGEST - 1].rstrip('-')}-{digest}{end}"


def instance_name(prefix: str, role: str, index: int) -> str:
    """Return the name of an instance: its pod, its host name, its folder on this machine.

    It can be too long only where `scale` asks for more instances than the document does.
    """
    return fit_label(f"{prefix}-{role}", f"-{index}")


def service_name(prefix: str, role: str) -> str:
    """Return the name of a role's headless service: a DNS-1035 label, which begins with a letter.

    Newer servers take a digit, older ones do not.
    """
    name = f"{prefix}-{role}"
    return fit_label(name if name[:1].isalpha() else f"s-{name}")


def service_host(prefix: str, namespace: str, role: str, index: int) -> str:
    """Return the name under which other instances reach this one inside a cluster."""
    return f"{instance_name(prefix, role, index)}.{service_name(prefix, role)}.{namespace}.svc"


def check_names(job: str, roles: Sequence[tuple[str, int]]) -> list[Problem]:
    """Return `name_too_long` for each role (name, most instances ever) whose names do not fit."""
    problems = []
    for position, (role, most) in enumerate(roles):
        longest = f"{job}{_HASH}-{role}-{max(most - 1, 0)}"
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
