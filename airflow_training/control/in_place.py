"""Attempts that begin inside the instance of the attempt before: which do, and until when that is tried.

Only where nothing but the process has to be made anew. Then the old instance stays: what runs in it
is ended, and once the next attempt may begin (backoff, order of the roles, nothing old alive), its
process is started there. Whatever does not come about in time becomes an attempt in a new instance,
as any other: it was counted already.
"""

from __future__ import annotations

from typing import Any

from airflow_training.control import reasons
from airflow_training.control.draft import Draft
from airflow_training.control.ending import parting
from airflow_training.control.environment import environment_state, read_records
from airflow_training.control.model import Dismiss, InstanceEntry, Observation, StopProcess
from airflow_training.control.recovery import save_grace
from airflow_training.control.recovery_level import LEVELS, Level, recovery_level
from airflow_training.control.turnover import ENDED
from airflow_training.spec.resolved import ResolvedJob, ResolvedRole

__all__ = [
    "ANSWER_SECONDS",
    "follow",
    "order_waiting",
    "place_of",
    "place_of_survivor",
    "wait_seconds",
]

ANSWER_SECONDS = 30.0
"""How long after an order its effect may take to be seen: a kubelet may be slow to pass it on."""
_MARGIN_SECONDS = 60.0
"""How much longer than the longest backoff an instance waits: a controller may be starting again."""


def wait_seconds(job: ResolvedJob, role: ResolvedRole) -> float:
    """Return how long an instance waits after a failure for the next attempt; 0: none will come."""
    if role.restart_policy == "Never" and not job.failure_policy.rules:
        return 0.0
    return job.restart.backoff_max_seconds + _MARGIN_SECONDS


# where the next attempt begins -----------------------------------------------------------------------
def place_of(draft: Draft, entry: InstanceEntry, level: Level) -> dict[str, Any]:
    """Return the fields of the next attempt's entry that say where it begins. `level`: what it needs."""
    seen = draft.objects.get(entry.uid) if entry.uid else None
    if seen is None or level != "process" or not seen.in_place:
        return {}
    if entry.joining:  # the others go on without it, and what it has is for others meanwhile
        return {}
    if seen.state == "failed":
        return {"stays": seen.uid}
    if seen.state == "running":
        grace = save_grace(draft.spec, draft.job, entry.role)
        return {"stays": seen.uid, "stays_until": draft.now + grace + ANSWER_SECONDS}
    return {}


def place_of_survivor(draft: Draft, entry: InstanceEntry) -> dict[str, Any]:
    """Return the same for an instance that only restarts together with one that failed."""
    seen = draft.objects.get(entry.uid) if entry.uid else None
    if seen is None or not seen.in_place:
        return {}
    around = environment_state(read_records(seen.environment), at=seen.finished_at or draft.now)
    needs = recovery_level("infrastructure", seen.reason, around, LEVELS)
    return place_of(draft, entry, needs.level)


# what becomes of it ----------------------------------------------------------------------------------
def follow(draft: Draft) -> None:
    """Go on with the instances that stay, and give up what has become impossible or takes too long."""
    for entry in list(draft.instances.values()):
        if not entry.stays:
            continue
        old = draft.objects.get(entry.stays)
        if old is None or entry.uid:  # it is gone, or the attempt has begun
            draft.change(entry, stays="", stays_until=None)
            if old is not None:
                draft.doom(old)
            continue
        problem = _problem(draft, entry, old)
        if problem:
            draft.tell(reasons.NOT_IN_PLACE, problem, of=entry, level="warning")
            draft.change(entry, stays="", stays_until=None)
            draft.doom(old)
        elif old.state not in ENDED and old.state != "terminating":
            grace, dump_stacks = parting(draft, old)
            draft.actions.append(
                StopProcess(
                    role=old.role,
                    index=old.index,
                    uid=old.uid,
                    grace_seconds=grace,
                    dump_stacks=dump_stacks,
                )
            )


def _problem(draft: Draft, entry: InstanceEntry, old: Observation) -> str:
    """Return why an attempt has to begin in a new instance after all; empty where it need not."""
    if old.state == "unknown":
        return f"nothing is heard from node {old.node or '(unknown)'}"
    if old.state in ENDED and not old.in_place:
        return "its instance does not wait any more"
    if entry.stays_until is not None and (entry.wanted or old.state not in ENDED):
        if draft.now >= entry.stays_until:
            return "its process did not start again in time" if entry.wanted else "it did not end"
        draft.wake(entry.stays_until)
    return ""


def order_waiting(draft: Draft) -> None:
    """Let go the instances that wait although nothing more will begin in them."""
    awaited = {entry.stays for entry in draft.instances.values() if entry.stays}
    for seen in draft.objects.values():
        waits = seen.in_place and seen.state in ENDED
        if waits and seen.uid not in awaited and seen.uid not in draft.doomed:
            draft.actions.append(Dismiss(role=seen.role, index=seen.index, uid=seen.uid))
