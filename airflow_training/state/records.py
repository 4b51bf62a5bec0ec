"""What the store answers with: plain frozen data. Imports no SQLAlchemy, so anyone may import it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_training.control.attempts import AttemptId
from airflow_training.control.model import TERMINAL_JOB_STATES, Event, JobEntry, Ledger
from airflow_training.documents.resolved import ResolvedJob, RunKey, RunRef

__all__ = [
    "Driver",
    "EnvironmentRecord",
    "Lease",
    "LogPosition",
    "LogValue",
    "Measurement",
    "MetricColumns",
    "MetricPoint",
    "RunMark",
    "RunOverview",
    "RunRecord",
    "RunState",
    "StoredEvent",
    "UsageSpan",
    "Version",
    "listed_state",
]


def listed_state(state: str, *, tombstone: bool) -> str:
    """Return the state by which lists find a run: what was killed before it began has no other end."""
    return "Stopped" if tombstone and state not in TERMINAL_JOB_STATES else state


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run as the store knows it. Times are epoch seconds."""

    uid: str
    key: RunKey
    job: str
    namespace: str
    runtime: str
    controller: str
    state: str
    condition: str
    submitted_at: float
    finished_at: float | None
    queued: bool
    tombstone: bool
    """Killed before it started, or removed: it must never start."""
    document_digest: str
    tombstone_reason: str = ""
    submitted_by: str = ""
    """User of the machine or of Airflow; empty where nobody knows, or a schedule did it."""

    @property
    def listed_state(self) -> str:
        """Return the state by which lists find it."""
        return listed_state(self.state, tombstone=self.tombstone)

    def ref(self, *, generation: int = 0) -> RunRef:
        """Return the run as a runtime knows it, under a generation of its lease."""
        return RunRef(
            uid=self.uid,
            job=self.job,
            namespace=self.namespace,
            controller=self.controller,
            generation=generation,
            submitted_at=self.submitted_at,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to write a run's ledger until `expires_at` of the store's clock."""

    run: str
    owner: str
    generation: int
    expires_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """Who drives a run, or did last. Times by the store's clock."""

    owner: str = ""
    """Empty: whoever it was has given the run up, or nobody ever drove it."""
    until: float = 0.0
    """The end of its lease; of one that was given up when that was; 0: of none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """An event with its place in the run's story: 1, 2, 3, ... without gaps."""

    seq: int
    event: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricPoint:
    """One value of a metric's series; `at` is the script's own time where it told one."""

    role: str
    index: int
    name: str
    at: float
    step: int | None
    value: float
    rank: int | None = None
    """None: told of the instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricColumns:
    """One series, as columns in the order of its times."""

    role: str
    index: int
    rank: int | None
    """None: told of the instance."""
    name: str
    at: Sequence[float]
    steps: Sequence[int | None]
    values: Sequence[float | None]
    """None: not a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What a run measured under one plan. Kept until the run is pruned."""

    plan: str
    """Id of the plan."""
    subject: str
    """What it tells something about: `planning.cost.measurements.subject`."""
    strategy: Mapping[str, Any]
    """As the plan's document has it."""
    step_seconds: float
    """Median of the intervals between the steps that the scripts reported."""
    steps: int
    """Those that the intervals span."""
    memory_bytes: float | None = None
    """Highest peak that a script reported; None: none did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """What one batched read gives about a run (sensors, role tasks, status)."""

    record: RunRecord
    job: ResolvedJob
    ledger: Ledger
    lease: Lease | None
    last_seq: int
    addresses: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    driver: Driver = Driver()


@dataclass(frozen=True, slots=True)
class RunMark:
    """Another one after each thing that somebody asks of a run, but for the start of a role.

    Tasks of Airflow ask for those as they begin; nobody steers the run by that.
    """

    epoch: int
    request: int
    """Number of the newest such request; 0: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOverview:
    """What a list says about a run: everything but its instances, roles and document."""

    record: RunRecord
    entry: JobEntry
    mark: RunMark
    stop_requested: bool
    """Somebody asked for the run's end, and nobody has acted on that yet."""
    kill_requested: bool
    """The same, for its end at once."""
    held: bool
    """Somebody drives the run."""
    lost: bool
    """Whoever drove the run let its lease run out: it has died, or cannot reach the store."""
    instances: Mapping[str, int]
    """State -> how many instances are in it."""
    driver: Driver = Driver()


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """Differs whenever something has changed that a reader of the run may care about."""

    revision: int
    """Of job, ledger and addresses."""
    last_seq: int
    """Of the newest event."""
    last_request: int
    generation: int
    """Of the lease; 0 where nobody ever held it."""
    held: bool
    """The lease has not run out, by the store's clock."""
    queued: bool
    tombstone: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPosition:
    """How far the log of one instance was read, across its attempts."""

    epoch: int
    job_attempt: int
    attempt: int
    done: int = 0
    """All lines before this offset are in the store."""
    offset: int = 0
    """A cursor of the runtime at or before `done`: reading goes on from here."""
    token: str = ""
    carry: Mapping[str, float] = field(default_factory=dict)
    """What the lines after it depend on: the newest steps."""
    held: Mapping[str, Any] = field(default_factory=dict)
    """Values that later lines tell the meaning of, and a table that they may belong to: see `logs/live/pieces`."""
    last_at: float = 0.0
    """Time of the newest value: a later one gets a greater time, as it is part of the key."""
    ended: bool = False
    """The attempt is over and all of its log was read."""

    @property
    def attempt_id(self) -> AttemptId:
        return AttemptId(self.epoch, self.job_attempt, self.attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogValue:
    """One value that stood in a log."""

    name: str
    at: float
    step: int | None
    value: float
    rank: int | None = None
    """As its line says; None: told of the instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSpan:
    """One attempt of one instance, from its start to its end, and whose it is."""

    run: str
    """Uid."""
    dag_id: str
    job: str
    submitted_by: str
    resources: Mapping[str, str]
    """As requested."""
    role: str = ""
    started_at: float
    finished_at: float
    """Now, where it has not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentRecord:
    """What an instance had around it at one moment, as its agent wrote it."""

    number: int
    """1, 2, 3, ... of the instance, across its attempts."""
    digest: str
    """`sha256:...` of its line, by which a checkpoint names it."""
    body: Mapping[str, Any]
