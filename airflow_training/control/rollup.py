"""The state of a run as `run` and `status` print it: one JSON document from ledger and side data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, get_args

from airflow_training.control import reasons
from airflow_training.control.advice import advice_of
from airflow_training.control.causes import RootCause
from airflow_training.control.clocks import seconds_of
from airflow_training.control.conditions import reported_state
from airflow_training.control.keeping import shell_command
from airflow_training.control.model import (
    NOTHING_ELAPSED,
    InstanceEntry,
    JobEntry,
    KeptInstance,
    Ledger,
    RoleEntry,
)
from airflow_training.control.observations import InstanceState
from airflow_training.control.reports import ProgressReport
from airflow_training.control.run_output import RunOutput
from airflow_training.control.usage import AttemptUsage
from airflow_training.control.waits import WAITING_STATES, Wait, wait_of, waits_since
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import FailureClass, ResolvedJob
from airflow_training.documents.text import counted
from airflow_training.frameworks.ranks import data_files

__all__ = [
    "checkpoint_reference",
    "eta_seconds",
    "rollup",
    "silence_text",
    "timestamp",
    "trained_seconds",
]

_PROGRESS = ("step", "total_steps", "epoch", "samples")


def rollup(
    job: ResolvedJob,
    ledger: Ledger,
    *,
    run_id: str,
    submitted_by: str = "",
    progress: Mapping[InstanceKey, ProgressReport],
    usage: Sequence[AttemptUsage],
    output: RunOutput | None,
    now: float,
) -> dict[str, Any]:
    """Return the document of `status`; plain JSON, times as UTC text.

    A job that has ended is reported as such only when nothing of it is alive any more.
    """
    entry = ledger.job
    charged = Counter(record.failure_class for record in entry.restarts)
    order = {role.name: number for number, role in enumerate(job.roles)}
    members = sorted(
        (each for each in ledger.instances.values() if not each.retired),
        key=lambda each: (order.get(each.role, len(order)), each.index),
    )
    replicas = {name: role.replicas for name, role in ledger.roles.items()}
    restarts = Counter(record.role for record in entry.restarts)
    wait = _silence_of(entry) or _wait_of(entry, members)
    return {
        "run_id": run_id,
        "job": job.name,
        "state": reported_state(entry),
        "condition": entry.condition,
        "reason": wait.reason,
        "message": wait.message,
        "job_attempt": entry.job_attempt,
        "epoch": entry.epoch,
        "fresh_jobs": entry.fresh_jobs,
        "observed_at": timestamp(now),
        "submitted_by": submitted_by or None,
        "submitted_at": timestamp(entry.submitted_at),
        "started_at": timestamp(entry.started_at),
        "running_at": timestamp(entry.running_at),
        "finished_at": timestamp(entry.finished_at),
        "last_transition_at": timestamp(entry.last_transition_at),
        "trained_seconds": trained_seconds(ledger, now=now),
        "roles": {
            name: _role(role, [m for m in members if m.role == name], restarts=restarts[name])
            for name, role in ledger.roles.items()
        },
        "instances": [
            _instance(
                each,
                progress.get(each.key),
                files=data_files(job, each.role, each.index, replicas=replicas),
                now=now,
            )
            for each in members
        ],
        "restarts": {each: charged[each] for each in get_args(FailureClass)},
        "root_cause": _cause(entry.root_cause),
        "kept": _kept(entry.kept, run_id=run_id, now=now),
        "advice": advice_of(job, ledger),
        "output": None if output is None else output.to_document(),
        "checkpoint": None if entry.checkpoint is None else entry.checkpoint.to_document(),
        "plan": None if job.plan is None else dict(job.plan.document),
        "environment": None if job.environment is None else job.environment.to_document(),
        "usage": [_usage(each) for each in usage],
        "unreachable": None
        if entry.unreachable_since is None or entry.is_over
        else {"since": timestamp(entry.unreachable_since), "why": entry.unreachable_why},
    }


def _usage(usage: AttemptUsage) -> dict[str, Any]:
    return {
        "role": usage.role,
        "index": usage.index,
        "epoch": usage.epoch,
        "job_attempt": usage.job_attempt,
        "attempt": usage.attempt,
        "started_at": timestamp(usage.started_at),
        "finished_at": timestamp(usage.finished_at),
        "resources": dict(usage.resources),
        "seconds": usage.seconds,
    }


def _kept(kept: KeptInstance | None, *, run_id: str, now: float) -> dict[str, Any] | None:
    """Return what stays of a job that failed, until when, and how it is opened."""
    if kept is None:
        return None
    state = "gone" if kept.state == "stays" and now >= kept.until else kept.state
    known = bool(kept.role)
    return {
        "state": state,
        "role": kept.role if known else None,
        "index": kept.index if known else None,
        "attempt": kept.attempt if known else None,
        "until": None if state == "impossible" else timestamp(kept.until),
        "why": kept.why or None,
        "command": shell_command(run_id, kept) if state in ("asked", "stays") else None,
    }


def checkpoint_reference(ledger: Ledger) -> dict[str, Any] | None:
    """Newest committed checkpoint as `{uri, step, digest}`; None without one."""
    known = ledger.job.checkpoint
    return None if known is None else known.reference.to_document()


def timestamp(at: float | None) -> str | None:
    """Return epoch seconds as `2026-01-31T12:00:00.123Z`."""
    if at is None:
        return None
    text = datetime.fromtimestamp(at, tz=timezone.utc).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00") + "Z"


def trained_seconds(ledger: Ledger, *, now: float) -> float:
    """Return seconds in which the training instances ran, since all of them first did."""
    entry = ledger.job
    if entry.running_at is None:
        return 0.0
    if entry.training_time != NOTHING_ELAPSED:
        return round(seconds_of(entry.training_time, now=now), 3)
    # of a run that an older version drove to its end
    end = entry.finished_at if entry.finished_at is not None else now
    if entry.paused_at is not None:
        end = max(entry.paused_at, entry.running_at)
    return round(max(0.0, end - entry.running_at - entry.paused_seconds), 3)


def _role(role: RoleEntry, members: Sequence[InstanceEntry], *, restarts: int) -> dict[str, Any]:
    states = Counter(member.state for member in members)
    state, wait = role.state, _wait_of(role, members)
    if role.reason == reasons.JOB_FAILED and states["failed"]:
        # it was closed with its job, and how its instances ended is told after that
        failed = f"{states['failed']} of {counted(len(members), 'instance')} failed"
        state, wait = "Failed", Wait(reasons.INSTANCE_FAILED, failed)
    return {
        "state": state,
        "reason": wait.reason,
        "message": wait.message,
        "last_transition_at": timestamp(role.last_transition_at),
        "desired": role.desired,
        **{state: states[state] for state in get_args(InstanceState)},
        "restarts": restarts,
    }


def silence_text(since: float, why: str) -> str:
    """Return that the runtime does not answer, and why, in words."""
    text = f"the runtime does not answer since {timestamp(since)}"
    return f"{text}: {why}" if why else text


def _silence_of(entry: JobEntry) -> Wait | None:
    """Return that the runtime does not answer, where that lasts: what else is known may be long over."""
    if entry.unreachable_since is None or not entry.outage_announced or entry.is_over:
        return None
    why = silence_text(entry.unreachable_since, entry.unreachable_why)
    return Wait(reasons.RUNTIME_UNREACHABLE, why)


def _wait_of(entry: JobEntry | RoleEntry, members: Sequence[InstanceEntry]) -> Wait:
    """Return what it says of itself, or of its instances where it waits for them."""
    own = Wait(entry.reason, entry.message)
    if entry.state not in WAITING_STATES:
        return own
    return wait_of(members) or own


def _instance(
    entry: InstanceEntry,
    progress: ProgressReport | None,
    *,
    files: Sequence[str],
    now: float,
) -> dict[str, Any]:
    return {
        "role": entry.role,
        "index": entry.index,
        "attempt": entry.attempt,
        "state": entry.state,
        "reason": entry.reason,
        "message": entry.message,
        "exit_code": entry.end.exit_code,
        "signal": entry.end.signal,
        "address": entry.address,
        "node": entry.node,
        "last_transition_at": timestamp(entry.last_transition_at),
        "waiting_since": timestamp(waits_since(entry)),
        "progress": None
        if progress is None
        else {name: getattr(progress, name) for name in _PROGRESS},
        "eta_seconds": eta_seconds(entry, progress, now=now),
        "data_files": list(files),
        "memory_bytes": None if entry.memory is None else entry.memory.bytes,
    }


def eta_seconds(
    entry: InstanceEntry, progress: ProgressReport | None, *, now: float
) -> float | None:
    """Seconds left at the speed of the current attempt; None where nobody can tell."""
    if entry.state == "succeeded":
        return 0.0
    said = progress or ProgressReport()
    step, total = said.step, said.total_steps
    if entry.state != "running" or not step or not total or entry.started_at is None:
        return None
    seen_at = float(said.time or now)
    seconds_per_step = max(0.0, seen_at - entry.started_at) / step
    left = (total - step) * seconds_per_step - (now - seen_at)
    return round(float(max(0.0, left)), 1)


def _cause(cause: RootCause | None) -> dict[str, Any] | None:
    return None if cause is None else {**cause.to_document(), "at": timestamp(cause.at)}
