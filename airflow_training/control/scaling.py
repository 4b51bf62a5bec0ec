"""Changes the number of instances of a running role. Elastic jobs keep the others, static ones restart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from airflow_training.control import reasons
from airflow_training.control.draft import Draft
from airflow_training.control.elastic import reset_size
from airflow_training.control.model import InstanceEntry
from airflow_training.control.recovery import record_restart_point
from airflow_training.control.transitions import next_attempt
from airflow_training.control.victims import choose_victims
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedRole
from airflow_training.documents.text import counted

__all__ = ["add_missing", "new_entry", "remove_surplus", "restart_at_size", "scale"]


def scale(draft: Draft, name: str, replicas: int | None) -> str:
    """Ask for another number of instances; return why not, or an empty string."""
    if name not in draft.roles:
        return f"no role is called {name!r}"
    role, entry = draft.spec.role(name), draft.roles[name]
    if entry.state in ("Succeeded", "Failed", "Stopped"):
        return f"role {name} is over ({entry.state})"
    if replicas is None or replicas < 1:
        return f"replicas is {replicas}, at least 1 is needed"
    if draft.spec.elastic:
        lowest, highest = role.min_replicas or 1, role.max_replicas
        if replicas < lowest or (highest is not None and replicas > highest):
            return f"replicas is {replicas}, outside of {lowest} to {highest or 'any'}"
    if replicas == entry.desired and entry.reduced is None:
        return ""
    draft.record_event(
        reasons.SCALED, f"from {entry.replicas} to {counted(replicas, 'instance')}", role=name
    )
    reset_size(draft, name)
    if draft.spec.elastic:
        draft.set_role(name, replicas=replicas)
        add_missing(draft, role)
        remove_surplus(draft, role)
    else:
        message = f"role {name} now has {counted(replicas, 'instance')}"
        restart_at_size(draft, {name: replicas}, reason=reasons.SCALED, message=message)
    return ""


def remove_surplus(draft: Draft, role: ResolvedRole) -> None:
    """Retire what a role has too much, by the order of `victims`."""
    surplus = sum(number for _, number in draft.census.get(role.name, ()))
    surplus -= draft.roles[role.name].replicas
    if surplus <= 0:
        return
    for entry in choose_victims(
        draft.instances_of(role.name), surplus=surplus, chief=role.chief, seen=draft.current
    ):
        _retire(draft, entry)


def add_missing(draft: Draft, role: ResolvedRole) -> None:
    """Add entries to a role that should have more; the lowest free indexes first."""
    missing = draft.roles[role.name].replicas
    missing -= sum(number for _, number in draft.census.get(role.name, ()))
    index = 0
    while missing > 0:
        entry = draft.instances.get(InstanceKey(role.name, index))
        if entry is None:
            draft.put(new_entry(role.name, index, draft=draft))
            missing -= 1
        elif entry.retired:
            _restore_index(draft, entry)
            missing -= 1
        index += 1


def new_entry(role: str, index: int, *, draft: Draft) -> InstanceEntry:
    """Return an instance that was never created."""
    return InstanceEntry(
        key=InstanceKey(role, index),
        attempt_id=draft.job.first_attempt,
        last_transition_at=draft.now,
    )


def restart_at_size(
    draft: Draft, replicas: Mapping[str, int], *, reason: str, message: str
) -> None:
    """Restart the whole job with dense ranks, some roles at another size; nobody is charged for it."""
    for name, size in replicas.items():
        draft.set_role(name, replicas=size)
    draft.job = replace(
        draft.job,
        state="Restarting" if draft.job.paused_at is None else draft.job.state,
        reason=reason,
        message=message,
        job_attempt=draft.job.job_attempt + 1,
        restart_at=None,
    )
    record_restart_point(draft)
    for entry in list(draft.instances.values()):
        if entry.retired:
            continue
        if entry.index >= replicas.get(entry.role, entry.index + 1):
            _retire(draft, entry)
        elif not entry.final:
            next_attempt(draft, entry, reason=reason)
    for name, each in draft.roles.items():
        if each.state in ("Running", "Starting", "Restarting"):
            draft.set_role(name, state="Restarting", reason=reason, waits={})


def _retire(draft: Draft, entry: InstanceEntry) -> None:
    """Take an instance out of its role; its attempt numbers are not used again."""
    if entry.final and entry.state == "succeeded":
        draft.put(replace(entry, retired=True))
        return
    next_attempt(draft, replace(entry, retired=True), reason=reasons.SCALED_DOWN)
    draft.record_event(reasons.SCALED_DOWN, of=entry)


def _restore_index(draft: Draft, entry: InstanceEntry) -> None:
    """Let an index belong to its role again; one that had succeeded does not run twice."""
    if entry.final and entry.state == "succeeded":
        draft.put(replace(entry, retired=False))
    else:
        next_attempt(draft, replace(entry, retired=False, restarts=0), reason=reasons.SCALED)
