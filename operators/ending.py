"""The end of a run as tasks on a worker see it: settle it, report it, clean up. No Airflow classes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_training.control.model import TERMINAL_JOB_STATES, InstanceEntry
from airflow_training.control.reports import ProgressReport
from airflow_training.control.rollup import checkpoint_reference
from airflow_training.control.root_cause import cause_lines
from airflow_training.control.run_output import RunOutput
from airflow_training.control.subtask_snapshot import JOB_GROUP
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.text import counted
from airflow_training.errors import StillAlive
from airflow_training.state.store import RunState, Store
from airflow_training.supervise.cleanup import clean_up, drive_to_end, stop_run
from airflow_training.supervise.lease_keeper import take_lease
from airflow_training.supervise.owners import forget_owner, new_owner
from airflow_training.triggers.access import open_store, run_key, runtime_of
from airflow_training.triggers.base import NO_RUN

__all__ = ["Result", "clean", "finish", "settle"]

_END_SECONDS = 600.0
"""How long a worker waits for a run to come to zero: longer than any usual grace period."""
_MOST_METRICS = 8
_REFERENCE_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a job ended, for people and for the tasks behind it."""

    uid: str
    job: str
    state: str
    reason: str
    message: str
    root_cause: tuple[str, ...] = ()
    """The failure that ended the job, and where a log says what it is, its proof and what to do.

    Empty where no instance is to blame.
    """
    failed: tuple[str, ...] = ()
    """Other instances that failed by themselves, the first one first."""
    output: RunOutput | None = None
    checkpoint: Mapping[str, Any] | None = None
    """What names the newest committed checkpoint: `uri`, `step`, `digest`."""
    subtasks: Mapping[str, Any] | None = None
    """Where the processes of the job stood at its end, in at most 64 KB of JSON."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    trained_seconds: float = 0.0
    restarts: int = 0

    @property
    def succeeded(self) -> bool:
        return self.state == "Succeeded"

    def story(self) -> str:
        """Return the outcome as text, root cause first."""
        why = ": ".join(filter(None, [self.reason, self.message]))
        if not self.job:
            return f"root cause: {why}"
        lines = [f"job {self.job} {self.state.lower()} ({why})"]
        if not self.succeeded:
            first, *proof = self.root_cause or (why,)
            lines = [f"root cause: {first}", *proof, *lines]
            lines += [f"also failed: {each}" for each in self.failed]
        if self.output:
            lines.append(f"output: {self.output.uri} ({self.output.bytes} bytes)")
        if self.checkpoint:
            lines.append(f"checkpoint: step {self.checkpoint['step']} in {self.checkpoint['uri']}")
        if self.metrics:
            lines.append("metrics: " + ", ".join(f"{k}={v:g}" for k, v in self.metrics.items()))
        lines.append(
            f"trained for {self.trained_seconds:.1f} instance seconds,"
            f" {counted(self.restarts, 'restart')}"
        )
        return "\n".join(lines)

    def reference(self) -> dict[str, Any]:
        """The result for XCom, below 1 KB: the uris say where the rest is.

        Of the metrics as many as find room, eight at most.
        """
        named = {
            "run": self.uid,
            "job": self.job,
            "state": self.state,
            "output": self.output and self.output.uri,
            "checkpoint": self.checkpoint,
        }
        shown = dict(list(self.metrics.items())[:_MOST_METRICS])
        while shown and len(json.dumps({**named, "metrics": shown})) > _REFERENCE_BYTES:
            shown.popitem()
        return {**named, "metrics": shown}

    def asset_extra(self) -> dict[str, Any]:
        """The `extra` of the outlets' asset events."""
        return {
            "uri": self.output and self.output.uri,
            "checkpoint": self.checkpoint,
            "metrics": dict(self.metrics),
            "run": self.uid,
        }


def finish(ti: Any, *, group_id: str, log: Callable[..., None]) -> Result:
    """Return how the run ended; one that is still alive is stopped first.

    That happens when `reconcile` was taken away: nobody else would end it.
    """
    store, uid = _run_of(ti, group_id)
    state = _read(store, uid)
    if state is None:
        return Result(uid=uid, job="", state="Failed", reason="NotPlanned", message=NO_RUN)
    if not state.ledger.job.is_over:
        log("the job has not ended; stopping it")
        _stop(store, state, reason="the DAG run ended", by=ti.task_id)
        state = _read(store, uid) or state
    return _result(store, state)


def clean(ti: Any, *, group_id: str, log: Callable[..., None]) -> None:
    """Confirm that nothing of the run is alive; raises StillAlive."""
    store, uid = _run_of(ti, group_id)
    record = store.run(uid)
    if record is None:
        log("nothing to clean: %s", NO_RUN)
        return
    asyncio.run(
        clean_up(
            uid,
            store=store,
            runtime=runtime_of(store.job(uid)),
            reason="the DAG run ended",
            by=ti.task_id,
            timeout_seconds=_END_SECONDS,
        )
    )
    log("nothing of run %s is alive", uid)


def settle(store: Store, uid: str, *, reason: str, then: Callable[[int], None]) -> None:
    """Bring a run to zero, then call `then` with the generation of a lease held for it."""
    state = _read(store, uid)
    if state is None:
        return
    if not state.ledger.job.is_over:
        _stop(store, state, reason=reason, by="plan")
    owner = new_owner()
    try:
        lease = take_lease(store, uid, owner=owner)
        if lease is None:
            raise StillAlive(f"run {uid}: another holder keeps its lease")
        try:
            then(lease.generation)
        finally:
            store.release(lease)
    finally:
        forget_owner(owner)


def _run_of(ti: Any, group_id: str) -> tuple[Store, str]:
    store = open_store()
    return store, run_key(store, ti, group_id=group_id).uid


def _read(store: Store, uid: str) -> RunState | None:
    return store.read([uid]).get(uid)


def _stop(store: Store, state: RunState, *, reason: str, by: str) -> None:
    uid, runtime = state.record.uid, runtime_of(state.job)
    if state.ledger.job.state in TERMINAL_JOB_STATES:
        work = drive_to_end(uid, store=store, runtime=runtime, timeout_seconds=_END_SECONDS)
    else:
        work = stop_run(
            uid, store=store, runtime=runtime, reason=reason, by=by, timeout_seconds=_END_SECONDS
        )
    asyncio.run(_ended(work))


async def _ended(work: Any) -> None:
    await work


def _result(store: Store, state: RunState) -> Result:
    uid, job = state.record.uid, state.ledger.job
    failed = sorted(
        (each for each in state.ledger.instances.values() if each.end.failure_class is not None),
        key=lambda each: (each.finished_at or 0.0, each.role, each.index),
    )
    root = job.root_cause
    others = [each for each in failed if root is None or each.key != root.key]
    return Result(
        uid=uid,
        job=state.record.job,
        state=job.state,
        reason=job.reason,
        message=job.limit or job.message,
        root_cause=cause_lines(root) if root is not None else (),
        failed=tuple(_cause(each) for each in others),
        output=store.output(uid),
        checkpoint=checkpoint_reference(state.ledger),
        subtasks=_of_job(store.subtasks.of_run(uid)),
        metrics=_metrics(store, state),
        trained_seconds=sum(each.seconds for each in store.usage.of_run(uid)),
        restarts=len(job.restarts),
    )


def _of_job(snapshots: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return that of all instances together, or of the only one there is."""
    if len(snapshots) == 1:
        [snapshot] = snapshots.values()
        return snapshot if isinstance(snapshot, dict) else None
    return snapshots.get(JOB_GROUP)


def _cause(entry: InstanceEntry) -> str:
    how = _ending(entry.reason, entry.end.exit_code, entry.end.signal)
    who = f"{entry.role}-{entry.index} (attempt {entry.attempt})"
    return _sentence(who, how, entry.message)


def _sentence(who: str, how: str, message: str | None) -> str:
    """Return `who: how: message`, without saying twice what `how` says already."""
    return ": ".join(filter(None, [who, how, message if message and message not in how else ""]))


def _ending(reason: str | None, exit_code: int | None, signal: int | None) -> str:
    how = (
        f"signal {signal}"
        if signal is not None
        else f"exit code {exit_code}"
        if exit_code is not None
        else ""
    )
    return ", ".join(filter(None, [reason, how]))


def _metrics(store: Store, state: RunState) -> Mapping[str, float]:
    """Return the newest metrics of the instance whose output counts."""
    progress = store.progress.newest(state.record.uid)
    first = next(iter(progress.values()), ProgressReport())
    return progress.get(InstanceKey(state.job.output_role, 0), first).metrics
