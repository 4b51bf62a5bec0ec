"""What state, condition and reason roles and the job show. Follows what happened; decides nothing."""

from __future__ import annotations

from dataclasses import replace

from airflow_training.control import reasons
from airflow_training.control.conditions import condition_of
from airflow_training.control.draft import Draft
from airflow_training.control.model import TERMINAL_JOB_STATES
from airflow_training.control.running_time import comes_later
from airflow_training.documents.resolved import ResolvedRole

__all__ = ["update_statuses"]

_UP = frozenset({"Running", "Succeeded", "Failed", "Stopped"})


def update_statuses(draft: Draft, *, reachable: bool) -> None:
    """Bring the states of roles, then of the job, up to date."""
    job = draft.job
    if job.state not in TERMINAL_JOB_STATES and job.paused_at is None:
        for role in draft.spec.roles:
            _show_role(draft, role.name)
        _show_job(draft)
    draft.job = replace(draft.job, condition=_condition(draft, reachable=reachable))


def _condition(draft: Draft, *, reachable: bool) -> str:
    job, entries = draft.job, draft.instances.values()
    all_seen = any_created = True
    if job.state in ("Starting", "Restarting"):
        all_seen = all(entry.uid for entry in entries if entry.desired)
    elif job.state == "Failed" and job.condition not in ("Failed", "SubmitFailed"):
        any_created = any(entry.address for entry in entries)  # it stays once one was seen
    elif job.condition == "SubmitFailed":
        any_created = False
    return condition_of(job, reachable=reachable, all_seen=all_seen, any_created=any_created)


def _show_role(draft: Draft, name: str) -> None:
    entry = draft.roles[name]
    if entry.state in ("Succeeded", "Failed", "Stopped"):
        return
    alive = [head for head, _ in draft.census.get(name, ()) if not head.final]
    if alive and all(head.state == "unknown" for head in alive):
        message = "nothing is heard from any of its instances"
        draft.set_role(name, state="Starting", reason=reasons.INSTANCE_UNKNOWN, message=message)
    elif alive and all(head.was_running for head in alive):
        if entry.state != "Running":
            draft.set_role(name, state="Running", reason=reasons.RUNNING, message="")
            draft.record_event(reasons.RUNNING, "all its instances run", role=name)
        if entry.reduced is not None:
            message = f"{entry.replicas} of {entry.reduced.full} instances; {entry.reduced.why}"
            draft.set_role(name, reason=reasons.GOES_ON_WITH_FEWER, message=message)
        elif entry.reason == reasons.GOES_ON_WITH_FEWER:
            draft.set_role(name, reason=reasons.RUNNING, message="")
    elif entry.state in ("Running", "Restarting"):
        return
    elif any(head.desired and head.released for head in alive):
        if entry.state != "Starting":
            draft.set_role(name, state="Starting", reason=reasons.STARTING, message="")
    else:
        draft.set_role(name, state="Waiting")


def _show_job(draft: Draft) -> None:
    job = draft.job
    if job.started_at is None:
        return
    if job.state in ("Pending", "Queued"):
        draft.job = replace(draft.job, state="Starting", reason=reasons.STARTING, message="")
        draft.record_event(reasons.JOB_STARTED, "launch begins")
    counted = [role for role in draft.spec.roles if role.tracked] or draft.spec.roles
    if job.running_at is None and all(_is_up(draft, role) for role in counted):
        draft.job = replace(draft.job, running_at=draft.now)
    expected = [role for role in counted if not comes_later(draft, role)]
    up = [role for role in expected if _is_up(draft, role)]
    if up and len(up) == len(expected) and draft.job.state != "Running":
        draft.job = replace(draft.job, state="Running", reason=reasons.RUNNING, message="")
        draft.record_event(reasons.JOB_RUNNING, "all instances that should run do")


def _is_up(draft: Draft, role: ResolvedRole) -> bool:
    return draft.roles[role.name].state in _UP
