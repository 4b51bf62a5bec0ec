"""Restarts that were decided on: they are charged, and all in their scopes moves to the next attempt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from airflow_training.control import reasons
from airflow_training.control.draft import Draft
from airflow_training.control.elastic import renumber, shrink_role
from airflow_training.control.failures import Failure
from airflow_training.control.in_place import place_of, place_of_survivor
from airflow_training.control.memory import grow_memory
from airflow_training.control.model import (
    OWN_INSTANCE,
    DeletionMode,
    InstanceEntry,
    RestartRecord,
)
from airflow_training.control.reason_facts import LEVELS
from airflow_training.control.recovery import (
    is_one_group,
    is_shared,
    record_restart_point,
    roll_back,
)
from airflow_training.control.recovery_level import RecoveryChoice, recovery_level
from airflow_training.control.restarts import Budget, RestartDecision
from airflow_training.control.transitions import next_attempt, nodes_to_avoid
from airflow_training.control.unbegun import failed_attempt
from airflow_training.documents.text import headline

__all__ = ["PendingRestart", "grow_failed", "replace_attempts", "replaced_roles"]

_WORDS = 120
"""Characters of what a failed attempt said: the limits shall be seen, too."""
_WHOLE_JOB = frozenset({"Job", "FreshJob"})
_RESTARTED = {
    "Instance": reasons.INSTANCE_RESTARTED,
    "Role": reasons.ROLE_RESTARTED,
    "Job": reasons.JOB_RESTARTED,
    "FreshJob": reasons.FRESH_JOB,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRestart:
    """A restart that happens unless the job or the role ends at the same moment."""

    failure: Failure
    restart: RestartDecision
    delay_seconds: float
    record: RestartRecord | None = None
    """The line that charges it; None: a consequence of what was charged before."""


def replaced_roles(draft: Draft, failure: Failure, restart: RestartDecision) -> frozenset[str]:
    """Return the roles all of whose attempts a restart replaces."""
    if restart.scope in _WHOLE_JOB:
        return frozenset(draft.roles)
    return frozenset({failure.role} if restart.scope == "Role" else ())


def replace_attempts(
    draft: Draft, planned: Sequence[PendingRestart], failures: Sequence[Failure]
) -> None:
    """Charge the failures and move everything in their scopes to the next attempt.

    `failures`: all of this moment, also those that are restarted with another.
    """
    beside = {each.key: failed_attempt(each) for each in failures}
    charged = tuple(each.record for each in planned if each.record)
    draft.job = replace(draft.job, restarts=draft.job.restarts + charged)
    for each in planned:
        failure, restart = each.failure, each.restart
        fresh, whole_job = restart.scope == "FreshJob", restart.scope in _WHOLE_JOB
        if restart.fewer:
            shrink_role(draft, failure)
        if whole_job:
            renumber(draft)
        entry = _entry(draft, failure)
        needs = recovery_level(
            failure.failure_class, failure.reason, failure.known, failure.environment, LEVELS
        )
        _record_restart(draft, each, entry, needs)
        if whole_job:
            draft.job = replace(
                draft.job,
                state="Restarting",
                reason=reasons.FRESH_JOB if fresh else reasons.RESTARTING,
                message=f"{failure.key}: {failure.describe()}",
                job_attempt=draft.job.job_attempt + 1,
                fresh_jobs=draft.job.fresh_jobs + fresh,
                restart_at=draft.now + each.delay_seconds,
            )
        if whole_job or is_one_group(draft.spec):
            record_restart_point(draft, failure, fresh=fresh)
        else:
            roll_back(draft, failure)
        grow_failed(draft, failure)
        entry = _entry(draft, failure)  # which may have another checkpoint now
        deletion_mode = _deletion_mode(draft, failure)
        # a fresh job owes nothing to what was there before
        host = OWN_INSTANCE if fresh else place_of(draft, entry, needs.level)
        replace_at = None if whole_job else draft.now + each.delay_seconds
        counted = restart.counted and not fresh
        next_attempt(
            draft,
            replace(
                entry,
                restarts=0 if fresh or restart.fewer else entry.restarts + counted,
                avoid_nodes=_avoided(entry, failure, needs),
                last_try=restart.last,
            ),
            reason=reasons.BACKOFF,
            message=f"attempt {entry.attempt}: {_told(draft, failure)}",
            replace_at=replace_at,
            deletion_mode=deletion_mode,
            host=host,
            failed=failed_attempt(failure),
        )
        for other in _others_in_scope(draft, each):
            next_attempt(
                draft,
                replace(other, restarts=0 if fresh else other.restarts),
                reason=reasons.RESTARTING,
                message=f"restarted with {failure.key}",
                replace_at=replace_at,
                deletion_mode=deletion_mode,
                host=OWN_INSTANCE if fresh else place_of_survivor(draft, other),
                failed=beside.get(other.key),
            )
        _show_restarting(draft, failure, restart)


def _entry(draft: Draft, failure: Failure) -> InstanceEntry:
    return draft.instances[failure.key]


def grow_failed(draft: Draft, failure: Failure) -> bool:
    """Give the next attempt more memory where this one failed for lack of it; return whether it gets more."""
    return grow_memory(
        draft,
        _entry(draft, failure),
        after=failure.attempt,
        reason=failure.reason,
        told=failure.diagnosed,
    )


def _deletion_mode(draft: Draft, failure: Failure) -> DeletionMode:
    """Return how what goes down with a failed instance is ended.

    A checkpoint needs every rank: without one the others have nothing to save, and what waits for
    it in a collective operation would use up its whole grace. What only leaves its node still has all.
    """
    if failure.reason == reasons.HANG:
        return "WithStacks"
    if failure.reason == reasons.NODE_UNFIT:
        return ""
    return "AtOnce" if draft.spec.checkpoint is not None and is_shared(draft.spec) else ""


def _others_in_scope(draft: Draft, planned: PendingRestart) -> list[InstanceEntry]:
    failure, scope = planned.failure, planned.restart.scope
    if scope == "Instance":
        return []
    return [
        entry
        for key, entry in draft.instances.items()
        if key != failure.key
        and not entry.retired
        and (scope in _WHOLE_JOB or entry.role == failure.role)
        and not _is_left_alone(draft, entry, fresh=scope == "FreshJob")
    ]


def _avoided(entry: InstanceEntry, failure: Failure, needs: RecoveryChoice) -> tuple[str, ...]:
    """Return the nodes that the next attempt keeps away from, where there are others."""
    return nodes_to_avoid(entry, failure.node) if needs.level == "node" else entry.avoid_nodes


def _told(draft: Draft, failure: Failure) -> str:
    """Return how an attempt failed and why: what its log says, its own message, or its last line."""
    how, last = failure.describe(), draft.last_words.get(failure.attempt_key)
    if failure.diagnosed is not None:
        why = headline(failure.diagnosed.cause.evidence, most=_WORDS)
    elif failure.message:
        why = headline(failure.message, most=_WORDS)
    elif last is not None:
        why = f"last line: {headline(last, most=_WORDS)}" if last else "it printed nothing"
    else:
        why = ""
    return f"{how}: {why}" if why and why not in how else how


def _count(draft: Draft, planned: PendingRestart, entry: InstanceEntry) -> str:
    """Return how many restarts that makes, of as many as the limit allows that leaves the fewest."""
    if planned.restart.scope == "FreshJob":
        return f"fresh job {draft.job.fresh_jobs + 1} of {draft.spec.restart.max_fresh_jobs}"
    if planned.record is None or not planned.restart.counted:
        return "counts towards no limit"
    role, budget = draft.spec.role(entry.role), Budget(draft.spec, draft.job)
    limits = [
        (entry.restarts + 1, role.backoff_limit, "backoffLimit"),
        (budget.spent, draft.spec.restart.max_restarts, "maxRestarts"),
    ]
    if role.max_restarts is not None:
        spent = budget.spent_by(role.name)
        limits.append((spent, role.max_restarts, f"maxRestarts of {role.name}"))
    number, most, name = min(limits, key=lambda each: each[1] - each[0])
    return f"restart {number} of {most} ({name})"


def _record_restart(
    draft: Draft, planned: PendingRestart, entry: InstanceEntry, needs: RecoveryChoice
) -> None:
    failure, restart = planned.failure, planned.restart
    draft.record_event(
        _RESTARTED[restart.scope],
        f"{_told(draft, failure)}; {_count(draft, planned, entry)},"
        f" next attempt in {planned.delay_seconds:g} s",
        of=entry,
        rule=restart.rule,
        level="warning",
        failure_class=failure.failure_class,
        scope=restart.scope,
        counted=restart.counted,
        exit_code=failure.exit_code,
        signal=failure.signal,
        recovery=needs.level,
        recovery_why=needs.why,
    )


def _is_left_alone(draft: Draft, entry: InstanceEntry, *, fresh: bool) -> bool:
    """Return whether a restart leaves an instance alone: what has ended stays ended.

    Only a fresh job tries again what had failed for good, unless its role is over.
    """
    if not entry.final:
        return False
    over = draft.roles[entry.role].state in ("Succeeded", "Failed", "Stopped")
    return not (fresh and entry.state == "failed" and not over)


def _show_restarting(draft: Draft, failure: Failure, restart: RestartDecision) -> None:
    names = list(draft.roles) if restart.scope in _WHOLE_JOB else [failure.role]
    for name in names:
        if draft.roles[name].state in ("Starting", "Running", "Restarting"):
            draft.set_role(
                name,
                state="Restarting",
                reason=reasons.RESTARTING,
                message=f"{failure.key}: {failure.describe()}",
            )
