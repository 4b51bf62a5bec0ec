"""While the runtime does not answer nobody knows what instances wait for: that is told, and the time counts for nothing. Pure."""

from __future__ import annotations

from dataclasses import replace

from airflow_training.control import reasons
from airflow_training.control.draft import Draft
from airflow_training.control.model import ActivePhase
from airflow_training.control.observations import Observations
from airflow_training.control.rollup import silence_text

__all__ = ["BRIEF_SECONDS", "note_silence", "skip_outage"]

BRIEF_SECONDS = 10.0
"""In a shorter outage nothing changes unseen for long, so that what is not heard from is not given its time anew."""


def note_silence(draft: Draft, why: str) -> None:
    """Note that the runtime does not answer, and tell it once where that lasts. `why`: in its words."""
    job = draft.job
    since = draft.now if job.unreachable_since is None else job.unreachable_since
    lasts = draft.now >= since + BRIEF_SECONDS
    if not lasts:
        draft.wake(since + BRIEF_SECONDS)
    why = why or job.unreachable_why
    if lasts and not job.outage_announced:
        draft.record_event(
            reasons.RUNTIME_UNREACHABLE, silence_text(since, why), level="warning", since=since
        )
    draft.job = replace(
        job,
        unreachable_since=since,
        unreachable_why=why,
        outage_announced=job.outage_announced or lasts,
    )


def skip_outage(draft: Draft, observations: Observations) -> None:
    """Note that the runtime does not answer; once it does, move the begin of what waited for a place.

    Whatever is not heard from has its time anew, or after a brief outage what it had left.
    """
    if not observations.reachable:
        note_silence(draft, observations.why)
        return
    since = draft.job.unreachable_since
    if since is None:
        return
    if draft.job.outage_announced:
        draft.record_event(
            reasons.RUNTIME_ANSWERS,
            f"the runtime answers again, after {draft.now - since:.0f} s",
            since=since,
        )

    def moved(began: float) -> float:
        return began + max(0.0, draft.now - max(began, since))

    brief = draft.now - since < BRIEF_SECONDS
    crowded = draft.job.crowded_since
    draft.job = replace(
        draft.job,
        unreachable_since=None,
        unreachable_why="",
        outage_announced=False,
        answers_since=draft.now,
        crowded_since=None if crowded is None else moved(crowded),
    )
    for entry in list(draft.instances.values()):
        phase = entry.phase
        if not isinstance(phase, ActivePhase):
            continue
        if entry.state == "pending":
            draft.put(
                replace(entry, phase=replace(phase, desired_since=moved(phase.desired_since)))
            )
        elif entry.state == "unknown" and phase.deadline_at is not None:
            until = phase.deadline_at + draft.now - since if brief else None
            draft.put(replace(entry, phase=replace(phase, deadline_at=until)))
