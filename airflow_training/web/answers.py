"""Pure functions that make what the routes answer from the store's records."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from airflow_training.control.conditions import reported_state
from airflow_training.control.model import (
    TERMINAL_JOB_STATES,
    InstanceEntry,
    JobEntry,
    Ledger,
    Request,
)
from airflow_training.control.preemption import is_preempted
from airflow_training.control.restarts import Budget
from airflow_training.control.rollup import timestamp
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedRole
from airflow_training.documents.resolved_blocks import CheckpointCommit
from airflow_training.state.records import RunMark, RunOverview, RunRecord, RunState, StoredEvent
from airflow_training.web.instance_reports import ListedProgress
from airflow_training.web.instance_usage import InstanceUsage
from airflow_training.web.models import (
    ACTIONS,
    ActionName,
    AskedAction,
    AttemptAnswer,
    CheckpointAnswer,
    CostAnswer,
    DependencyAnswer,
    Detail,
    EventAnswer,
    LastCheckpoint,
    Phrase,
    ProgressAnswer,
    Restarts,
    RoleAnswer,
    Summary,
)

__all__ = [
    "COMMAND_LINE",
    "actions_of",
    "asked_of",
    "checkpoints_of",
    "dag_of",
    "detail",
    "event",
    "mark_of",
    "phrase_of",
    "summary",
    "version_of",
]

COMMAND_LINE = "~"
"""In the place of a DAG: runs of the command line have none."""


def phrase_of(run: RunOverview) -> Phrase:
    """Return in words where a run is. What is first in this order counts."""
    entry = run.entry
    if entry.state in TERMINAL_JOB_STATES and entry.drained:
        return _end_phrase(entry)
    if entry.state == "Stopped" or run.stop_requested:
        return "received the stop command"
    if run.record.tombstone and entry.state not in TERMINAL_JOB_STATES:
        return "stopped"  # before it began, so that nobody will ever say so in its ledger
    if entry.state == "Paused":
        return "paused"
    if _unknown(run):
        return "state unknown"
    if entry.state in TERMINAL_JOB_STATES:
        return "running"  # some of it still does
    if entry.state == "Queued":
        return "queued"
    if entry.state == "Pending":
        return "platform received the job"
    if entry.state == "Running":
        return "running"
    return "sent" if entry.condition == "Submitted" else "sending it to the cluster"


def _end_phrase(entry: JobEntry) -> Phrase:
    if entry.state == "Succeeded":
        return "succeeded"
    if entry.state == "Stopped":
        return "stopped"
    return "sending failed" if entry.condition == "SubmitFailed" else "failed"


def _unknown(run: RunOverview) -> bool:
    """Return whether what is known of a run may be long over."""
    if run.entry.condition == "RuntimeUnknown":
        return True
    if run.entry.state in ("Pending", "Queued"):
        return False
    alive = {"pending", "running", "terminating"} & {*run.instances}
    return run.lost or (bool(run.instances.get("unknown")) and not alive)


def dag_of(record: RunRecord) -> str:
    """The run's DAG as a path has it."""
    return record.key.dag_id or COMMAND_LINE


def version_of(run: RunOverview) -> str:
    """Return the mark of what a user sees of a run: another one after each thing somebody asked."""
    return f"{run.mark.epoch}.{run.mark.request}"


def mark_of(seen: str) -> RunMark | None:
    """Parse the text of `version_of`; None for any other text."""
    found = re.fullmatch(r"([0-9]{1,9})\.([0-9]{1,9})", seen, re.ASCII)
    return None if found is None else RunMark(int(found[1]), int(found[2]))


def actions_of(run: RunOverview) -> list[ActionName]:
    """Actions that a run accepts in its state."""
    entry = run.entry
    stopping = entry.state in ("Failed", "Stopped") and not entry.drained
    if run.record.tombstone or (entry.state in TERMINAL_JOB_STATES and not stopping):
        return []
    if stopping or run.stop_requested:
        return [] if entry.killed or run.kill_requested else ["kill"]
    if is_preempted(entry):  # it goes on when it is its turn
        return ["stop", "kill", "scale"]
    if entry.state == "Paused":
        return ["resume", "stop", "kill", "scale"]
    return ["pause", "stop", "kill", "scale"]


def asked_of(run: RunOverview, requests: Sequence[Request]) -> AskedAction | None:
    """The newest action that waits for the loop. `requests`: oldest first."""
    entry = run.entry
    if run.record.tombstone or (entry.state in TERMINAL_JOB_STATES and entry.drained):
        return None  # nobody will take it up any more
    for each in reversed(requests):
        if each.kind in ACTIONS and each.id > entry.seen_request:
            return AskedAction(
                action=each.kind,
                role=each.role,
                replicas=each.replicas,
                by=each.by,
                at=timestamp(each.at) or "",
            )
    return None


def summary(
    run: RunOverview, *, framework: str | None = None, progress: ListedProgress | None = None
) -> Summary:
    """Return a run as lists show it."""
    record, entry = run.record, run.entry
    return Summary(
        uid=record.uid,
        dag=dag_of(record),
        dag_id=record.key.dag_id or None,
        run_id=record.key.run_id,
        group_id=record.key.group_id or None,
        map_index=record.key.map_index,
        job=record.job,
        runtime=record.runtime,
        framework=framework,
        state=_listed_state(run),
        phrase=phrase_of(run),
        submitted_by=record.submitted_by or None,
        submitted_at=timestamp(record.submitted_at) or "",
        started_at=timestamp(entry.started_at),
        finished_at=timestamp(record.finished_at),
        source=record.key.source,
        progress=progress,
    )


def _listed_state(run: RunOverview) -> str:
    entry, record = run.entry, run.record
    never_begun = record.tombstone and entry.state not in TERMINAL_JOB_STATES
    return record.listed_state if never_begun else reported_state(entry)


def detail(
    state: RunState,
    run: RunOverview,
    *,
    status: dict[str, Any],
    metrics: Mapping[InstanceKey, Mapping[str, float]],
    usage: Mapping[InstanceKey, InstanceUsage],
    allowed: Collection[ActionName],
    asked: AskedAction | None,
    heard: Mapping[InstanceKey, str],
    rates: Mapping[InstanceKey, float],
    cost: CostAnswer | None,
    now: float,
) -> Detail:
    """Return everything about a run; `allowed`: what this user may ask of it."""
    entry = state.ledger.job
    last = entry.checkpoint
    return Detail(
        summary=summary(run, framework=state.job.framework),
        status=status,
        seen=version_of(run),
        held=run.held,
        restarts=Restarts(
            used=Budget(state.job, entry).spent, allowed=state.job.restart.max_restarts
        ),
        progress=_progress(entry, status["instances"], rates, now=now),
        metrics={
            str(key): {name: finite(value) for name, value in values.items()}
            for key, values in metrics.items()
        },
        usage={str(key): each for key, each in usage.items()},
        attempts=[AttemptAnswer.model_validate(row) for row in status["usage"]],
        roles=[_role(each, state.ledger) for each in state.job.roles],
        checkpoints=checkpoints_of(state.ledger),
        actions=[each for each in actions_of(run) if each in allowed],
        last_checkpoint=None
        if last is None
        else LastCheckpoint(step=last.step, at=timestamp(last.at) or ""),
        asked=asked,
        heard={str(key): at for key, at in heard.items()},
        rates={str(key): rate for key, rate in rates.items()},
        cost=cost,
    )


def event(stored: StoredEvent) -> EventAnswer:
    """Return one line of a run's story."""
    said = stored.event
    return EventAnswer(
        seq=stored.seq,
        at=timestamp(said.at) or "",
        level=said.level,
        reason=said.reason,
        message=said.message,
        role=said.role or None,
        index=said.index,
        attempt=said.attempt,
        rule=said.rule or None,
    )


def finite(value: float | None) -> float | None:
    """Return a number as JSON has it: it knows neither NaN nor infinity."""
    return value if value is not None and math.isfinite(value) else None


def _progress(
    entry: JobEntry,
    instances: Sequence[Mapping[str, Any]],
    rates: Mapping[InstanceKey, float],
    *,
    now: float,
) -> ProgressAnswer:
    steps: dict[str, int] = {}
    totals: list[int] = []
    for each in instances:
        said = each["progress"] or {}
        if said.get("step") is not None:
            steps[f"{each['role']}-{each['index']}"] = said["step"]
            totals += [said["total_steps"]] if said.get("total_steps") else []
    behind = min(steps, key=lambda name: steps[name], default=None)
    step = None if behind is None else steps[behind]
    total = max(totals, default=None)
    left = [each["eta_seconds"] for each in instances if each["eta_seconds"] is not None]
    ended = now if entry.finished_at is None else entry.finished_at
    begun = entry.started_at
    return ProgressAnswer(
        step=step,
        total_steps=total,
        fraction=None if step is None or not total else min(1.0, step / total),
        eta_seconds=max(left, default=None),
        elapsed_seconds=None if begun is None else round(max(0.0, ended - begun), 3),
        samples_per_second=sum(rates.values()) if rates else None,
        slowest=behind if len({*steps.values()}) > 1 else None,
    )


def _role(role: ResolvedRole, ledger: Ledger) -> RoleAnswer:
    entry = ledger.roles.get(role.name)
    return RoleAnswer(
        name=role.name,
        replicas=role.replicas if entry is None else entry.replicas,
        min_replicas=role.min_replicas,
        max_replicas=role.max_replicas,
        command=_command(role),
        depends_on=[
            DependencyAnswer(role=each.role, status=each.status) for each in role.depends_on
        ],
        first_rank=role.rank_offset,
    )


def _command(role: ResolvedRole) -> list[str] | None:
    containers = (role.template.get("spec") or {}).get("containers") or []
    for each in containers:
        if each.get("name") == role.container:
            return [*(each.get("command") or ()), *(each.get("args") or ())] or None
    return None


def checkpoints_of(ledger: Ledger) -> list[CheckpointAnswer]:
    """Checkpoints of a run that the store knows, the newest first."""
    commits = _commits(ledger.job, ledger.instances.values())
    known = {(each.uri, each.step, each.digest): each for each in commits}
    newest_first = sorted(known.values(), key=lambda each: (each.at, each.step), reverse=True)
    return [
        CheckpointAnswer(
            step=each.step,
            at=timestamp(each.at) or "",
            uri=each.uri,
            bytes=None if each.bytes is None else int(each.bytes),
        )
        for each in newest_first
    ]


def _commits(entry: JobEntry, instances: Collection[InstanceEntry]) -> Iterator[CheckpointCommit]:
    yield from entry.recovery.older
    if entry.checkpoint is not None:
        yield entry.checkpoint
    for each in instances:
        if each.own is not None:
            yield from (*each.own.recovery.older, each.own.newest)
