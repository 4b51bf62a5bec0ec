"""Attempts that begin inside the instance of the attempt before: which do, and until when that is tried.

Only where nothing but the process has to be made anew. Then the old instance stays: what runs in it
is ended, and once the next attempt may begin (backoff, order of the roles, nothing old alive), its
process is started there. Whatever does not come about in time becomes an attempt in a new instance,
as any other: it was counted already.
"""

from __future__ import annotations

from dataclasses import replace

from airflow_training.control import reasons
from airflow_training.control.actions import Dismiss, StopProcess
from airflow_training.control.draft import Draft
from airflow_training.control.ending import termination
from airflow_training.control.environment import environment_state, read_records
from airflow_training.control.keeping import is_kept
from airflow_training.control.model import OWN_INSTANCE, AttemptHost, InstanceEntry
from airflow_training.control.observations import Observation
from airflow_training.control.reason_facts import LEVELS, Level
from airflow_training.control.recovery import save_grace
from airflow_training.control.recovery_level import recovery_level
from airflow_training.control.transitions import ENDED
from airflow_training.documents.resolved import ResolvedJob, ResolvedRole

__all__ = [
    "ANSWER_SECONDS",
    "advance_in_place",
    "place_of",
    "place_of_survivor",
    "release_waiting",
    "wait_seconds",
]

ANSWER_SECONDS = 30.0
"""How long after an order its effect may take to be seen: a kubelet may be slow to pass it on."""
_MARGIN_SECONDS = 60.0
"""How much longer than the longest backoff an instance waits: a controller may be starting again."""


def wait_seconds(job: ResolvedJob, role: ResolvedRole) -> float:
    """Return how long an instance waits after a failure for the next attempt, or an order to stay.

    0: neither will come.
    """
    if role.restart_policy == "Never" and not job.failure_policy.rules:
        return _MARGIN_SECONDS if job.restart.keep_failed_seconds else 0.0
    return job.restart.backoff_max_seconds + _MARGIN_SECONDS


# where the next attempt begins -----------------------------------------------------------------------
def place_of(draft: Draft, entry: InstanceEntry, level: Level) -> AttemptHost:
    """Return inside which instance the next attempt begins. `level`: what it needs."""
    seen = draft.objects.get(entry.uid) if entry.uid else None
    if seen is None or level != "process" or not seen.in_place:
        return OWN_INSTANCE
    if entry.memory is not None and entry.memory.since_attempt > entry.attempt:
        return OWN_INSTANCE  # what is there has too little memory
    if entry.joining:  # the others go on without it, and what it has is for others meanwhile
        return OWN_INSTANCE
    if seen.state == "failed":
        return AttemptHost(seen.uid)
    if seen.state == "running":
        grace = save_grace(draft.spec, draft.job, entry.role)
        return AttemptHost(seen.uid, until=draft.now + grace + ANSWER_SECONDS)
    return OWN_INSTANCE


def place_of_survivor(draft: Draft, entry: InstanceEntry) -> AttemptHost:
    """Return the same for an instance that only restarts together with one that failed."""
    seen = draft.objects.get(entry.uid) if entry.uid else None
    if seen is None or not seen.in_place:
        return OWN_INSTANCE
    around = environment_state(read_records(seen.environment), at=seen.finished_at or draft.now)
    needs = recovery_level(
        "infrastructure", seen.reason, draft.known_reasons.get(seen.reason), around, LEVELS
    )
    return place_of(draft, entry, needs.level)


# what becomes of it ----------------------------------------------------------------------------------
def advance_in_place(draft: Draft) -> None:
    """Go on with the instances that stay, and give up what has become impossible or takes too long."""
    for entry in list(draft.instances.values()):
        if not entry.host.uid:
            continue
        old = draft.objects.get(entry.host.uid)
        if old is None or entry.uid:  # it is gone, or the attempt has begun
            draft.put(replace(entry, host=OWN_INSTANCE))
            if old is not None:
                draft.mark_for_deletion(old)
            continue
        problem = _problem(draft, entry, old)
        if problem:
            draft.record_event(reasons.NOT_IN_PLACE, problem, of=entry, level="warning")
            draft.put(replace(entry, host=OWN_INSTANCE))
            draft.mark_for_deletion(old)
        elif old.state not in ENDED and old.state != "terminating":
            grace, dump_stacks = termination(draft, old)
            draft.actions.append(
                StopProcess(
                    key=old.key,
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
    until = entry.host.until
    if until is not None and (entry.desired or old.state not in ENDED):
        if draft.now >= until:
            return "its process did not start again in time" if entry.desired else "it did not end"
        draft.wake(until)
    return ""


def release_waiting(draft: Draft) -> None:
    """Let go the instances that wait although nothing more will begin in them."""
    waiting = [
        seen
        for seen in draft.objects.values()
        if seen.state == "failed"  # as `waits` asks, without a call for each instance
        and seen.waits
        and not is_kept(draft, seen)
        and seen.uid not in draft.marked_for_deletion
    ]
    if not waiting:  # as ever, and then no entry is looked at
        return
    awaited = {entry.host.uid for entry in draft.instances.values() if entry.host.uid}
    # what follows a failure that is still being diagnosed is not known yet
    awaited |= {
        entry.uid
        for entry in draft.instances.values()
        if entry.desired and entry.attempt_key in draft.undiagnosed
    }
    draft.actions.extend(
        Dismiss(key=seen.key, uid=seen.uid) for seen in waiting if seen.uid not in awaited
    )
