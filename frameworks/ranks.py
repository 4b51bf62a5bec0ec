"""Which role comes first, who is rank 0, and the number of every instance. Pure.

Ranks are dense over the instances that take part; every instance, ranked or not, has a number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_training.documents.resolved import ResolvedJob

__all__ = ["Numbering", "chief_role", "data_files", "number", "ranked_roles"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbering:
    """Where one instance stands among the others."""

    rank: int | None
    """Among the ranked instances; None for a role without ranks."""
    world_size: int
    """How many instances are ranked."""
    number: int
    """Among all instances, the ranked ones first: TRAINING_RANK."""
    instances: int
    """How many instances there are: TRAINING_WORLD_SIZE."""


def chief_role(job: ResolvedJob, replicas: Mapping[str, int] | None = None) -> str:
    """Return the role whose index 0 decides the result.

    The one the framework says, else the first ranked role that has instances.
    """
    wanted = _replicas(job, replicas)
    for role in job.roles:
        if role.chief and wanted[role.name]:
            return role.name
    for role in job.roles:
        if role.rank_offset is not None and wanted[role.name]:
            return role.name
    return job.roles[0].name


def ranked_roles(job: ResolvedJob) -> Sequence[str]:
    """Return the roles that take ranks, in the order of ranks."""
    return [role.name for role in job.roles if role.rank_offset is not None]


def number(
    job: ResolvedJob, role: str, index: int, *, replicas: Mapping[str, int] | None = None
) -> Numbering:
    """Return where an instance stands; `replicas` are the sizes of now, after scaling."""
    wanted = _replicas(job, replicas)
    ranked = ranked_roles(job)
    unranked = [each.name for each in job.roles if each.name not in ranked]
    world_size = sum(wanted[name] for name in ranked)
    before = 0
    for name in (*ranked, *unranked):
        if name == role:
            break
        before += wanted[name]
    return Numbering(
        rank=before + index if role in ranked else None,
        world_size=world_size,
        number=before + index,
        instances=sum(wanted.values()),
    )


def data_files(
    job: ResolvedJob, role: str, index: int, *, replicas: Mapping[str, int] | None = None
) -> list[str]:
    """Return the data files of an instance: its own part under `shard: byInstance`, else all.

    An instance without a rank trains on nothing, so under `byInstance` it gets nothing.
    """
    files = list(job.data.files)
    if not job.data.by_instance:
        return files
    place = number(job, role, index, replicas=replicas)
    return files[place.rank :: place.world_size] if place.rank is not None else []


def _replicas(job: ResolvedJob, replicas: Mapping[str, int] | None) -> dict[str, int]:
    now = replicas or {}
    return {role.name: now.get(role.name, role.replicas) for role in job.roles}
