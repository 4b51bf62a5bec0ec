"""How one instance passes on: to its next attempt, or to its end. Used by every step that stops one."""

from __future__ import annotations

from dataclasses import replace

from airflow_training.control import reasons
from airflow_training.control.draft import Draft
from airflow_training.control.model import (
    NO_END,
    OWN_INSTANCE,
    ActivePhase,
    AttemptEnd,
    AttemptHost,
    DeletionMode,
    FailedAttempt,
    FinalPhase,
    InstanceEntry,
    PendingPhase,
)
from airflow_training.control.observations import InstanceState, Observation
from airflow_training.documents.instances import InstanceKey

__all__ = [
    "ENDED",
    "SETTLE_SECONDS",
    "close_instance",
    "delete_initializer",
    "fail_for_good",
    "holds_place",
    "is_vacant",
    "never_started",
    "next_attempt",
    "nodes_to_avoid",
    "settle_instance",
]

ENDED = frozenset({"succeeded", "failed"})
"""States of an object in which nothing of it is alive."""

_STOPPED_BY_US = "stopped by us"
"""Of what did not fail by itself, whatever it left as exit code."""

_NODES_AVOIDED = 4
SETTLE_SECONDS = 5.0
"""How long an instance whose creation was ordered, but that nobody has seen yet, may still appear."""


def next_attempt(
    draft: Draft,
    entry: InstanceEntry,
    *,
    reason: str,
    message: str = "",
    replace_at: float | None = None,
    deletion_mode: DeletionMode = "",
    host: AttemptHost = OWN_INSTANCE,
    failed: FailedAttempt | None = None,
) -> InstanceEntry:
    """Give up the current attempt: its object becomes a stale one, and the next may follow.

    The number only moves when an object of the current one can exist. The object goes, unless it is
    the `host` of the next one: see `in_place`. What else is to be another than now, `entry` says.
    `failed`: how the current attempt ended, where it did by itself.
    """
    used = entry.desired or entry.final
    before = failed if used else entry.before
    if before is not None and before.attempt_id.epoch != draft.job.epoch:
        before = None
    seen = draft.objects.get(entry.uid) if entry.uid else None
    state: InstanceState = "pending"
    delete_initializer(draft, entry)
    if seen is not None:
        if host.uid != seen.uid:
            draft.mark_for_deletion(seen)
        draft.occupy(seen)
        if seen.state not in ENDED:
            state = "unknown" if seen.state == "unknown" else "terminating"
    draft.current.pop(entry.key, None)
    unseen = entry.desired and not entry.uid
    return draft.put(
        replace(
            entry,
            phase=PendingPhase(
                replace_at=replace_at, deadline_at=_may_appear_until(entry) if unseen else None
            ),
            avoid_nodes=nodes_to_avoid(entry, entry.node)
            if entry.reason == reasons.NODE_UNFIT
            else entry.avoid_nodes,
            attempt_id=replace(
                entry.attempt_id,
                epoch=draft.job.epoch,
                job_attempt=draft.job.job_attempt,
                attempt=entry.attempt + used,
            ),
            uid="",
            node="",
            state=state,
            reason=reason,
            message=message,
            was_running=False,
            started_at=None,
            finished_at=None,
            deletion_mode=deletion_mode,
            host=host,
            before=before,
        )
    )


def nodes_to_avoid(entry: InstanceEntry, node: str) -> tuple[str, ...]:
    """Return the nodes that the next attempt keeps away from where there are others: one more."""
    others = [each for each in entry.avoid_nodes if each != node]
    return tuple([*others, node][-_NODES_AVOIDED:]) if node else entry.avoid_nodes


def holds_place(seen: Observation) -> bool:
    """Return whether anything of an object is alive, be it only what ran beside its program."""
    return seen.state not in ENDED or seen.lingers


def never_started(waited: str) -> str:
    """Return why something has never started that nobody needs any more. `waited`: what it waited for, in words."""
    return (
        f"never started: it waited, as {waited}" if waited else "never started: its turn never came"
    )


def close_instance(draft: Draft, entry: InstanceEntry, *, reason: str) -> None:
    """End an instance that nobody needs any more; it is settled when nothing of it is alive."""
    if entry.final:
        return
    delete_initializer(draft, entry)
    seen = draft.objects.get(entry.uid) if entry.uid else None
    state: InstanceState = "terminating"
    deadline_at = None
    if seen is not None and seen.lingers:
        draft.mark_for_deletion(seen)
    if seen is not None and seen.state not in ENDED:
        draft.mark_for_deletion(seen)
    elif not entry.uid and (unseen_until := _may_appear_until(entry)) is not None:
        deadline_at = unseen_until
    elif entry.desired:
        state = _rest(reason)
    elif _alive(draft, entry):
        pass  # an object of an older attempt, which is deleted as such
    elif entry.attempt:
        state = _rest(reason)
    else:
        state, reason = "stopped", reasons.NOT_NEEDED
    words = _STOPPED_BY_US if reason == reasons.STOPPED else ""
    has_run = entry.was_running or entry.attempt
    if words and entry.state == "pending" and not has_run and entry.message:
        words = f"{words} before it ran: it waited, as {entry.message}"
    if reason == reasons.NOT_NEEDED:
        words = never_started(entry.message)
    draft.put(
        replace(
            entry,
            phase=FinalPhase(deadline_at=deadline_at),
            state=state,
            reason=reason,
            message=words,
            host=OWN_INSTANCE,
        )
    )


def fail_for_good(draft: Draft, entry: InstanceEntry, end: AttemptEnd = NO_END) -> InstanceEntry:
    """End an instance as failed, of what `entry` says: it does not run again in this epoch."""
    delete_initializer(draft, entry)
    seen = draft.objects.get(entry.uid) if entry.uid else None
    if seen is not None and holds_place(seen):
        draft.mark_for_deletion(seen)
    return draft.put(
        replace(entry, phase=FinalPhase(end=end), state="failed", host=OWN_INSTANCE, before=None)
    )


def settle_instance(draft: Draft, entry: InstanceEntry) -> None:
    """Move a closed instance from `terminating` to its last state once nothing of it is alive."""
    phase = entry.phase
    if not isinstance(phase, FinalPhase) or entry.state != "terminating":
        return
    if _alive(draft, entry):
        return
    if phase.deadline_at is not None and draft.now < phase.deadline_at:
        draft.wake(phase.deadline_at)
        return
    draft.put(replace(entry, state=_rest(entry.reason), phase=replace(phase, deadline_at=None)))


def _alive(draft: Draft, entry: InstanceEntry) -> bool:
    """Return whether an object of any attempt of this instance is alive."""
    key = entry.key
    objects = (draft.objects.get(entry.uid), draft.current.get(key), draft.occupied.get(key))
    return any(seen is not None and seen.state not in ENDED for seen in objects)


def is_vacant(draft: Draft, key: InstanceKey) -> bool:
    """Return whether no older object stands in the way of a new one.

    One that has ended does until it is gone, but not where the new one begins inside it, and not in
    a group that keeps its size: that keeps it until it sees the replacement.
    """
    old = draft.occupied.get(key)
    if old is None:
        return True
    stays = draft.instances[key].host.uid == old.uid
    if old.can_stay:  # its agent lives until it is gone
        return False
    return old.state in ENDED and (stays or draft.spec.scheduling.keeps_size)


def delete_initializer(draft: Draft, entry: InstanceEntry) -> None:
    """Delete the instance inside which an attempt was to begin that is given up now."""
    seen = draft.objects.get(entry.host.uid) if entry.host.uid else None
    if seen is not None:
        draft.mark_for_deletion(seen)


def _may_appear_until(entry: InstanceEntry) -> float | None:
    phase = entry.phase
    return (
        phase.desired_since + SETTLE_SECONDS
        if isinstance(phase, ActivePhase)
        else phase.deadline_at
    )


def _rest(reason: str) -> InstanceState:
    return "succeeded" if reason == reasons.STOPPED_AFTER_SUCCESS else "stopped"
