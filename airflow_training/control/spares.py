"""Warm spares: what holds a place for a role until one of its instances needs it. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass

from airflow_training.control import reasons
from airflow_training.control.attempts import AttemptKey
from airflow_training.control.model import InstanceEntry, Ledger
from airflow_training.control.observations import Observation, Observations
from airflow_training.documents.resolved import ResolvedJob, ResolvedRole

__all__ = ["SpareDemand", "spare_demand"]

_BEGUN = frozenset({"Starting", "Running", "Restarting"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SpareDemand:
    """How many spares a role should have, and for whom some are to give up their places."""

    number: int = 0
    unplaced: Set[AttemptKey] = frozenset()
    """Attempts that find no place: a spare gives up its own for each. Of its own instances, and of roles without spares."""
    may_wait: bool = True
    """False: an instance of the job has no place, with which a spare that waits for one would compete."""


def spare_demand(
    job: ResolvedJob, ledger: Ledger, observations: Observations
) -> Mapping[str, SpareDemand]:
    """Say what each role with `warmSpares` needs now: nothing while it waits, is paused or over."""
    paused = ledger.job.paused_at is not None
    begun = [
        role
        for role in job.roles
        if not paused and role.replicas and ledger.roles[role.name].state in _BEGUN
    ]
    holders = [role.name for role in begun if role.warm_spares]
    current = {each.uid: each for each in observations.instances}
    unplaced: defaultdict[str, set[AttemptKey]] = defaultdict(set)
    may_wait = not any(_begins_soon(role, ledger) for role in job.roles)
    for role in begun if holders else ():
        giver = role.name if role.warm_spares else holders[0]
        for instance in ledger.instances.values():
            seen = current.get(instance.uid) if instance.uid else None
            if instance.role != role.name or instance.final or instance.retired:
                continue
            if _has_place(instance, seen):
                continue
            may_wait = False
            if _finds_none(instance, seen) and _may_use(role, instance.index):
                unplaced[giver].add(instance.attempt_key)
    demand = {role.name: SpareDemand() for role in job.roles if role.warm_spares}
    for role in begun:
        if role.warm_spares:
            found = frozenset(unplaced[role.name])
            demand[role.name] = SpareDemand(
                number=role.warm_spares, unplaced=found, may_wait=may_wait
            )
    return demand


def _begins_soon(role: ResolvedRole, ledger: Ledger) -> bool:
    """Return whether a role waits for others that then go on beside it: its instances will want places."""
    return (
        role.replicas > 0
        and ledger.roles[role.name].state == "Waiting"
        # what begins once another one is over takes that one's places
        and not any(each.status == "Complete" for each in role.depends_on)
    )


def _has_place(instance: InstanceEntry, seen: Observation | None) -> bool:
    """Return whether the attempt that should exist is on a node; what ends gives its place back."""
    return (
        instance.desired and instance.state != "terminating" and seen is not None and seen.scheduled
    )


def _finds_none(instance: InstanceEntry, seen: Observation | None) -> bool:
    """Return whether a scheduler has looked in vain, or a quota is used up: a spare's place, or its share, would do."""
    if seen is None:
        refused = instance.phase.refused_since is not None
        return refused and instance.reason == reasons.QUOTA_EXCEEDED
    return not seen.scheduled and seen.reason == reasons.UNSCHEDULABLE


def _may_use(role: ResolvedRole, index: int) -> bool:
    """Return whether an instance may go where a spare of its role is: those of a role that is partly on spot are there."""
    return not role.warm_spares or role.spot is None or role.is_on_spot(index)
