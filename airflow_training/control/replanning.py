"""What a run whose plan changes goes through: may it, and its ledger under the new resolved job. Pure."""

from __future__ import annotations

from dataclasses import replace

from airflow_training.control import reasons
from airflow_training.control.draft import Draft
from airflow_training.control.model import TERMINAL_JOB_STATES, Event, Ledger
from airflow_training.control.scaling import restart_at_size
from airflow_training.documents.resolved import ResolvedJob

__all__ = ["replan_hindrance", "replan_ledger"]


def replan_hindrance(job: ResolvedJob, ledger: Ledger) -> str:
    """Return why the split of a run cannot change now; empty where it can.

    One whose ranks begin to succeed is about to end, and those do not run again.
    """
    if ledger.job.state in TERMINAL_JOB_STATES:
        return "it is over"
    if ledger.job.paused_at is not None:
        return "it is paused"
    if ledger.job.started_at is None:
        return "it has not started"
    for role in job.roles:
        if ledger.roles[role.name].reduced is not None:
            return f"role {role.name} goes on with fewer instances for now"
        if ledger.roles[role.name].replicas != role.replicas:
            return f"role {role.name} was scaled by hand"
    ranked = {role.name for role in job.roles if role.rank_offset is not None}
    for entry in ledger.instances.values():
        if entry.role in ranked and entry.final and not entry.retired:
            return f"{entry.key} has ended"
    return ""


def replan_ledger(
    job: ResolvedJob, ledger: Ledger, event: Event, *, generation: int
) -> tuple[Ledger, tuple[Event, ...]]:
    """Return the ledger with which a run goes on as `job`, in its next job attempt, and its events.

    `event` says why. Instances of the old split become stale: they are ended before the first one
    of the new split is created, as at every restart of a whole job. No restart is counted.
    """
    draft = Draft(job, ledger, now=event.at, generation=generation)
    draft.events.append(event)
    for entry in list(draft.instances.values()):
        draft.put(replace(entry, observed_hardware=None))  # another split has other needs
    sizes = {role.name: role.replicas for role in job.roles}
    restart_at_size(draft, sizes, reason=reasons.REPLANNED, message=event.message)
    return draft.ledger(), tuple(draft.events)
