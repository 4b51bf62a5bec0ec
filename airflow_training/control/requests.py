"""What others want of the run: activate, pause, preempt, resume, scale, stop, reopen. Each is acted on once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from airflow_training.control import reasons
from airflow_training.control.draft import Draft
from airflow_training.control.elastic import reset_size
from airflow_training.control.ending import finish
from airflow_training.control.model import STOPS, TERMINAL_JOB_STATES, Elapsed, Request
from airflow_training.control.preemption import is_preempted
from airflow_training.control.recovery import record_restart_point, restore_requested_step
from airflow_training.control.scaling import scale
from airflow_training.control.transitions import next_attempt

__all__ = ["apply_requests"]


def apply_requests(draft: Draft, requests: Sequence[Request]) -> None:
    """Take in the requests that were not seen yet, in the order of their ids.

    One without an id is the holder's own, which the store does not number.
    """
    seen = draft.job.seen_request
    fresh = [each for each in requests if each.id > seen or not each.id]
    before = None
    for request in sorted(fresh, key=lambda each: each.id):
        if not (request.kind == before == "reopen"):  # tasks that were cleared together
            _apply(draft, request)
        before = request.kind
        draft.job = replace(draft.job, seen_request=request.id or seen)


def _apply(draft: Draft, request: Request) -> None:
    over = draft.job.state in TERMINAL_JOB_STATES
    if request.kind == "activate":
        _activate(draft, request)
    elif request.kind == "reopen":
        _reopen(draft, request)
    elif over:
        if request.kind == "kill" and not draft.job.drained:
            draft.record_event(reasons.STOP_REQUESTED, _stop_message(request))
            draft.job = replace(draft.job, killed=True)
        elif request.kind not in STOPS:
            _refuse(draft, request, f"the job is over ({draft.job.state})")
    elif request.kind in STOPS:
        message = _stop_message(request)
        draft.record_event(reasons.STOP_REQUESTED, message)
        draft.job = replace(draft.job, killed=request.kind == "kill")
        reason = reasons.INTERRUPTED if request.kind == "interrupt" else reasons.KILLED
        finish(draft, "Stopped", reason=reason, message=message)
    elif request.kind == "pause":
        _pause(draft, reason=reasons.PAUSED, message=request.reason or "paused by request")
    elif request.kind == "preempt":
        _pause(draft, reason=reasons.QUEUE_PREEMPTED, message=request.reason)
    elif request.kind == "resume":
        if is_preempted(draft.job) and request.id:  # only its own holder knows that it is its turn
            _refuse(draft, request, "it was preempted, and goes on when it is its turn")
        else:
            _resume(draft)
    else:
        problem = scale(draft, request.role, request.replicas)
        if problem:
            _refuse(draft, request, problem)


def _stop_message(request: Request) -> str:
    if request.kind == "interrupt":
        return f"{request.by or 'a signal'} to the process that drove it"
    done = "killed" if request.kind == "kill" else "stopped"
    return request.reason or (f"{done} by {request.by}" if request.by else done)


def _refuse(draft: Draft, request: Request, why: str) -> None:
    draft.record_event(
        reasons.REQUEST_REFUSED, f"{request.kind}: {why}", role=request.role, level="warning"
    )


def _activate(draft: Draft, request: Request) -> None:
    """Let a role start; without a role, all of them."""
    if request.role and request.role not in draft.roles:
        _refuse(draft, request, f"no role is called {request.role!r}")
        return
    for name in [request.role] if request.role else list(draft.roles):
        if not draft.roles[name].activated:
            draft.set_role(name, activated=True)
            draft.record_event(reasons.ROLE_ACTIVATED, role=name)


def _pause(draft: Draft, *, reason: str, message: str) -> None:
    if draft.job.paused_at is not None:
        return
    draft.job = replace(
        draft.job,
        state="Paused",
        reason=reason,
        message=message,
        paused_at=draft.now,
        restart_at=None,
        crowded_since=None,
    )
    record_restart_point(draft)
    for name in draft.roles:
        reset_size(draft, name)
    for entry in list(draft.instances.values()):
        if not entry.final and not entry.retired:
            next_attempt(draft, replace(entry, last_try=False), reason=reason)
    for name, role in draft.roles.items():
        if role.state not in TERMINAL_JOB_STATES:
            draft.set_role(name, state="Waiting", reason=reason, waits={}, created=0)
    draft.record_event(reason, message)


def _resume(draft: Draft) -> None:
    """Go on: no restart, and the pause counts for no deadline."""
    job = draft.job
    if job.paused_at is None:
        return
    counts_from = job.paused_at if job.started_at is not None else draft.now
    draft.job = replace(
        draft.job,
        state="Pending" if job.started_at is None else "Starting",
        reason=reasons.RESUMED,
        message="",
        paused_at=None,
        paused_seconds=job.paused_seconds + max(0.0, draft.now - counts_from),
    )
    draft.record_event(reasons.RESUMED, f"after {draft.now - job.paused_at:.0f} s")


def _reopen(draft: Draft, request: Request) -> None:
    """Open a new epoch: what succeeded stays finished, everything else may run again."""
    draft.job = replace(
        draft.job,
        state="Pending",
        condition="Received",
        reason=reasons.REOPENED,
        message=request.reason,
        last_transition_at=draft.now,
        started_at=None,
        running_at=None,
        finished_at=None,
        paused_at=None,
        paused_seconds=0.0,
        active_time=Elapsed(at=draft.now),
        training_time=Elapsed(at=draft.now),
        epoch=draft.job.epoch + 1,
        fresh_jobs=0,
        restart_at=None,
        drained=False,
        killed=False,
        root_cause=None,
        limit="",
        kept=None,
        crowded_since=None,
    )
    record_restart_point(draft)
    restore_requested_step(draft)
    for name in draft.roles:
        reset_size(draft, name)
    for entry in list(draft.instances.values()):
        if not entry.retired and not (entry.final and entry.state == "succeeded"):
            anew = replace(entry, restarts=0, last_try=False)
            next_attempt(draft, anew, reason=reasons.REOPENED)
    for name in list(draft.roles):
        draft.set_role(
            name, state="Waiting", reason=reasons.REOPENED, message="", waits={}, created=0
        )
    draft.record_event(reasons.REOPENED, request.reason or f"epoch {draft.job.epoch}")
