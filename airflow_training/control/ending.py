"""The end of a job: everything alive is stopped, and it is over only when nothing is left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from airflow_training.control import reasons
from airflow_training.control.actions import Delete
from airflow_training.control.causes import RootCause
from airflow_training.control.draft import Draft
from airflow_training.control.grace import killed_note
from airflow_training.control.keeping import choose_kept, drained_text, is_kept, keep_failed
from airflow_training.control.model import TERMINAL_JOB_STATES, InstanceEntry, RoleState
from airflow_training.control.observations import Observation, Observations
from airflow_training.control.recovery import save_grace
from airflow_training.control.root_cause import message_of, outcome_text
from airflow_training.control.transitions import (
    close_instance,
    holds_place,
    never_started,
    settle_instance,
)
from airflow_training.control.unbegun import take_back_unbegun
from airflow_training.control.unmet_dependencies import why_never_ran

__all__ = ["close_role", "delete_marked", "drain", "finish", "termination"]

_AT_ONCE_SECONDS = 2.0
"""Long enough to flush a log."""
_TERMINAL_ROLE = frozenset({"Succeeded", "Failed", "Stopped"})
_WHY: Mapping[str, tuple[RoleState, str, str]] = {
    # job state -> state and reason of roles that had not ended, reason of their instances
    "Succeeded": ("Succeeded", reasons.JOB_SUCCEEDED, reasons.STOPPED_AFTER_SUCCESS),
    "Failed": ("Stopped", reasons.JOB_FAILED, reasons.STOPPED),
    "Stopped": ("Stopped", reasons.JOB_STOPPED, reasons.STOPPED),
}


def finish(
    draft: Draft,
    state: Literal["Succeeded", "Failed", "Stopped"],
    *,
    reason: str,
    message: str,
    rule: str = "",
    root_cause: RootCause | None = None,
) -> None:
    """End the job: for this epoch the state never changes again.

    `message`: of a job that fails the limit that ends it; `root_cause` says the rest.
    """
    unmet = _unmet_dependencies(draft, root_cause) if state == "Failed" else {}
    paused_at = draft.job.paused_at
    paused = (
        draft.now - paused_at if paused_at is not None and draft.job.started_at is not None else 0.0
    )
    draft.job = replace(
        draft.job,
        state=state,
        reason=reason,
        message=message_of(root_cause, message) if state == "Failed" else message,
        limit=message if state == "Failed" else "",
        paused_at=None,
        paused_seconds=draft.job.paused_seconds + paused,
        restart_at=None,
        root_cause=root_cause if state == "Failed" else None,
        kept=choose_kept(draft, root_cause) if state == "Failed" else None,
        stop=None,
    )
    role_state, role_reason, instance_reason = _WHY[state]
    for name, role in draft.roles.items():
        if role.state not in _TERMINAL_ROLE:
            why = unmet.get(name, "")
            ended = f"the job ended: {reason}"
            if role.state == "Waiting" and not _has_begun(draft, name):
                ended = f"{never_started(role.message)}; {ended}"
            draft.set_role(
                name,
                state=role_state,
                reason=reasons.DEPENDENCY_FAILED if why else role_reason,
                message=f"never ran: {why}" if why else ended,
                waits={},
                created=0,
            )
    for entry in list(draft.instances.values()):
        if not entry.retired:
            close_instance(draft, entry, reason=instance_reason)
            _tell_unmet(draft, entry, unmet.get(entry.role, ""))
    if state == "Failed":
        # what is known now: why it failed is told when it has, by logs that are complete then
        text = f"{_outcome(draft)}; what is left of it is ended"
        draft.record_event(reasons.JOB_FAILING, text, rule=rule, level="warning")
    else:
        draft.record_event(f"Job{state}", _outcome(draft), rule=rule)


def _has_begun(draft: Draft, role: str) -> bool:
    """Return whether anything of a role ran before: one that is paused, or reopened, waits too."""
    return any(entry.attempt or entry.uid for entry in draft.instances_of(role))


def _unmet_dependencies(draft: Draft, root_cause: RootCause | None) -> Mapping[str, str]:
    """Return why roles never ran whose dependencies have failed."""
    waiting = [name for name, role in draft.roles.items() if role.state not in _TERMINAL_ROLE]
    return {name: why for name in waiting if (why := why_never_ran(draft, name, root_cause))}


def _tell_unmet(draft: Draft, entry: InstanceEntry, why: str) -> None:
    closed = draft.instances[entry.key]
    if why and closed.reason == reasons.NOT_NEEDED:
        draft.put(replace(closed, message=f"never started: {why}"))


def _outcome(draft: Draft) -> str:
    job = draft.job
    return outcome_text(state=job.state, reason=job.reason, message=job.message)


def close_role(draft: Draft, name: str, state: RoleState, *, reason: str, message: str) -> None:
    """End one role while the job goes on; its other instances are stopped."""
    draft.set_role(name, state=state, reason=reason, message=message, waits={}, created=0)
    instance_reason = reasons.STOPPED_AFTER_SUCCESS if state == "Succeeded" else reasons.STOPPED
    for entry in draft.instances_of(name):
        close_instance(draft, entry, reason=instance_reason)
    level = "error" if state == "Failed" else "info"
    draft.record_event(f"Role{state}", f"{reason}: {message}", role=name, level=level)


def drain(draft: Draft, observations: Observations | None) -> bool:
    """Delete what a finished job still has; return whether nothing of it is left."""
    never_started = all(
        not e.desired and not e.attempt and not e.uid for e in draft.instances.values()
    )
    if observations is None:
        if never_started and draft.job.started_at is None:
            _drained(draft)
        return draft.job.drained
    remove_all = draft.spec.clean_pod_policy == "All"
    left = keep_failed(draft)
    for seen in observations.instances:
        if is_kept(draft, seen):
            draft.marked_for_deletion.pop(seen.uid, None)
            continue
        alive = holds_place(seen) or seen.kept
        if alive or remove_all:
            draft.mark_for_deletion(seen)
        # what has ended may stay for longer, as somebody else holds it; of one in place the agent still waits
        left += alive or seen.in_place or seen.can_stay
    for entry in list(draft.instances.values()):
        if entry.final and entry.state == "terminating":
            settle_instance(draft, entry)
            left += draft.instances[entry.key].state == "terminating"
    take_back_unbegun(draft)
    if not left and observations.reachable:
        _drained(draft)
    elif left:
        _name_unreachable(draft, observations)
    return draft.job.drained


def _drained(draft: Draft) -> None:
    if not draft.job.drained:
        draft.job = replace(draft.job, drained=True, finished_at=draft.now)
        killed = killed_note(draft.instances.values()) if draft.job.state == "Stopped" else ""
        if killed and killed not in draft.job.message:
            message = "; ".join(filter(None, (draft.job.message, killed)))
            draft.job = replace(draft.job, message=message)
        if draft.job.state == "Failed":
            draft.record_event(reasons.JOB_FAILED, _outcome(draft), level="error")
        draft.record_event(reasons.JOB_DRAINED, drained_text(draft.job))


def _name_unreachable(draft: Draft, observations: Observations) -> None:
    """Say in the job's message on which nodes nobody can tell what is still alive."""
    nodes = sorted({o.node or "(unknown)" for o in observations.instances if o.state == "unknown"})
    note = "; still waiting for instances on unreachable nodes: "
    if nodes and note not in draft.job.message:
        draft.job = replace(draft.job, message=draft.job.message + note + ", ".join(nodes))


def termination(draft: Draft, seen: Observation) -> tuple[float, bool]:
    """Return the grace of what must end, and whether its stacks are wanted first."""
    grace = save_grace(draft.spec, draft.job, seen.role)
    if draft.job.killed:
        return min(grace, _AT_ONCE_SECONDS), False
    entry = draft.instances.get(seen.key)
    if entry is None or not entry.deletion_mode or entry.uid == seen.uid:
        return grace, False
    return min(grace, _AT_ONCE_SECONDS), entry.deletion_mode == "WithStacks"


def delete_marked(draft: Draft) -> None:
    """Turn the objects that must go into actions; those that are going already are left alone.

    One that takes longer than its grace period is deleted again.
    """
    for seen in draft.marked_for_deletion.values():
        grace, dump_stacks = termination(draft, seen)
        if seen.state == "terminating":
            overdue_at = seen.state_since + 2 * grace
            if draft.now < overdue_at:
                draft.wake(overdue_at)
                continue
        draft.actions.append(
            Delete(
                key=seen.key,
                uid=seen.uid,
                grace_seconds=grace,
                reason=_why(draft, seen),
                dump_stacks=dump_stacks,
            )
        )


def _why(draft: Draft, seen: Observation) -> str:
    """Return the reason of a delete: the same however often it is ordered."""
    entry = draft.instances.get(seen.key)
    if draft.job.state in TERMINAL_JOB_STATES:
        return draft.job.reason
    if entry is None:
        return reasons.NOT_IN_LEDGER
    if entry.retired:
        return reasons.SCALED_DOWN
    if entry.uid == seen.uid:
        return entry.reason
    return reasons.STALE_ATTEMPT
