"""Which instances go when a role shrinks. Pure: no clock, no I/O, no runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow_training.control.model import InstanceEntry
from airflow_training.control.observations import Observation
from airflow_training.documents.instances import InstanceKey

__all__ = ["choose_victims"]


def choose_victims(
    team: Sequence[InstanceEntry],
    *,
    surplus: int,
    chief: bool = False,
    seen: Mapping[InstanceKey, Observation] | None = None,
) -> list[InstanceEntry]:
    """Return the `surplus` instances to remove, first to go first.

    Failed ones go first, then unscheduled, pending, not ready, then those that ran shortest; ties
    by highest index. What has succeeded goes after all that; index 0 of the chief's role (rank 0)
    goes last of all.

    `seen` tells which of the pending ones are scheduled.
    """

    def scheduled(entry: InstanceEntry) -> bool:
        observation = (seen or {}).get(entry.key)
        return entry.desired and observation is not None and observation.scheduled

    def order(entry: InstanceEntry) -> tuple[bool, int, float, int]:
        keep = chief and entry.index == 0
        rank = _rank(entry, scheduled=scheduled(entry))
        return keep, rank, -(entry.started_at or 0.0), -entry.index

    return sorted(team, key=order)[: max(0, surplus)]


def _rank(entry: InstanceEntry, *, scheduled: bool) -> int:
    if entry.state in ("failed", "stopped"):
        return 0
    if entry.state == "succeeded":
        return 5
    if entry.state == "pending":
        return 2 if scheduled else 1
    return 4 if entry.phase.readiness.ready else 3
