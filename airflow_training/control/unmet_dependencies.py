"""Why a role of a job that failed never ran: what it waited for has failed. Pure."""

from __future__ import annotations

from airflow_training.control.causes import RootCause
from airflow_training.control.dependencies import judge_dependency
from airflow_training.control.draft import Draft
from airflow_training.control.model import InstanceEntry

__all__ = ["why_never_ran"]


def why_never_ran(draft: Draft, role: str, cause: RootCause | None) -> str:
    """Return `waited for prepare-0, which failed`; "" of a role that ran, or that something else held.

    `cause`: of the failure that ends the job, whose role may not have been closed yet.
    """
    if any(map(_has_begun, draft.instances_of(role))):
        return ""
    for dependency in draft.spec.role(role).depends_on:
        upstream = dependency.role
        judged = judge_dependency(dependency, waiting=role, roles=draft.roles, counts=draft.census)
        if judged.status == "met":
            continue
        if draft.roles[upstream].state == "Failed" or (cause and cause.role == upstream):
            return f"waited for {_who_failed(draft, upstream, cause)}, which failed"
        if further := why_never_ran(draft, upstream, cause):
            return f"waited for {upstream}, which {further}"
    return ""


def _has_begun(entry: InstanceEntry) -> bool:
    return bool(entry.attempt or entry.final or entry.was_running or entry.phase.released)


def _who_failed(draft: Draft, role: str, cause: RootCause | None) -> str:
    if cause is not None and cause.role == role and cause.key is not None:
        return str(cause.key)
    failed = (each.key for each in draft.instances_of(role) if each.state == "failed")
    return str(next(failed, role))
