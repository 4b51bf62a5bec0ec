"""A run that was preempted: it waits in our queue again once nothing of it is alive."""

from __future__ import annotations

from dataclasses import replace

from airflow_training.control import reasons
from airflow_training.control.draft import Draft
from airflow_training.control.model import JobEntry
from airflow_training.control.observations import Observations
from airflow_training.control.transitions import holds_place

__all__ = ["is_preempted", "queue_preempted"]


def is_preempted(job: JobEntry) -> bool:
    """Return whether a run has to wait for another turn before it goes on."""
    return job.paused_at is not None and job.reason == reasons.QUEUE_PREEMPTED


def queue_preempted(draft: Draft, observations: Observations | None) -> None:
    """Show a preempted run as queued when its place is free: somebody else may have it."""
    if not is_preempted(draft.job) or draft.job.state != "Paused":
        return
    if observations is None or not observations.reachable:
        return
    if any(holds_place(seen) for seen in observations.instances):
        return
    draft.job = replace(draft.job, state="Queued")
    draft.record_event(reasons.QUEUED, "nothing of it is alive; goes on when it is its turn")
