"""What the routes answer: models, and pure functions that make them from the store's records.

The models are the contract with the pages; times are UTC text as in `status`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

from pydantic import BaseModel, Field

from airflow_training.control.conditions import reported_state
from airflow_training.control.model import (
    TERMINAL_JOB_STATES,
    InstanceEntry,
    JobEntry,
    Ledger,
    Request,
)
from airflow_training.control.restarts import Budget
from airflow_training.control.rollup import timestamp
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedRole
from airflow_training.documents.resolved_blocks import CheckpointCommit
from airflow_training.state.records import RunMark, RunOverview, RunRecord, RunState, StoredEvent
from airflow_training.web.document_check import MOST_CHARACTERS
from airflow_training.web.instance_reports import ListedProgress
from airflow_training.web.instance_usage import InstanceUsage

__all__ = [
    "ACTIONS",
    "COMMAND_LINE",
    "ActionAnswer",
    "ActionConflict",
    "ActionName",
    "ActionRequest",
    "AskedAction",
    "BandAnswer",
    "CheckRequest",
    "CurrentUser",
    "Detail",
    "EventPage",
    "HeatMapAnswer",
    "LinePage",
    "LinePlace",
    "LogHit",
    "LogLine",
    "LogPage",
    "LossPage",
    "NextError",
    "Phrase",
    "RerunAnswer",
    "RerunOffer",
    "RerunRequest",
    "SearchEnd",
    "SeriesAnswer",
    "SeriesPage",
    "StateCounts",
    "Summary",
    "SummaryPage",
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

Phrase = Literal[
    "platform received the job",
    "sending it to the cluster",
    "sent",
    "sending failed",
    "queued",
    "running",
    "state unknown",
    "received the stop command",
    "paused",
    "stopped",
    "failed",
    "succeeded",
]
ActionName = Literal["pause", "resume", "stop", "kill", "scale"]
ACTIONS: tuple[ActionName, ...] = get_args(ActionName)


class CurrentUser(BaseModel):
    """Who asks, and whom."""

    user: str
    standalone: bool
    """Served without Airflow."""
    version: str


class Summary(BaseModel):
    """One run, as lists show it."""

    uid: str
    dag: str
    """As in the path: the DAG's id, `~` without one."""
    dag_id: str | None
    run_id: str
    group_id: str | None
    map_index: int
    job: str
    runtime: str
    framework: str | None = None
    """Only told with the detail."""
    state: str
    phrase: Phrase
    submitted_by: str | None
    submitted_at: str
    started_at: str | None
    finished_at: str | None
    source: str
    """`cli`, or the deployment of Airflow."""
    progress: ListedProgress | None = None
    """Only told by lists, of the first instances of each role."""


class SummaryPage(BaseModel):
    trainings: list[Summary]
    more: bool = False
    next: str | None = None
    """What to send as `before` for the runs after these."""


class LossPage(BaseModel):
    """What lists draw beside runs."""

    losses: dict[str, list[float | None]]
    """Uid -> about 60 values of the loss, evenly over its time; a run that told none is not there."""


class StateCounts(BaseModel):
    """How many runs there are that the user may read."""

    running: int
    waiting: int
    """Received, queued, being sent or paused."""
    ended: dict[str, int]
    """State -> how many have ended in it since the time that was asked for."""


class AskedAction(BaseModel):
    """What somebody asked of a run, and the loop has not taken up yet."""

    action: ActionName
    role: str
    """For `scale`, as are the replicas."""
    replicas: int | None
    by: str
    at: str


class Restarts(BaseModel):
    used: int
    allowed: int | None


class ProgressAnswer(BaseModel):
    """How far all instances are together; the slowest counts."""

    step: int | None
    total_steps: int | None
    fraction: float | None
    eta_seconds: float | None
    elapsed_seconds: float | None
    samples_per_second: float | None
    """Of all instances together, where they tell it."""
    slowest: str | None
    """The instance that is behind; None where all are at one step."""


class AttemptAnswer(BaseModel):
    role: str
    index: int
    attempt: int
    job_attempt: int
    epoch: int
    started_at: str
    finished_at: str | None


class DependencyAnswer(BaseModel):
    role: str
    status: str


class RoleAnswer(BaseModel):
    name: str
    replicas: int
    min_replicas: int | None
    max_replicas: int | None
    command: list[str] | None
    depends_on: list[DependencyAnswer]
    first_rank: int | None
    """Of instance 0; None: its instances have no rank."""


class CheckpointAnswer(BaseModel):
    step: int
    at: str
    uri: str
    bytes: int | None


class LastCheckpoint(BaseModel):
    step: int
    at: str


class Detail(BaseModel):
    """Everything about one run but its logs, series and events."""

    summary: Summary
    status: dict[str, Any]
    """As `airflow-training status -o json` prints it."""
    seen: str
    """What an action sends back: it is about the run as it was seen."""
    held: bool
    """Somebody drives the run."""
    restarts: Restarts
    progress: ProgressAnswer
    metrics: dict[str, dict[str, float | None]]
    """Instance (`worker-0`) -> metric -> newest value; None: not a number."""
    usage: dict[str, InstanceUsage]
    """Instance -> what it uses, of those that have told."""
    attempts: list[AttemptAnswer]
    roles: list[RoleAnswer]
    checkpoints: list[CheckpointAnswer]
    """The newest first."""
    actions: list[ActionName]
    """Those that make sense now and that this user may do."""
    last_checkpoint: LastCheckpoint | None
    """What the run goes on from if it stops now."""
    asked: AskedAction | None
    """The newest that nobody has acted on yet."""
    heard: dict[str, str]
    """Instance -> when it was last heard from: what it said, what it used, its change of state."""
    rates: dict[str, float]
    """Instance -> samples per second."""


class EventAnswer(BaseModel):
    seq: int
    at: str
    level: str
    reason: str
    message: str
    role: str | None
    index: int | None
    attempt: int | None
    rule: str | None


class EventPage(BaseModel):
    events: list[EventAnswer]
    more: bool


class SeriesAnswer(BaseModel):
    name: str
    role: str
    index: int
    rank: int | None
    x_step: list[int | None]
    x_time: list[float]
    """Epoch seconds."""
    x_samples: list[int | None]
    """How many the instance had read; None where it has not told that. Empty: it tells none."""
    y: list[float | None]
    """None: no number, or none that JSON has."""
    total: int
    """How many points there are in the window, of which these are some."""


class BandAnswer(BaseModel):
    """What very many series of one name say together; a place in each list is a stretch of x."""

    name: str
    count: int
    """Of the series."""
    x: list[float]
    """Where a stretch begins: steps, or epoch seconds."""
    minimum: list[float]
    low: list[float]
    """5 % of the values are less."""
    median: list[float]
    high: list[float]
    """95 % of the values are less."""
    maximum: list[float]


class SeriesPage(BaseModel):
    names: list[str]
    series: list[SeriesAnswer]
    """Of those in a band only the three that are farthest from its median, farthest first."""
    bands: list[BandAnswer]


class HeatMapAnswer(BaseModel):
    """Ranks x time: of each cell the value that is farthest from what is usual of all at its place."""

    x: list[float]
    """Where a column begins: steps, or epoch seconds."""
    rows: list[str]
    """The instances that a row stands for."""
    values: list[list[float | None]]
    """[row, column]"""
    distances: list[list[float | None]]
    """How far each is from the median of all at its own place."""


class LogPage(BaseModel):
    """A stretch of a log; offsets are bytes."""

    start: int
    end: int
    """Where to read on."""
    eof: bool
    """The attempt is over, and there is nothing after `end`."""
    generation: str
    """Another one: it is not the same log any more, offsets mean nothing."""
    text: str
    errors: list[int] = []
    """Lines of the text, from 0."""
    inside: bool = False
    """The text ends inside a traceback: told when what follows is asked for."""


class LogLine(BaseModel):
    """A line among those of other logs."""

    role: str
    index: int
    attempt: int
    offset: int
    time: float | None
    """Epoch seconds: of the line, or of the one before it."""
    severity: Literal["info", "warning", "error"]
    text: str
    """Its beginning, where it is long."""


class LinePage(BaseModel):
    """Lines by time; the texts are what to send for those before and after."""

    lines: list[LogLine]
    before: str
    after: str
    begins: bool
    """Nothing is before these lines."""
    eof: bool
    """All logs are over, and nothing is after these lines."""


class NextError(BaseModel):
    offset: int | None
    """Of the line; None: none was found as far as `searched`, from where to go on, or before which."""
    searched: int
    ends: bool
    """There is nothing to go on with, as of now."""


class LinePlace(BaseModel):
    offset: int | None
    """None: the line was not reached yet; ask again, unless the log `ends` before."""
    lines: int
    """Counted so far."""
    bytes: int
    ends: bool


class LogHit(BaseModel):
    """A line that a search found."""

    role: str
    index: int
    attempt: int
    offset: int
    line: int
    """Its number, from 1."""
    text: str
    """Its beginning, where it is long."""


class SearchEnd(BaseModel):
    """The last line of a search's answer."""

    done: Literal[True] = True
    more: bool = False
    """There are more hits than are told."""
    problem: str = ""
    """Why it ended before all was searched."""


class ActionRequest(BaseModel):
    action: ActionName
    seen: str = Field(max_length=32)
    """`seen` of the detail that the user looks at."""
    role: str = Field("", max_length=63)
    """For `scale`."""
    replicas: int | None = Field(None, ge=1)
    """For `scale`."""
    reason: str = Field("", max_length=1000)


class ActionConflict(BaseModel):
    """What is, instead of what the user saw."""

    detail: str
    seen: str
    phrase: Phrase
    actions: list[ActionName]


class ActionAnswer(BaseModel):
    request: int
    action: ActionName


class RerunOffer(BaseModel):
    """Whether the job can be started again from here."""

    possible: bool
    why: str
    """Why not."""


class RerunRequest(BaseModel):
    step: int | None = Field(None, ge=0)
    """Of the checkpoint to go on from; None: from the beginning."""
    document: str | None = Field(None, max_length=MOST_CHARACTERS)
    """In the place of the run's own; None: that one."""


class CheckRequest(BaseModel):
    document: str = Field(max_length=MOST_CHARACTERS)


class RerunAnswer(BaseModel):
    """The new run, which may not be there yet."""

    dag: str
    run_id: str
    uid: str


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
    """Return what stands in a path for the run's DAG."""
    return record.key.dag_id or COMMAND_LINE


def version_of(run: RunOverview) -> str:
    """Return the mark of what a user sees of a run: another one after each thing somebody asked."""
    return f"{run.mark.epoch}.{run.mark.request}"


def mark_of(seen: str) -> RunMark | None:
    """Return what `version_of` made a text of; None for any other text."""
    found = re.fullmatch(r"([0-9]{1,9})\.([0-9]{1,9})", seen, re.ASCII)
    return None if found is None else RunMark(int(found[1]), int(found[2]))


def actions_of(run: RunOverview) -> list[ActionName]:
    """Return what can be asked of a run in its state."""
    entry = run.entry
    stopping = entry.state in ("Failed", "Stopped") and not entry.drained
    if run.record.tombstone or (entry.state in TERMINAL_JOB_STATES and not stopping):
        return []
    if stopping or run.stop_requested:
        return [] if entry.killed or run.kill_requested else ["kill"]
    if entry.state == "Paused":
        return ["resume", "stop", "kill", "scale"]
    return ["pause", "stop", "kill", "scale"]


def asked_of(run: RunOverview, requests: Sequence[Request]) -> AskedAction | None:
    """Return what was asked of a run last and waits for the loop. `requests`: oldest first."""
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
    """Return what the store knows of a run's checkpoints, the newest first."""
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
