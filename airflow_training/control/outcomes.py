"""From failures to what happens: who is charged, what restarts, which role or job is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from airflow_training.control import reasons
from airflow_training.control.attempt_replacement import (
    PendingRestart,
    grow_failed,
    replace_attempts,
    replaced_roles,
)
from airflow_training.control.diagnosed import (
    excuse_peers,
    record_consequence,
    record_diagnosis,
)
from airflow_training.control.draft import Draft
from airflow_training.control.elastic import can_shrink, retry_unjoined
from airflow_training.control.ending import close_role, finish
from airflow_training.control.failure_order import explained, in_causal_order
from airflow_training.control.failures import Failure, class_decides
from airflow_training.control.memory import record_memory_ceiling
from airflow_training.control.model import (
    TERMINAL_JOB_STATES,
    AttemptEnd,
    FinalPhase,
    InstanceEntry,
    RestartRecord,
)
from airflow_training.control.peers import missing_peer
from airflow_training.control.policies import RoleVerdict, job_verdict, role_verdict
from airflow_training.control.restarts import (
    Budget,
    CompleteJob,
    FailInstance,
    FailJob,
    RestartDecision,
    Verdict,
    backoff_seconds,
    judge,
    record_of,
)
from airflow_training.control.retry_prospect import CANNOT_START
from airflow_training.control.root_cause import cause_of_failure, cause_of_role, message_of
from airflow_training.control.transitions import fail_for_good
from airflow_training.documents.resolved import ResolvedRole

__all__ = ["apply_failures", "apply_policies", "record_ends"]

_LIMITS = frozenset({reasons.BACKOFF_LIMIT_EXCEEDED, reasons.MAX_RESTARTS_EXCEEDED})
_SPECIFIC = frozenset(
    {
        reasons.BACKOFF_LIMIT_EXCEEDED,
        reasons.EXIT_CODE_PERMANENT,
        reasons.MAX_RESTARTS_EXCEEDED,
        reasons.NOT_RETRYABLE,
        reasons.OUTPUT_FAILED,
        reasons.SAME_ERROR_AGAIN,
    }
)


def apply_failures(draft: Draft, failures: Sequence[Failure]) -> None:
    """Judge new failures, then look at the policies, and restart what the job still needs.

    A failure is charged only if something is restarted for it: not in a job that has just ended,
    and not when the same restart already replaces its attempt.
    """
    current = _that_count(draft, failures)
    if not current:
        apply_policies(draft)
        return
    planned, waiting = _judge_all(draft, current)
    if draft.job.state not in TERMINAL_JOB_STATES:
        apply_policies(draft)
    for failure in (*waiting, *(each.failure for each in planned)):
        if _is_over(draft, failure):
            _record_end(draft, failure)
    needed = [each for each in planned if not _is_over(draft, each.failure)]
    if needed:
        replace_attempts(draft, needed, current)


def _is_over(draft: Draft, failure: Failure) -> bool:
    """Return whether nothing is restarted for it any more: the job has ended, or the role."""
    return draft.job.state in TERMINAL_JOB_STATES or _entry(draft, failure).final


def verdict_of(draft: Draft, role: ResolvedRole) -> RoleVerdict | None:
    """Return how a role ends by what its instances have come to; None while it goes on."""
    groups = [(h, n) for h, n in draft.census.get(role.name, ()) if h.final]
    return role_verdict(
        role,
        replicas=draft.roles[role.name].replicas,
        succeeded=sum(number for head, number in groups if head.state == "succeeded"),
        failed=sum(number for head, number in groups if head.state == "failed"),
    )


def apply_policies(draft: Draft) -> None:
    """End roles, then the job, where their policies say so."""
    for role in draft.spec.roles:
        entry = draft.roles[role.name]
        if entry.state in ("Succeeded", "Failed", "Stopped"):
            continue
        verdict = verdict_of(draft, role)
        if verdict is not None:
            reason, message = verdict.reason, verdict.message
            if verdict.state == "Failed" and draft.gave_up.get(role.name):
                reason, message, _ = draft.gave_up[role.name]
            close_role(draft, role.name, verdict.state, reason=reason, message=message)
    end = job_verdict(draft.spec, {name: role.state for name, role in draft.roles.items()})
    if end is None:
        return
    reason, message = end.reason, end.message
    if end.role and reason == reasons.ROLE_FAILED:
        role_entry = draft.roles[end.role]
        reason = role_entry.reason
        _, _, limit = draft.gave_up.get(end.role, ("", "", ""))
        message = limit or role_entry.message
    finish(
        draft,
        end.state,
        reason=reason,
        message=message,
        root_cause=cause_of_role(
            draft.spec,
            draft.roles,
            draft.instances,
            end.role,
            known=draft.known_reasons,
            diagnoses=draft.diagnoses,
        ),
    )


def _that_count(draft: Draft, failures: Sequence[Failure]) -> list[Failure]:
    """Return the failures to judge: of attempts that are not replaced yet, and not only to join."""
    found = []
    for failure in failures:
        if not _is_current(draft, failure):
            continue
        if _entry(draft, failure).joining:
            retry_unjoined(draft, failure)
        else:
            found.append(failure)
    return found


def _is_current(draft: Draft, failure: Failure) -> bool:
    """Return whether the failed attempt is still the one that counts (a request may have moved on)."""
    entry = draft.instances[failure.key]
    return entry.attempt == failure.attempt and entry.desired and not entry.final


def _entry(draft: Draft, failure: Failure) -> InstanceEntry:
    return draft.instances[failure.key]


def _judge_all(
    draft: Draft, failures: Sequence[Failure]
) -> tuple[list[PendingRestart], list[Failure]]:
    """Return the restarts that failures lead to, in the order in which they happened, and what waits."""
    failures = [
        replace(
            _with_whom_it_waited_for(draft, each),
            last_line=draft.last_words.get(each.attempt_key, ""),
        )
        for each in in_causal_order(draft, failures)
    ]
    for failure in failures:
        entry = _entry(draft, failure)
        excuse_peers(
            draft, record_of(failure, None, entry=entry, epoch=draft.job.epoch, now=draft.now)
        )
    budget = Budget(draft.spec, draft.job)
    planned: list[PendingRestart] = []
    waiting: list[Failure] = []
    """Those that are judged once they are diagnosed."""
    replaced: set[str] = set()
    """Roles all of whose attempts are being replaced already."""
    for number, failure in enumerate(failures):
        entry = _entry(draft, failure)
        verdict = judge(
            draft.spec,
            entry=entry,
            budget=budget,
            failure=failure,
            now=draft.now,
            can_spare=can_shrink(draft, failure),
        )
        others = [] if explained(failure) != "peers" else failures
        if (
            _waits_for_diagnosis(draft, failure, verdict, budget.records, beside=others)
            and failure.role not in replaced
        ):
            waiting.append(failure)
            continue
        if failure.diagnosed is not None:
            record_diagnosis(draft, failure.diagnosed)
        if failure.role in replaced:
            grow_failed(draft, failure)
            draft.record_event(
                reasons.FAILURE_IS_CONSEQUENCE,
                f"{failure.describe()}; already being replaced, not counted",
                of=entry,
            )
            continue
        match verdict:
            case RestartDecision(origin=RestartRecord() as origin):
                record_consequence(draft, entry, failure.describe(), origin)
                delay = backoff_seconds(draft.spec.restart, 0)
                planned.append(
                    PendingRestart(failure=failure, restart=verdict, delay_seconds=delay)
                )
                replaced |= replaced_roles(draft, failure, verdict)
            case RestartDecision(counted=False) if failure.waited_for:
                draft.record_event(
                    reasons.FAILURE_IS_CONSEQUENCE,
                    f"{failure.describe()}: {failure.waited_for}; not counted",
                    of=entry,
                )
                delay = backoff_seconds(draft.spec.restart, 0)
                planned.append(
                    PendingRestart(failure=failure, restart=verdict, delay_seconds=delay)
                )
                replaced |= replaced_roles(draft, failure, verdict)
            case RestartDecision():
                record = record_of(
                    failure, verdict, entry=entry, epoch=draft.job.epoch, now=draft.now
                )
                delay = budget.backoff_seconds(draft.spec.restart, failure, verdict)
                budget.charge(record)
                planned.append(
                    PendingRestart(
                        failure=failure, restart=verdict, delay_seconds=delay, record=record
                    )
                )
                replaced |= replaced_roles(draft, failure, verdict)
            case FailInstance():
                _fail_instance(draft, entry, failure, verdict)
                apply_policies(draft)
                if draft.job.state in TERMINAL_JOB_STATES:
                    # what the others ended with is no reason any more, nor do they use up a limit
                    for each in failures[number + 1 :]:
                        _record_end(draft, each)
                    break
            case FailJob() | CompleteJob():
                for each in failures[number:]:
                    _record_end(draft, each)
                _end_job(draft, failure, verdict)
                break
    return planned, waiting


def _with_whom_it_waited_for(draft: Draft, failure: Failure) -> Failure:
    if failure.reason != reasons.HANG:
        return failure
    return replace(failure, waited_for=missing_peer(draft, _entry(draft, failure)))


def _waits_for_diagnosis(
    draft: Draft,
    failure: Failure,
    verdict: Verdict,
    before: Sequence[RestartRecord],
    *,
    beside: Sequence[Failure],
) -> bool:
    """Return whether what is known soon may change the verdict: the failure's class, or whose a charge is.

    `beside`: failures of the same moment that this one may be a consequence of.
    """
    if _is_known_soon(draft, failure) and (
        isinstance(verdict, FailInstance | FailJob) or class_decides(draft.spec, failure)
    ):
        return True
    if not _meets_limit(failure, verdict):
        return False
    return any(_is_known_soon(draft, each) for each in beside) or any(
        _is_known_soon(draft, each)
        for each in before
        if each.counted and _counts_towards(each, failure, verdict)
    )


def _is_known_soon(draft: Draft, one: Failure | RestartRecord) -> bool:
    return one.attempt_key in draft.undiagnosed


def _meets_limit(failure: Failure, verdict: Verdict) -> bool:
    """Return whether a limit is used up, which ends something, or lets the job begin afresh or smaller."""
    match verdict:
        case FailInstance(reason=reason) | FailJob(reason=reason):
            return reason in _LIMITS
        case RestartDecision(scope=scope, fewer=fewer):
            return scope == "FreshJob" or (fewer and failure.reason != reasons.UNSCHEDULABLE)
        case CompleteJob():
            return False


def _counts_towards(record: RestartRecord, failure: Failure, verdict: Verdict) -> bool:
    """Return whether a restart is one of those that have used up the limit of a verdict."""
    match verdict:
        case FailInstance(reason=reasons.BACKOFF_LIMIT_EXCEEDED):
            return record.key == failure.key
        case FailInstance():
            return record.role == failure.role
        case _:
            return True


def _fail_instance(
    draft: Draft, entry: InstanceEntry, failure: Failure, verdict: FailInstance
) -> None:
    if verdict.rule == CANNOT_START:
        failure = replace(failure, message=verdict.message)  # without what a runtime says around it
    changed = fail_for_good(
        draft,
        replace(
            entry,
            reason=failure.reason or reasons.INSTANCE_FAILED,
            message=failure.message or verdict.message,
            finished_at=failure.at,
        ),
        _end_of(failure),
    )
    if failure.diagnosed is not None:  # also where the log of another has named it
        draft.diagnoses[failure.attempt_key] = failure.diagnosed
    record_memory_ceiling(draft, entry, reason=failure.reason, told=failure.diagnosed)
    if verdict.reason in _SPECIFIC:
        detail = f"{failure.key}: {verdict.message}"
        if verdict.limit:
            detail = message_of(cause_of_failure(failure), verdict.limit)
        draft.gave_up[failure.role] = (verdict.reason, detail, verdict.limit)
    draft.record_event(
        reasons.INSTANCE_FAILED,
        verdict.message,
        of=changed,
        rule=verdict.rule,
        level="error",
        failure_class=failure.failure_class,
    )


def record_ends(draft: Draft, failures: Sequence[Failure]) -> None:
    """Keep how instances had failed by themselves that are seen to at the moment in which their job is stopped."""
    for failure in failures:
        entry = _entry(draft, failure)
        if entry.final and entry.attempt == failure.attempt:
            _record_end(draft, failure)


def _record_end(draft: Draft, failure: Failure) -> None:
    """Keep how an instance failed in a job that ends at the same moment; nothing is charged."""
    entry = draft.instances[failure.key]
    draft.put(
        replace(
            entry,
            reason=failure.reason or reasons.INSTANCE_FAILED,
            message=failure.message,
            phase=FinalPhase(end=_end_of(failure)),
            state="failed",
        )
    )


def _end_of(failure: Failure) -> AttemptEnd:
    return AttemptEnd(failure.exit_code, failure.signal, failure.failure_class, failure.is_of_node)


def _end_job(draft: Draft, failure: Failure, verdict: FailJob | CompleteJob) -> None:
    if isinstance(verdict, FailJob):
        finish(
            draft,
            "Failed",
            reason=verdict.reason,
            message=verdict.message,
            rule=verdict.rule,
            root_cause=cause_of_failure(failure),
        )
    else:
        finish(
            draft,
            "Succeeded",
            reason=reasons.COMPLETED_BY_RULE,
            message=verdict.message,
            rule=verdict.rule,
        )
