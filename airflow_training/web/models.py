"""What the routes answer and are sent: the contract with the pages. Times are UTC text as in `status`."""

from __future__ import annotations

from typing import Any, Literal, get_args

from pydantic import BaseModel, Field

from airflow_training.web.document_check import MOST_CHARACTERS
from airflow_training.web.instance_reports import ListedProgress
from airflow_training.web.instance_usage import InstanceUsage

__all__ = [
    "ACTIONS",
    "ActionAnswer",
    "ActionConflict",
    "ActionName",
    "ActionRequest",
    "AskedAction",
    "AttemptAnswer",
    "BandAnswer",
    "CheckRequest",
    "CheckpointAnswer",
    "CostAnswer",
    "CurrentUser",
    "DependencyAnswer",
    "Detail",
    "EventAnswer",
    "EventPage",
    "HeatMapAnswer",
    "LastCheckpoint",
    "LinePage",
    "LinePlace",
    "LogHit",
    "LogLine",
    "LogPage",
    "LossPage",
    "NextError",
    "Phrase",
    "ProgressAnswer",
    "RerunAnswer",
    "RerunOffer",
    "RerunRequest",
    "Restarts",
    "RoleAnswer",
    "SearchEnd",
    "SeriesAnswer",
    "SeriesPage",
    "StateCounts",
    "Summary",
    "SummaryPage",
]

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


class CostAnswer(BaseModel):
    """What a run costs until now, by the prices of each moment."""

    amount: str
    """As text, so that no reader makes a float of it."""
    currency: str
    final: bool
    """The run is over: the amount stays as it is."""


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
    cost: CostAnswer | None
    """None: nothing has a price."""


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
