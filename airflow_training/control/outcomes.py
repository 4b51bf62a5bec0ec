"""From failures to what happens: who is charged, what restarts, which role or job is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from airflow_training.control import reasons
from airflow_training.control.draft import Draft
from airflow_training.control.ending import close_role, finish
from airflow_training.control.failures import Failure
from airflow_training.control.model import TERMINAL_JOB_STATES, InstanceEntry
from airflow_training.control.policies import job_verdict, role_verdict
from airflow_training.control.restarts import (
    CompleteJob,
    FailJob,
    GiveUp,
    Restart,
    backoff_seconds,
    judge,
    record_of,
)
from airflow_training.control.root_cause import cause_of_failure, cause_of_role
from airflow_training.control.turnover import fail_for_good, next_attempt

__all__ = ["apply_policies", "reckon"]

_SPECIFIC = frozenset({reasons.BACKOFF_LIMIT_EXCEEDED, reasons.EXIT_CODE_PERMANENT})


def reckon(draft: Draft, failures: Sequence[Failure]) -> None:
    """Judge new failures, then look at the policies, and restart what the job still needs.

    A failure is charged only if something is restarted for it: not in a job that has just ended,
    and not when the same restart already replaces its attempt.
    """
    planned = _judge_all(draft, [each for each in failures if _is_current(draft, each)])
    if draft.job.state not in TERMINAL_JOB_STATES:
        apply_policies(draft)
    for failure, restart in planned:
        if draft.job.state in TERMINAL_JOB_STATES:
            _record_end(draft, failure)
        elif not draft.instances[failure.role, failure.index].final:
            _restart(draft, failure, restart)


def apply_policies(draft: Draft) -> None:
    """End roles, then the job, where their policies say so."""
    for role in draft.spec.roles:
        entry = draft.roles[role.name]
        if entry.state in ("Succeeded", "Failed", "Stopped"):
            continue
        groups = [(h, n) for h, n in draft.census.get(role.name, ()) if h.final]
        verdict = role_verdict(
            role,
            replicas=entry.replicas,
            succeeded=sum(number for head, number in groups if head.state == "succeeded"),
            failed=sum(number for head, number in groups if head.state == "failed"),
        )
        if verdict is not None:
            reason, message = verdict.reason, verdict.message
            if verdict.state == "Failed" and draft.gave_up.get(role.name):
                reason, detail = draft.gave_up[role.name]
                message = f"{message}: {detail}"
            close_role(draft, role.name, verdict.state, reason=reason, message=message)
    end = job_verdict(draft.spec, {name: role.state for name, role in draft.roles.items()})
    if end is None:
        return
    reason, message = end.reason, end.message
    if end.role and reason == reasons.ROLE_FAILED:
        role_entry = draft.roles[end.role]
        reason, message = role_entry.reason, f"{message}: {role_entry.message}"
    finish(
        draft,
        end.state,
        reason=reason,
        message=message,
        root_cause=cause_of_role(draft.spec, draft.roles, draft.instances, end.role),
    )


def _is_current(draft: Draft, failure: Failure) -> bool:
    """Return whether the failed attempt is still the one that counts (a request may have moved on)."""
    entry = draft.instances[failure.role, failure.index]
    return entry.attempt == failure.attempt and entry.wanted and not entry.final


def _judge_all(draft: Draft, failures: Sequence[Failure]) -> list[tuple[Failure, Restart]]:
    planned: list[tuple[Failure, Restart]] = []
    for number, failure in enumerate(failures):
        entry = draft.instances[failure.role, failure.index]
        if any(_covers(restart, cause, failure) for cause, restart in planned):
            draft.tell(
                reasons.FAILURE_IS_CONSEQUENCE,
                f"{failure.describe()}; already being replaced, not counted",
                of=entry,
            )
            continue
        records = tuple(
            record_of(cause, restart, epoch=draft.job.epoch, now=draft.now)
            for cause, restart in planned
        )
        charged = (
            replace(draft.job, restarts=draft.job.restarts + records) if records else draft.job
        )
        verdict = judge(draft.spec, entry=entry, job=charged, failure=failure, now=draft.now)
        match verdict:
            case Restart():
                planned.append((failure, verdict))
            case GiveUp():
                _give_up(draft, entry, failure, verdict)
            case FailJob() | CompleteJob():
                for each in failures[number:]:
                    _record_end(draft, each)
                _end_job(draft, failure, verdict)
                break
    return planned


def _covers(restart: Restart, cause: Failure, failure: Failure) -> bool:
    """Return whether a planned restart replaces the attempt that failed too."""
    if restart.scope in ("Job", "FreshJob"):
        return True
    return restart.scope == "Role" and cause.role == failure.role


def _give_up(draft: Draft, entry: InstanceEntry, failure: Failure, verdict: GiveUp) -> None:
    changed = fail_for_good(
        draft,
        entry,
        reason=failure.reason or reasons.INSTANCE_FAILED,
        message=failure.message or verdict.message,
        exit_code=failure.exit_code,
        signal=failure.signal,
        failure_class=failure.failure_class,
        finished_at=failure.at,
    )
    if verdict.reason in _SPECIFIC:
        detail = f"{failure.role}-{failure.index}: {verdict.message}"
        draft.gave_up[failure.role] = (verdict.reason, detail)
    draft.tell(
        reasons.INSTANCE_FAILED,
        verdict.message,
        of=changed,
        rule=verdict.rule,
        level="error",
        failure_class=failure.failure_class,
    )


def _record_end(draft: Draft, failure: Failure) -> None:
    """Keep how an instance failed in a job that ends at the same moment; nothing is charged."""
    entry = draft.instances[failure.role, failure.index]
    draft.change(
        entry,
        reason=failure.reason or reasons.INSTANCE_FAILED,
        message=failure.message,
        exit_code=failure.exit_code,
        signal=failure.signal,
        failure_class=failure.failure_class,
        final=True,
        wanted=False,
        address_live=False,
        port_open=False,
        ready=False,
        deadline_at=None,
        state="failed",
    )


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


def _restart(draft: Draft, failure: Failure, restart: Restart) -> None:
    """Charge the failure and move everything in its scope to the next attempt."""
    entry = draft.instances[failure.role, failure.index]
    delay = backoff_seconds(draft.spec.restart, draft.job, failure, restart)
    fresh = restart.scope == "FreshJob"
    whole_job = fresh or restart.scope == "Job"
    record = record_of(failure, restart, epoch=draft.job.epoch, now=draft.now)
    draft.set_job(restarts=(*draft.job.restarts, record))
    if whole_job:
        draft.set_job(
            state="Restarting",
            reason=reasons.FRESH_JOB if fresh else reasons.RESTARTING,
            message=f"{failure.role}-{failure.index}: {failure.describe()}",
            job_attempt=draft.job.job_attempt + 1,
            fresh_jobs=draft.job.fresh_jobs + fresh,
            restart_at=draft.now + delay,
        )
    text = f"{failure.describe()}, next attempt in {delay:g} s"
    draft.tell(
        reasons.FRESH_JOB
        if fresh
        else {
            "Instance": reasons.INSTANCE_RESTARTED,
            "Role": reasons.ROLE_RESTARTED,
            "Job": reasons.JOB_RESTARTED,
        }[restart.scope],
        text,
        of=entry,
        rule=restart.rule,
        level="warning",
        failure_class=failure.failure_class,
        scope=restart.scope,
        counted=restart.counted,
        exit_code=failure.exit_code,
        signal=failure.signal,
    )
    message = f"attempt {entry.attempt}: {failure.describe()}"
    for each in list(draft.instances.values()):
        mine = each is entry
        in_scope = mine or whole_job or (restart.scope == "Role" and each.role == failure.role)
        if not in_scope or each.retired or _stays(draft, each, fresh=fresh):
            continue
        changes = {"restarts": 0} if fresh else {}
        if mine and restart.counted and not fresh:
            changes["restarts"] = each.restarts + 1
        next_attempt(
            draft,
            each,
            reason=reasons.BACKOFF if mine else reasons.RESTARTING,
            message=message if mine else f"restarted with {failure.role}-{failure.index}",
            replace_at=None if whole_job else draft.now + delay,
            **changes,
        )
    _show_restarting(draft, failure, restart)


def _stays(draft: Draft, entry: InstanceEntry, *, fresh: bool) -> bool:
    """Return whether a restart leaves an instance alone: what has ended stays ended.

    Only a fresh job tries again what had failed for good, unless its role is over.
    """
    if not entry.final:
        return False
    over = draft.roles[entry.role].state in ("Succeeded", "Failed", "Stopped")
    return not (fresh and entry.state == "failed" and not over)


def _show_restarting(draft: Draft, failure: Failure, restart: Restart) -> None:
    names = list(draft.roles) if restart.scope in ("Job", "FreshJob") else [failure.role]
    for name in names:
        if draft.roles[name].state in ("Starting", "Running", "Restarting"):
            draft.set_role(
                name,
                state="Restarting",
                reason=reasons.RESTARTING,
                message=f"{failure.role}-{failure.index}: {failure.describe()}",
            )
