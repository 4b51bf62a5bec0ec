"""While the runtime does not answer nobody knows what instances wait for: that time counts for nothing. Pure."""

from __future__ import annotations

from dataclasses import replace

from airflow_training.control.draft import Draft
from airflow_training.control.model import ActivePhase
from airflow_training.control.observations import Observations

__all__ = ["BRIEF_SECONDS", "skip_outage"]

BRIEF_SECONDS = 10.0
"""In a shorter outage nothing changes unseen for long, so that what is not heard from is not given its time anew."""


def skip_outage(draft: Draft, observations: Observations) -> None:
    """Note that the runtime does not answer; once it does, move the begin of what waited for a place.

    Whatever is not heard from has its time anew, or after a brief outage what it had left.
    """
    since = draft.job.unreachable_since
    if not observations.reachable:
        if since is None:
            draft.job = replace(draft.job, unreachable_since=draft.now)
        return
    if since is None:
        return

    def moved(began: float) -> float:
        return began + max(0.0, draft.now - max(began, since))

    brief = draft.now - since < BRIEF_SECONDS
    crowded = draft.job.crowded_since
    draft.job = replace(
        draft.job,
        unreachable_since=None,
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
