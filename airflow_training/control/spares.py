"""Warm spares: what holds a place for a role until one of its instances needs it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from airflow_training.control import reasons
from airflow_training.control.attempts import AttemptKey
from airflow_training.control.clocks import SCHEDULE, standing_of
from airflow_training.control.model import Ledger
from airflow_training.control.observations import Observations
from airflow_training.documents.resolved import ResolvedJob

__all__ = ["SpareDemand", "spare_demand"]

_BEGUN = frozenset({"Starting", "Running", "Restarting"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SpareDemand:
    """How many spares a role should have, and for whom some are to give up their places."""

    number: int = 0
    unplaced: Set[AttemptKey] = frozenset()
    """Attempts of its instances that find no place: a spare gives up its own for each."""
    may_wait: bool = True
    """False: an instance has no place yet, with which a spare that waits for one would compete."""


def spare_demand(
    job: ResolvedJob, ledger: Ledger, observations: Observations
) -> Mapping[str, SpareDemand]:
    """Say what each role with `warmSpares` needs now: nothing while it waits, is paused or over."""
    current = {each.uid: each for each in observations.instances}
    found = {}
    for role in job.roles:
        if not role.warm_spares:
            continue
        entry = ledger.roles[role.name]
        if ledger.job.paused_at is not None or entry.state not in _BEGUN:
            found[role.name] = SpareDemand()
            continue
        unplaced, may_wait = set(), True
        for instance in ledger.instances.values():
            seen = current.get(instance.uid) if instance.uid else None
            standing = standing_of(instance, seen, job_state=ledger.job.state)
            if instance.role != role.name or standing not in SCHEDULE.counts:
                continue
            may_wait = False
            # before a scheduler has looked it may still find one
            if seen is not None and seen.reason == reasons.UNSCHEDULABLE:
                unplaced.add(instance.attempt_key)
        found[role.name] = SpareDemand(
            number=role.warm_spares, unplaced=frozenset(unplaced), may_wait=may_wait
        )
    return found
