"""Restarts that were decided and never began, as their role or job has ended before: nothing is charged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from airflow_training.control import reasons
from airflow_training.control.draft import Draft
from airflow_training.control.failures import Failure
from airflow_training.control.model import (
    AttemptEnd,
    FailedAttempt,
    FinalPhase,
    InstanceEntry,
    RestartRecord,
)
from airflow_training.documents.text import headline

__all__ = ["failed_attempt", "take_back_unbegun"]

_OVER = frozenset({"Failed", "Stopped"})


def failed_attempt(failure: Failure) -> FailedAttempt:
    """Make of a failure what is told of its attempt, should no other one follow."""
    return FailedAttempt(
        attempt_id=failure.attempt_id,
        reason=failure.reason or reasons.INSTANCE_FAILED,
        message=failure.message or failure.describe(),
        finished_at=failure.at,
        node=failure.node,
        end=AttemptEnd(
            failure.exit_code, failure.signal, failure.failure_class, failure.is_of_node
        ),
    )


def take_back_unbegun(draft: Draft) -> None:
    """Tell of instances that are not restarted after all how their last attempt failed."""
    over = {name for name, role in draft.roles.items() if role.state in _OVER}
    if not over:
        return
    for entry in list(draft.instances.values()):
        before = entry.before
        if before is not None and entry.role in over and entry.state == "stopped":
            _take_back(draft, entry, before)


def _take_back(draft: Draft, entry: InstanceEntry, before: FailedAttempt) -> None:
    key = before.attempt_key(entry.key)
    charge = next((each for each in draft.job.restarts if each.attempt_key == key), None)
    counted = False
    if charge is not None and not _used_up_a_limit(draft, charge):
        counted = charge.counted
        left = tuple(each for each in draft.job.restarts if each is not charge)
        draft.job = replace(draft.job, restarts=left)
    changed = draft.put(
        replace(
            entry,
            phase=FinalPhase(end=before.end),
            attempt_id=before.attempt_id,
            before=None,
            state="failed",
            reason=before.reason,
            message=_words(draft, entry, before),
            restarts=max(0, entry.restarts - counted),
            node=before.node,
            finished_at=before.finished_at,
        )
    )
    draft.record_event(
        reasons.INSTANCE_FAILED,
        f"{changed.message}; its restart had not begun and is taken back",
        of=changed,
        level="warning",
        failure_class=before.end.failure_class,
    )


def _used_up_a_limit(draft: Draft, charge: RestartRecord) -> bool:
    """Return whether a limit ended it all that this restart counts towards: then it says why."""
    ends: Iterable[str] = (draft.job.reason, draft.roles[charge.role].reason)
    return charge.counted and reasons.MAX_RESTARTS_EXCEEDED in ends


def _words(draft: Draft, entry: InstanceEntry, before: FailedAttempt) -> str:
    key = before.attempt_key(entry.key)
    told, last = draft.diagnoses.get(key), draft.last_words.get(key)
    if told is not None and told.cause.id != "unknown":
        return headline(told.cause.evidence)
    return f"{before.message}: last line: {headline(last)}" if last else before.message
