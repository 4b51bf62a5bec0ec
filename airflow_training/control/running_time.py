"""How long a job has run and trained, and the deadline over it. Queue, places, images and back-off count not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from airflow_training.control import reasons
from airflow_training.control.clocks import (
    amount_of,
    due_at,
    follow,
    is_used_up,
)
from airflow_training.control.draft import Draft
from airflow_training.control.ending import finish
from airflow_training.control.failures import Failure
from airflow_training.control.lifetimes import Lifetimes, is_running, lifetimes_of
from airflow_training.control.model import TERMINAL_JOB_STATES, Elapsed, InstanceEntry
from airflow_training.control.rollup import timestamp
from airflow_training.control.root_cause import cause_of_reason
from airflow_training.documents.resolved import ResolvedJob, ResolvedRole

__all__ = [
    "advance_running_time",
    "check_deadline",
    "check_passed_deadline",
    "comes_later",
    "deadline_at",
    "record_lifetimes",
    "trains",
]

Which = Literal["any", "all"]
_LATE_SECONDS = 5.0
"""From when on a deadline is noticed late: passes take their time."""


def advance_running_time(draft: Draft) -> None:
    """Let both clocks of the job run or stand, as its training instances do now."""
    _migrate_older(draft)
    if _nothing_is_new(draft):
        return
    job, now = draft.job, draft.now
    over = job.state in TERMINAL_JOB_STATES
    team = _training_instances(draft)
    which: Which = "any" if draft.spec.restart.scope == "Instance" else "all"
    from_ = math.inf if job.running_at is None else job.running_at
    active = not over and any(map(is_running, team))
    training = not over and now >= from_ and _trains(draft, team, which)
    if active and job.active_time.runs and training and job.training_time.runs:
        return  # both run on
    lives = lifetimes_of(team, before=draft.before.instances, now=now)
    draft.job = replace(
        job,
        active_time=_followed(job.active_time, lives, "any", runs=active, now=now),
        training_time=_followed(
            job.training_time, lives, which, runs=training, now=now, from_=from_
        ),
    )


def _migrate_older(draft: Draft) -> None:
    """Begin with all that has passed since the start, where an older version has counted so."""
    job = draft.job
    if (
        job.active_time.began_at is not None
        or draft.before.job.running_at is None
        or not job.started_at
    ):
        return
    passed = max(0.0, draft.now - job.started_at - job.paused_seconds)
    ran = Elapsed(seconds=passed, at=draft.now, runs=False, began_at=job.started_at)
    draft.job = replace(job, active_time=ran)


def _nothing_is_new(draft: Draft) -> bool:
    """Return whether there is nothing to look at: thousands of instances mostly stay as they are."""
    old, new = draft.before.job, draft.job
    same_job = (old.state, old.running_at) == (new.state, new.running_at)
    same = draft.instances is draft.before.instances and draft.roles is draft.before.roles
    known = (
        old.active_time.began_at is not None or new.running_at is None
    )  # else of an older version
    return same and same_job and known


def trains(job: ResolvedJob, role: str) -> bool:
    """Return whether what a role does is training: helpers run all the time, and say nothing about it."""
    return job.role(role).tracked or not any(each.tracked for each in job.roles)


def _training_instances(draft: Draft) -> list[InstanceEntry]:
    """Return the instances that train."""
    names = {role.name for role in draft.spec.roles if trains(draft.spec, role.name)}
    return [
        entry
        for entry in draft.instances.values()
        if entry.key.role in names and not (entry.retired or entry.joining)
    ]


def _trains(draft: Draft, team: Iterable[InstanceEntry], which: Which) -> bool:
    """Return whether the job trains: by any of its instances, or only by all that are to run now."""
    later = {role.name for role in draft.spec.roles if comes_later(draft, role)}
    running = (is_running(each) for each in team if not each.final and each.role not in later)
    return any(running) if which == "any" else next(running, False) and all(running)


def comes_later(draft: Draft, role: ResolvedRole) -> bool:
    """Return whether a role waits for another to be complete: the job trains without it till then."""
    return draft.roles[role.name].state == "Waiting" and any(
        each.status == "Complete" for each in role.depends_on
    )


def _followed(
    elapsed: Elapsed, lives: Lifetimes, which: Which, *, runs: bool, now: float, from_: float = 0.0
) -> Elapsed:
    """Return what one of the clocks has counted; nothing before `from_`."""
    if runs and elapsed.runs:
        return elapsed
    first, last = (min, max) if which == "any" else (max, min)
    if runs:
        return follow(
            elapsed, runs=True, now=now, began=max(from_, first(lives.starts, default=now))
        )
    if elapsed.runs:
        return follow(elapsed, runs=False, now=now, ended=last(lives.ends, default=now))
    news = [each for each in lives.unseen if each[1] > max(elapsed.at, from_)]
    if not news:
        return elapsed
    ran = follow(elapsed, runs=True, now=now, began=max(from_, first(b for b, _ in news)))
    return follow(ran, runs=False, now=now, ended=last(e for _, e in news))


def record_lifetimes(draft: Draft, failures: Sequence[Failure]) -> None:
    """Remember what those did that others wait for, before their attempts are given up."""
    if not failures and not any(role.waits for role in draft.roles.values()):
        return
    draft.lives = {
        name: lifetimes_of(draft.instances_of(name), before=draft.before.instances, now=draft.now)
        for name in {each.role for role in draft.spec.roles for each in role.depends_on}
    }


# the deadline ------------------------------------------------------------------------------------
def deadline_at(draft: Draft) -> float | None:
    """Return when the job will have run for too long; None while its clock stands."""
    limit = draft.spec.active_deadline_seconds
    return None if limit is None else due_at(draft.job.active_time, limit)


def check_deadline(draft: Draft) -> None:
    """End a job that has run for too long."""
    limit, ran = draft.spec.active_deadline_seconds, draft.job.active_time
    if limit is None or not is_used_up(ran, limit, now=draft.now):
        return
    message = (
        f"activeDeadlineSeconds {limit:g} is used up: its instances were running for"
        f" {amount_of(ran, now=draft.now)}{_lateness(ran, limit, now=draft.now)}{_other_time(draft)}"
    )
    finish(
        draft,
        "Failed",
        reason=reasons.DEADLINE_EXCEEDED,
        message=message,
        root_cause=cause_of_reason(reason=reasons.DEADLINE_EXCEEDED, message=message, at=draft.now),
    )


def check_passed_deadline(draft: Draft, failures: Sequence[Failure]) -> None:
    """End a job of which nothing failed before its time was used up: then its instances ended themselves."""
    limit, ran = draft.spec.active_deadline_seconds, draft.job.active_time
    if limit is None or not failures or not is_used_up(ran, limit, now=draft.now):
        return
    if min(each.at for each in failures) >= _used_up_at(ran, limit):
        check_deadline(draft)


def _used_up_at(ran: Elapsed, limit: float) -> float:
    due = due_at(ran, limit)
    # where it stands: those who ran have ended since
    return ran.at - max(0.0, ran.seconds - limit) if due is None else due


def _lateness(ran: Elapsed, limit: float, *, now: float) -> str:
    """Return how late it is noticed that the time was used up, where nobody drove the run then."""
    late = now - _used_up_at(ran, limit)
    return f"; noticed {late:.0f} s late" if late >= _LATE_SECONDS else ""


def _other_time(draft: Draft) -> str:
    """Return both times where somebody has set the clock of the machine since the run counts."""
    told = draft.time_of_day
    if told is None or abs(told - draft.now) < 1:
        return ""
    return (
        f"; by the clock that it counts with it is {timestamp(draft.now)},"
        f" by that of this machine {timestamp(told)}"
    )
