"""While the runtime does not answer nobody knows what instances wait for: that time counts for nothing. Pure."""

from __future__ import annotations

from dataclasses import replace

from airflow_training.control.draft import Draft
from airflow_training.control.model import ActivePhase, Observations

__all__ = ["skip_outage"]


def skip_outage(draft: Draft, observations: Observations) -> None:
    """Note that the runtime does not answer; once it does, move the begin of what waited for a place."""
    since = draft.job.unreachable_since
    if not observations.reachable:
        if since is None:
            draft.job = replace(draft.job, unreachable_since=draft.now)
        return
    if since is None:
        return

    def moved(began: float) -> float:
        return began + max(0.0, draft.now - max(began, since))

    crowded = draft.job.crowded_since
    draft.job = replace(
        draft.job,
        unreachable_since=None,
        answers_since=draft.now,
        crowded_since=None if crowded is None else moved(crowded),
    )
    for entry in list(draft.instances.values()):
        phase = entry.phase
        if isinstance(phase, ActivePhase) and entry.state == "pending":
            draft.put(replace(entry, phase=replace(phase, wanted_at=moved(phase.wanted_at))))
