"""The plain data that decisions read and write: ledger, observations, requests, actions, events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from airflow_training.spec.resolved import FailureClass

InstanceState = Literal["pending", "running", "succeeded", "failed", "terminating", "unknown"]
RoleState = Literal[
    "Waiting", "Starting", "Running", "Restarting", "Succeeded", "Failed", "Stopped"
]
JobState = Literal[
    "Pending",
    "Queued",
    "Starting",
    "Running",
    "Restarting",
    "Paused",
    "Succeeded",
    "Failed",
    "Stopped",
]
Parting = Literal["", "AtOnce", "WithStacks"]
"""With the whole grace; at once, as nothing it could save counts; at once after its stacks were dumped."""
TERMINAL_JOB_STATES: frozenset[str] = frozenset({"Succeeded", "Failed", "Stopped"})
InstanceKey = tuple[str, int]
"""(role, index)"""
SubtaskState = Literal[
    "PENDING", "STARTING", "RUNNING", "SAVING", "SAVED", "FAILED", "RESTORING", "DONE"
]
"""Of one process; see `subtasks`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What one process said about itself, in a line of `$TRAINING_PROGRESS_FILE`."""

    rank: int
    """Among the processes of its checkpoint group."""
    generation: int
    """Of the fence that it works under."""
    sequence: int
    """1, 2, 3, ... within the generation; a repeated line has the number it had."""
    state: SubtaskState
    step: int | None = None
    verified: tuple[int, ...] = ()
    """The newest steps whose own part this process has read back, or just restored."""
    world: int | None = None
    """How many processes there are; None: as many as before."""
    group: str = ""
    """`<role>-<index>` of an instance whose checkpoints are its own; "": one group of the job."""
    environment: str = ""
    """Digest of the environment record that the newest save names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The newest line a script wrote to `$TRAINING_PROGRESS_FILE`."""

    step: int | None = None
    total_steps: int | None = None
    epoch: float | None = None
    samples: int | None = None
    time: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    subtasks: tuple[Told, ...] = ()
    """The newest line of each of the instance's processes."""
    checkpoint: Mapping[str, Any] | None = None
    """The newest that was committed: `uri`, `step`, `digest`, `at`, `seconds`, `bytes`."""
    section: str = ""
    """What the script is doing between steps, as it calls it; "" where it trains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the runtime last saw of one instance object (a pod, an agent with its process tree)."""

    role: str
    index: int
    uid: str
    """Of the object itself: two attempts never share one."""
    epoch: int = 0
    job_attempt: int = 0
    attempt: int = 0
    generation: int = 0
    state: InstanceState = "pending"
    reason: str = ""
    """As the runtime says it: `OOMKilled`, `Evicted`, `WaitingForDependency`, ..."""
    message: str = ""
    exit_code: int | None = None
    signal: int | None = None
    disrupted: bool = False
    """The platform ended it (`DisruptionTarget`, preemption, node drain)."""
    held: bool = False
    """It waits in the initializer for `release`."""
    scheduled: bool = True
    address_live: bool = False
    port_open: bool = False
    ready: bool = False
    node: str = ""
    address: str = ""
    state_since: float = 0.0
    started_at: float | None = None
    finished_at: float | None = None
    progress: Progress | None = None
    environment: tuple[str, ...] = ()
    """The newest records of what it has around it, oldest first, as its agent wrote them (JSON)."""
    output: Mapping[str, Any] | None = None
    """`{uri, bytes, digest}` of what the instance uploaded, once it has succeeded."""
    in_place: bool = False
    """The next attempt can begin inside it: its agent lives, and waits where its command has failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """All instance objects of one run, after the first full snapshot."""

    instances: Sequence[Observation] = ()
    reachable: bool = True
    """False: the runtime does not answer now; states are the last known ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosed:
    """Why one attempt of an instance failed, from its log and its end. It may come late."""

    role: str
    index: int
    attempt: int
    cause: Mapping[str, Any]
    """As `logs diagnose` prints it."""
    job_attempt: int = 0
    step: int | None = None
    """The last one that was reported."""
    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None
    finished_at: float | None = None


RequestKind = Literal["activate", "pause", "resume", "scale", "stop", "reopen"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What anybody else wants of a run; appended to the store, read by the lease holder.

    `activate` and `scale` name a role; `stop` is kill; `reopen` starts a new epoch (a task was
    cleared): finished indexes stay finished.
    """

    id: int
    kind: RequestKind
    role: str = ""
    replicas: int | None = None
    reason: str = ""
    by: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Where training goes on from when the job is started again."""

    lineage: int = 0
    """How often training was begun anew: each beginning has checkpoints of its own."""
    order: int = 0
    """How often all of the job was started again: an instance of an older order commits nothing."""
    highest_step: int = -1
    """The newest step that was ever committed in this lineage; what is below it is no progress."""
    progressed_at: float = 0.0
    """When that became known: recoveries of the whole job before it count no more."""
    older: tuple[Mapping[str, Any], ...] = ()
    """References of committed checkpoints before the newest, the oldest first; a few are kept."""
    at_most: int | None = None
    """Restore nothing newer than this step; None: the newest."""
    exactly: bool = False
    """`at_most` was asked for: another step will not do."""
    turned_at: float = 0.0
    """When training last left its newest checkpoint: what was committed before is news no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCheckpoints:
    """What an instance has committed that saves alone."""

    newest: Mapping[str, Any]
    """Reference of the newest, as `JobEntry.checkpoint`."""
    recovery: Recovery
    """Of which `lineage` and `order` are the job's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceEntry:
    """Ledger of one (role, index): what is intended and what is known. Persisted before acting."""

    role: str
    index: int
    wanted: bool = False
    """An object should exist for (epoch, job_attempt, attempt); False: none, or being deleted."""
    epoch: int = 0
    job_attempt: int = 0
    attempt: int = 0
    generation: int = 0
    """Lease generation that intended the current attempt."""
    uid: str = ""
    state: InstanceState = "pending"
    reason: str = ""
    message: str = ""
    exit_code: int | None = None
    signal: int | None = None
    failure_class: FailureClass | None = None
    final: bool = False
    """Succeeded or failed for good: never runs again within the run's epoch."""
    restarts: int = 0
    """Counted restarts of this instance (backoffLimit is a ceiling over these)."""
    replace_at: float | None = None
    """When the next attempt may be created (backoff); None: nothing planned."""
    released: bool = False
    address_live: bool = False
    port_open: bool = False
    ready: bool = False
    was_running: bool = False
    """It ran at least once in the current attempt."""
    node: str = ""
    address: str = ""
    wanted_at: float = 0.0
    started_at: float | None = None
    finished_at: float | None = None
    last_transition_at: float = 0.0
    deadline_at: float | None = None
    """Spare for the decision core (scheduling, unknown); None when no clock runs."""
    retired: bool = False
    """Not part of the role any more (scaled down); kept so that its attempt numbers never repeat."""
    joining: bool = False
    """Its role goes on without it: it counts once it runs."""
    avoid_nodes: tuple[str, ...] = ()
    """Where an attempt failed that needs another node; the newest few."""
    had: Mapping[str, Any] = field(default_factory=dict)
    """What the last attempt that ran and failed had around it: what the next one must find."""
    own: OwnCheckpoints | None = None
    """Of an instance that saves alone beside others; None: nothing yet, or what the job says counts."""
    parting: Parting = ""
    """How what is left of the attempt before is ended."""
    stays: str = ""
    """Uid of the attempt before, inside whose instance this one begins; "": in one of its own."""
    stays_until: float | None = None
    """When that is given up unless what was ordered has happened; None: nothing was ordered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fewer:
    """An elastic role that goes on with fewer instances than it should have, and why."""

    full: int
    """How many it should have: the document's number, or what `scale` asked for."""
    why: str = ""
    since: float = 0.0
    """When it last lost one."""
    tries: int = 0
    """How often what is missing was tried in vain."""
    try_at: float = 0.0
    """When it is tried next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleEntry:
    role: str
    state: RoleState = "Waiting"
    reason: str = ""
    message: str = ""
    last_transition_at: float = 0.0
    replicas: int = 0
    """Wanted now: the document's, what `scale` asked for, or the `fewer` it goes on with."""
    activated: bool = False
    gated_since: Mapping[str, float] = field(default_factory=dict)
    """Dependency (`role/status`) -> when it alone began to hold the role."""
    fewer: Fewer | None = None
    """Set while some of its instances cannot be had."""

    @property
    def desired(self) -> int:
        """Return how many instances it should have."""
        return self.replicas if self.fewer is None else self.fewer.full


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRecord:
    """One counted restart: exactly one per failure that was acted on."""

    at: float
    failure_class: FailureClass
    role: str
    index: int
    scope: str
    rule: str
    counted: bool = True
    """False for classes and rules that are counted but never limited."""
    epoch: int = 0
    """Ceilings start again in a new epoch; the record stays."""
    attempt: int = -1
    """The one that failed."""
    cause: str = ""
    """Id of what its log says, once that is known."""
    fingerprint: str = ""
    """What was the same if the same error happens again at the same step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEntry:
    state: JobState = "Pending"
    condition: str = "Received"
    reason: str = ""
    message: str = ""
    last_transition_at: float = 0.0
    submitted_at: float = 0.0
    started_at: float | None = None
    running_at: float | None = None
    finished_at: float | None = None
    paused_at: float | None = None
    paused_seconds: float = 0.0
    epoch: int = 0
    job_attempt: int = 0
    fresh_jobs: int = 0
    restarts: tuple[RestartRecord, ...] = ()
    restart_at: float | None = None
    """When a whole-job restart may create again (backoff)."""
    seen_request: int = 0
    """Highest request id that was acted on."""
    drained: bool = False
    """Terminal, and a snapshot taken after the last delete showed nothing alive."""
    root_cause: Mapping[str, Any] | None = None
    """The failure that ended the job, as `status` prints it (plain JSON); None unless it failed."""
    checkpoint: Mapping[str, Any] | None = None
    """Newest committed checkpoint: `uri` of its root, `step`, `digest` of its manifest, and more."""
    recovery: Recovery = field(default_factory=Recovery)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    job: JobEntry = field(default_factory=JobEntry)
    roles: Mapping[str, RoleEntry] = field(default_factory=dict)
    instances: Mapping[InstanceKey, InstanceEntry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    role: str
    index: int
    epoch: int
    job_attempt: int
    attempt: int
    held: bool = False
    """Start in the initializer and wait for `Release`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    role: str
    index: int
    uid: str
    grace_seconds: float
    reason: str
    dump_stacks: bool = False
    """It hangs: its log first gets to know where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopProcess:
    """End what runs inside an instance that stays."""

    role: str
    index: int
    uid: str
    grace_seconds: float
    dump_stacks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartProcess:
    """Begin an attempt inside the instance `uid`, whose own attempt is over."""

    role: str
    index: int
    epoch: int
    job_attempt: int
    attempt: int
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dismiss:
    """No further attempt will begin inside this instance: let it go as it ended."""

    role: str
    index: int
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    role: str
    index: int
    uid: str
    attempt: int
    answer: Literal["List", "Confirmation"] = "Confirmation"


Action = Create | Delete | Dismiss | Release | RestartProcess | StopProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of the run's story. `reason` is a CamelCase constant, `message` is for people."""

    at: float
    reason: str
    message: str = ""
    role: str = ""
    index: int | None = None
    attempt: int | None = None
    rule: str = ""
    level: Literal["info", "warning", "error"] = "info"
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    new_ledger: Ledger
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    wake_at: float | None = None
    """Decide again no later than this, also without a change."""
    done: bool = False
    """The job is terminal and drained: the loop may end."""
