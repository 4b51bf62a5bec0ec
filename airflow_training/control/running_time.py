"""How long a job has run and trained, and the deadline over it. Queue, places, images and back-off count not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Literal

from airflow_training.control import reasons
from airflow_training.control.census import Head
from airflow_training.control.clocks import (
    DEADLINE,
    TRAINED,
    amount_of,
    due_at,
    follow,
    is_used_up,
)
from airflow_training.control.draft import Draft
from airflow_training.control.ending import finish
from airflow_training.control.model import TERMINAL_JOB_STATES, Elapsed, InstanceEntry
from airflow_training.control.rollup import timestamp
from airflow_training.control.root_cause import cause_document
from airflow_training.documents.resolved import ResolvedJob

__all__ = ["advance_running_time", "check_deadline", "deadline_at"]

Which = Literal["any", "all"]


def advance_running_time(draft: Draft) -> None:
    """Let both clocks of the job run or stand, as its training instances do now."""
    names = _training_roles(draft.spec)
    over = draft.job.state in TERMINAL_JOB_STATES
    heads = [] if over else [h for name in names for h, _ in draft.census.get(name, ())]
    runs = any(head.state in DEADLINE.counts and head.was_running for head in heads)
    which: Which = "any" if draft.spec.restart.scope == "Instance" else "all"
    from_ = math.inf if draft.job.running_at is None else draft.job.running_at
    trains = draft.now >= from_ and _trains(draft, heads, which)
    draft.job = replace(
        draft.job,
        ran=_followed(draft, draft.job.ran, "any", runs=runs, from_=0.0),
        trained=_followed(draft, draft.job.trained, which, runs=trains, from_=from_),
    )


def _training_roles(spec: ResolvedJob) -> frozenset[str]:
    """Return the roles whose instances train: helpers run all the time, and say nothing about it."""
    tracked = [role.name for role in spec.roles if role.tracked]
    return frozenset(tracked or [role.name for role in spec.roles])


def _trains(draft: Draft, heads: Iterable[Head], which: Which) -> bool:
    """Return whether the job trains: by any of its instances, or only by all that are to run now."""
    needed = [head for head in heads if not head.final and not _comes_later(draft, head)]
    running = [head.state in TRAINED.counts for head in needed]
    return bool(needed) and (any(running) if which == "any" else all(running))


def _comes_later(draft: Draft, head: Head) -> bool:
    return draft.roles[head.role].state == "Waiting" and any(
        each.status == "Complete" for each in draft.spec.role(head.role).depends_on
    )


def _followed(
    draft: Draft, elapsed: Elapsed, which: Which, *, runs: bool, from_: float
) -> Elapsed:
    """Return what one of the clocks has counted; nothing before `from_`."""
    if runs and elapsed.runs:
        return elapsed
    if not runs and not elapsed.runs:
        return _with_unseen_life(draft, elapsed, which, from_=from_)
    first, last = (min, max) if which == "any" else (max, min)
    began = first(_starts(draft), default=draft.now)
    ended = last(_ends(draft), default=draft.now)
    return follow(elapsed, runs=runs, now=draft.now, began=max(began, from_), ended=ended)


def _with_unseen_life(draft: Draft, elapsed: Elapsed, which: Which, *, from_: float) -> Elapsed:
    """Count instances that began and ended while nobody looked: each says when that was."""
    lives = [
        (entry.started_at, entry.finished_at)
        for entry in _team(draft)
        if entry.started_at is not None
        and entry.finished_at is not None
        and entry.finished_at > max(elapsed.at, from_)
        and not _ran_before(draft, entry)
    ]
    if not lives:
        return elapsed
    first, last = (min, max) if which == "any" else (max, min)
    began = max(from_, first(began for began, _ in lives))
    ran = follow(elapsed, runs=True, now=draft.now, began=began)
    return follow(ran, runs=False, now=draft.now, ended=last(ended for _, ended in lives))


def _team(draft: Draft) -> Iterator[InstanceEntry]:
    names = _training_roles(draft.spec)
    return (entry for entry in draft.instances.values() if entry.role in names)


def _starts(draft: Draft) -> list[float]:
    """Return when those began that run."""
    running = (entry for entry in _team(draft) if entry.state == "running")
    return [entry.started_at for entry in running if entry.started_at is not None]


def _ran_before(draft: Draft, entry: InstanceEntry) -> bool:
    """Return whether it ran when the last decision was made."""
    before = draft.before.instances.get(entry.key)
    return before is not None and before.was_running and before.state in DEADLINE.counts


def _ends(draft: Draft) -> list[float]:
    """Return when those ended that run no more."""
    return [
        draft.now if entry.finished_at is None else entry.finished_at
        for entry in _team(draft)
        if entry.state not in DEADLINE.counts and _ran_before(draft, entry)
    ]


# the deadline ------------------------------------------------------------------------------------
def deadline_at(draft: Draft) -> float | None:
    """Return when the job will have run for too long; None while its clock stands."""
    limit = draft.spec.active_deadline_seconds
    return None if limit is None else due_at(draft.job.ran, limit)


def check_deadline(draft: Draft) -> None:
    """End a job that has run for too long."""
    limit, ran = draft.spec.active_deadline_seconds, draft.job.ran
    if limit is None or not is_used_up(ran, limit, now=draft.now):
        return
    message = (
        f"activeDeadlineSeconds {limit:g} is used up: its instances were running for"
        f" {amount_of(ran, now=draft.now)}{_other_time(draft)}"
    )
    finish(
        draft,
        "Failed",
        reason=reasons.DEADLINE_EXCEEDED,
        message=message,
        root_cause=cause_document(reason=reasons.DEADLINE_EXCEEDED, message=message, at=draft.now),
    )


def _other_time(draft: Draft) -> str:
    """Return both times where somebody has set the clock of the machine since the run counts."""
    told = draft.time_of_day
    if told is None or abs(told - draft.now) < 1:
        return ""
    return (
        f"; by the clock that it counts with it is {timestamp(draft.now)},"
        f" by that of this machine {timestamp(told)}"
    )
