"""How one instance passes on: to its next attempt, or to its end. Used by every step that stops one."""

from __future__ import annotations

from typing import Any, Literal

from airflow_training.control import reasons
from airflow_training.control.draft import Draft
from airflow_training.control.model import InstanceEntry, InstanceKey, InstanceState

__all__ = [
    "AT_REST",
    "ENDED",
    "SETTLE_SECONDS",
    "close",
    "fail_for_good",
    "let_go",
    "makes_room",
    "next_attempt",
    "settle",
]

ENDED = frozenset({"succeeded", "failed"})
"""States of an object in which nothing of it is alive."""

SETTLE_SECONDS = 5.0
"""How long an instance whose creation was ordered, but that nobody has seen yet, may still appear."""

AT_REST: dict[str, Literal[False, ""] | None] = {
    "wanted": False,
    "address_live": False,
    "port_open": False,
    "ready": False,
    "deadline_at": None,
    "replace_at": None,
    "stays": "",
    "stays_until": None,
}
"""What holds for every instance that has no living object of its current attempt any more."""


def next_attempt(
    draft: Draft, entry: InstanceEntry, *, reason: str, message: str = "", **changes: Any
) -> InstanceEntry:
    """Give up the current attempt: its object becomes a stale one, and the next may follow.

    The number only moves when an object of the current one can exist. The object goes, unless
    `stays` among the changes names it: see `in_place`.
    """
    used = entry.wanted or entry.final
    seen = draft.objects.get(entry.uid) if entry.uid else None
    state: InstanceState = "pending"
    let_go(draft, entry)
    if seen is not None:
        if changes.get("stays") != seen.uid:
            draft.doom(seen)
        draft.occupy(seen)
        if seen.state not in ENDED:
            state = "unknown" if seen.state == "unknown" else "terminating"
    draft.current.pop((entry.role, entry.index), None)
    facts: dict[str, Any] = {
        **AT_REST,
        "epoch": draft.job.epoch,
        "job_attempt": draft.job.job_attempt,
        "attempt": entry.attempt + 1 if used else entry.attempt,
        "uid": "",
        "node": "",
        "state": state,
        "reason": reason,
        "message": message,
        "exit_code": None,
        "signal": None,
        "failure_class": None,
        "final": False,
        "released": False,
        "was_running": False,
        "started_at": None,
        "finished_at": None,
        "parting": "",
    }
    if entry.wanted and not entry.uid:
        facts["deadline_at"] = entry.wanted_at + SETTLE_SECONDS
    return draft.change(entry, **(facts | changes))


def close(draft: Draft, entry: InstanceEntry, *, reason: str) -> None:
    """End an instance that nobody needs any more; it is settled when nothing of it is alive."""
    if entry.final:
        return
    let_go(draft, entry)
    seen = draft.objects.get(entry.uid) if entry.uid else None
    facts: dict[str, Any] = {**AT_REST, "final": True, "reason": reason, "message": ""}
    if seen is not None and seen.state not in ENDED:
        draft.doom(seen)
        facts["state"] = "terminating"
    elif not entry.uid and (unseen_until := _may_appear_until(entry)) is not None:
        facts["state"] = "terminating"
        facts["deadline_at"] = unseen_until
    elif entry.wanted:
        facts["state"] = _rest(reason)
    elif _alive(draft, entry):
        facts["state"] = "terminating"  # an object of an older attempt, which is deleted as such
    elif entry.attempt:
        facts["state"] = _rest(reason)
    else:
        facts |= {"state": "pending", "reason": reasons.NOT_NEEDED}
    draft.change(entry, **facts)


def fail_for_good(draft: Draft, entry: InstanceEntry, **facts: Any) -> InstanceEntry:
    """End an instance as failed: it does not run again in this epoch."""
    let_go(draft, entry)
    seen = draft.objects.get(entry.uid) if entry.uid else None
    if seen is not None and seen.state not in ENDED:
        draft.doom(seen)
    return draft.change(entry, **AT_REST, **facts, final=True, state="failed")


def settle(draft: Draft, entry: InstanceEntry) -> None:
    """Move a closed instance from `terminating` to its last state once nothing of it is alive."""
    if not entry.final or entry.state != "terminating":
        return
    if _alive(draft, entry):
        return
    if entry.deadline_at is not None and draft.now < entry.deadline_at:
        draft.wake(entry.deadline_at)
        return
    draft.change(entry, state=_rest(entry.reason), deadline_at=None)


def _alive(draft: Draft, entry: InstanceEntry) -> bool:
    """Return whether an object of any attempt of this instance is alive."""
    key = (entry.role, entry.index)
    objects = (draft.objects.get(entry.uid), draft.current.get(key), draft.occupied.get(key))
    return any(seen is not None and seen.state not in ENDED for seen in objects)


def makes_room(draft: Draft, key: InstanceKey) -> bool:
    """Return whether no older object stands in the way of a new one.

    One that has ended does until it is gone, but not where the new one begins inside it, and not in
    a group of Kueue: Kueue keeps it until it sees the replacement.
    """
    old = draft.occupied.get(key)
    if old is None:
        return True
    stays = draft.instances[key].stays == old.uid
    return old.state in ENDED and (stays or draft.spec.scheduling.gang == "kueue")


def let_go(draft: Draft, entry: InstanceEntry) -> None:
    """Delete the instance inside which an attempt was to begin that is given up now."""
    seen = draft.objects.get(entry.stays) if entry.stays else None
    if seen is not None:
        draft.doom(seen)


def _may_appear_until(entry: InstanceEntry) -> float | None:
    return entry.wanted_at + SETTLE_SECONDS if entry.wanted else entry.deadline_at


def _rest(reason: str) -> InstanceState:
    return "succeeded" if reason == reasons.STOPPED_AFTER_SUCCESS else "failed"
