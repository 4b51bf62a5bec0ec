"""The plain data that decisions read and write: ledger, observations, requests, actions, events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

from airflow_training.control.causes import DiagnosedCause, RootCause
from airflow_training.control.hardware import ObservedHardware
from airflow_training.control.run_output import RunOutput
from airflow_training.documents.resolved import FailureClass
from airflow_training.documents.resolved_blocks import CheckpointCommit

InstanceState = Literal[
    "pending", "running", "succeeded", "failed", "stopped", "terminating", "unknown"
]
"""`stopped`: the run or its role needed it no more; only entries are, what is observed has failed."""
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
DeletionMode = Literal["", "AtOnce", "WithStacks"]
"""With the whole grace; at once, as nothing it could save counts; at once after its stacks were dumped."""
MOVED = "unfitNodes"
"""Rule of what was started again to leave an unfit node."""
STOPS: frozenset[str] = frozenset({"stop", "kill"})
"""Kinds of requests that end a run."""
TERMINAL_JOB_STATES: frozenset[str] = frozenset({"Succeeded", "Failed", "Stopped"})
InstanceKey = tuple[str, int]
"""(role, index)"""
INLINE: Mapping[str, tuple[str, ...]] = {"inline": ()}
"""Of a field: what it holds is stored among the fields of the record, not below the field's name."""
INLINE_KEY = {"inline": ("role", "index")}
"""The same of an InstanceKey, by these names."""
NOT_STORED: Mapping[str, None] = {"stored": None}
"""Of a field: it is not stored with the others, but elsewhere or not at all."""


@dataclass(frozen=True, slots=True, order=True)
class AttemptId:
    """Which attempt of an instance: equal for the same one whoever intended it, greater for a later one."""

    epoch: int = 0
    """How often the run was opened anew before."""
    job_attempt: int = 0
    attempt: int = 0
    generation: int = field(default=0, compare=False)
    """Of the lease under which it was intended; 0: of none."""


FIRST_ATTEMPT = AttemptId()


class AttemptKey(NamedTuple):
    """Which attempt of which instance; its number never repeats within an epoch, whatever the job attempt."""

    key: InstanceKey
    epoch: int
    attempt: int


class InstanceRecord:
    """Something about one instance."""

    __slots__ = ()
    key: InstanceKey

    @property
    def role(self) -> str:
        return self.key[0]

    @property
    def index(self) -> int:
        return self.key[1]


class AttemptRecord(InstanceRecord):
    """Something about one attempt of an instance."""

    __slots__ = ()
    attempt_id: AttemptId

    @property
    def epoch(self) -> int:
        return self.attempt_id.epoch

    @property
    def job_attempt(self) -> int:
        return self.attempt_id.job_attempt

    @property
    def attempt(self) -> int:
        return self.attempt_id.attempt

    @property
    def generation(self) -> int:
        return self.attempt_id.generation

    @property
    def attempt_key(self) -> AttemptKey:
        return AttemptKey(self.key, self.attempt_id.epoch, self.attempt_id.attempt)


SubtaskState = Literal[
    "PENDING", "STARTING", "RUNNING", "SAVING", "SAVED", "FAILED", "RESTORING", "DONE"
]
"""Of one process; see `subtasks`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedCheckpoint:
    """A checkpoint that was not restored, as it is damaged."""

    at: float
    """When that was found, epoch seconds of who found it."""
    why: str
    step: int | None = None
    """None: a document is damaged that several checkpoints rest on."""
    restore: str = ""
    """Of which start of which group: several of its processes may find the same damage. Empty: nobody said."""

    def is_same(self, other: RejectedCheckpoint) -> bool:
        """Return whether the other says again what one process, or a peer of it, has told."""
        if self == other:
            return True
        same = self.why == other.why if self.step is None else self.step == other.step
        return same and self.restore != "" and self.restore == other.restore


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessReport:
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
    rejected: tuple[RejectedCheckpoint, ...] = ()
    """The newest that its group rejected in this generation; only rank 0 tells."""


class ReportedValue(NamedTuple):
    """One value of a metric, as a line of the script had it."""

    step: int | None
    time: float
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRead:
    """How much of one file was read, in the unit that the script counts in."""

    name: str
    read: float
    total: float | None = None
    """None: not told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesReport:
    """What an attempt has read of all its files."""

    read: float
    """Of all together; what is read again counts again."""
    known: int
    """How many files were told of, of those that are remembered."""
    done: int
    """How many of them were read to their end."""
    newest: tuple[FileRead, ...] = ()
    """Those read last, the last one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReport:
    """The newest line a script wrote to `$TRAINING_PROGRESS_FILE`."""

    step: int | None = None
    total_steps: int | None = None
    epoch: float | None = None
    samples: int | None = None
    time: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    subtasks: tuple[ProcessReport, ...] = ()
    """The newest line of each of the instance's processes."""
    checkpoint: CheckpointCommit | None = None
    """The newest that was committed."""
    section: str = ""
    """What the script is doing between steps, as it calls it; "" where it trains."""
    points: Mapping[str, Sequence[ReportedValue]] = field(default_factory=dict, metadata=NOT_STORED)
    """The values of each metric in all lines since the report before, the newest line among them."""
    files: FilesReport | None = field(default=None, metadata=NOT_STORED)
    """None: no line of the attempt has told of files."""
    rejected: tuple[RejectedCheckpoint, ...] = ()
    """The newest that were not restored, told by a process which says nothing else of itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation(AttemptRecord):
    """What the runtime last saw of one instance object (a pod, an agent with its process tree)."""

    key: InstanceKey
    uid: str
    """Of the object itself: two attempts never share one."""
    attempt_id: AttemptId = FIRST_ATTEMPT
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
    progress: ProgressReport | None = None
    environment: tuple[str, ...] = ()
    """The newest records of what it has around it, oldest first, as its agent wrote them (JSON)."""
    output: RunOutput | None = None
    """What the instance uploaded, once it has succeeded."""
    in_place: bool = False
    """The next attempt can begin inside it: its agent lives, and waits where its command has failed."""
    can_stay: bool = False
    """As `in_place`, but for a look inside only: the next attempt needs an instance of its own."""
    kept: bool = False
    """It has failed, and its agent stays in it for a look inside."""
    lingers: bool = False
    """It has ended, but what runs beside it has not: its place is still taken."""

    @property
    def waits(self) -> bool:
        """Return whether its agent waits, where its command has failed, for what comes next."""
        return (self.in_place or self.can_stay) and self.state == "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """All instance objects of one run, after the first full snapshot."""

    instances: Sequence[Observation] = ()
    reachable: bool = True
    """False: the runtime does not answer now; states are the last known ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceDiagnosis(AttemptRecord):
    """Why one attempt of an instance failed, from its log and its end. It may come late."""

    key: InstanceKey
    attempt_id: AttemptId
    cause: DiagnosedCause
    step: int | None = None
    """The last one that was reported."""
    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None
    finished_at: float | None = None
    origin: InstanceDiagnosis | None = None
    """Of one that only lost others: of the instance that failed first, as all their logs say."""


RequestKind = Literal["activate", "pause", "resume", "scale", "stop", "kill", "reopen"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What anybody else wants of a run; appended to the store, read by the lease holder.

    `activate` and `scale` name a role; `stop` ends all with its grace, `kill` at once, also what is
    being stopped; `reopen` starts a new epoch (a task was cleared): finished indexes stay finished.
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
    older: tuple[CheckpointCommit, ...] = ()
    """Committed checkpoints before the newest, the oldest first; a few are kept."""
    at_most: int | None = None
    """Restore nothing newer than this step; None: the newest."""
    exactly: bool = False
    """`at_most` was asked for: another step will not do."""
    turned_at: float = 0.0
    """When training last left its newest checkpoint: what was committed before is news no more."""
    rejected: tuple[RejectedCheckpoint, ...] = ()
    """Told in the story already; the newest are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCheckpoints:
    """What an instance has committed that saves alone."""

    newest: CheckpointCommit
    recovery: Recovery
    """Of which `lineage` and `order` are the job's."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """What others wait for of an instance that runs."""

    address_live: bool = False
    port_open: bool = False
    ready: bool = False


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """How the attempt ended after which its instance does not run again."""

    exit_code: int | None = None
    signal: int | None = None
    failure_class: FailureClass | None = None


NOT_READY, NO_END = Readiness(), AttemptEnd()


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingPhase:
    """No object should exist, or what exists is being deleted: the attempt has yet to begin."""

    stored_as: ClassVar[str] = ""
    wanted: ClassVar[bool] = False
    final: ClassVar[bool] = False
    released: ClassVar[bool] = False
    readiness: ClassVar[Readiness] = NOT_READY
    end: ClassVar[AttemptEnd] = NO_END
    refused_since: ClassVar[None] = None
    replace_at: float | None = None
    """When the attempt may be created (backoff); None: as soon as nothing else keeps it."""
    deadline_at: float | None = None
    """Until when an object of the attempt before may still appear that nobody has seen yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivePhase:
    """An object should exist for the attempt."""

    stored_as: ClassVar[str] = "wanted"
    wanted: ClassVar[bool] = True
    final: ClassVar[bool] = False
    end: ClassVar[AttemptEnd] = NO_END
    wanted_at: float = 0.0
    """Since when."""
    released: bool = False
    readiness: Readiness = field(default=NOT_READY, metadata=INLINE)
    deadline_at: float | None = None
    """When it counts as lost, while nothing is heard of it."""
    refused_since: float | None = None
    """Since when the runtime does not make it for now."""
    refusal_told_at: float | None = None
    """When that was told last."""
    told_of_node: tuple[str, ...] = ()
    """Reasons for which its node was spoken of: an attempt has one node, whose conditions come and go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalPhase:
    """Succeeded, failed or stopped for good: it never runs again within the run's epoch."""

    stored_as: ClassVar[str] = "final"
    wanted: ClassVar[bool] = False
    final: ClassVar[bool] = True
    released: ClassVar[bool] = False
    readiness: ClassVar[Readiness] = NOT_READY
    refused_since: ClassVar[None] = None
    end: AttemptEnd = field(default=NO_END, metadata=INLINE)
    deadline_at: float | None = None
    """Until when an object of it may still appear that nobody has seen yet."""


InstancePhase = PendingPhase | ActivePhase | FinalPhase
"""Told apart in the store by a field that is true: the `stored_as` of the phase."""


@dataclass(frozen=True, slots=True)
class RaisedMemory:
    """The host memory that an instance asks for after it ran out of less."""

    bytes: int
    since_attempt: int
    """The first attempt that asks for so much."""


@dataclass(frozen=True, slots=True)
class AttemptHost:
    """The instance inside which an attempt begins."""

    uid: str = field(default="", metadata={"stored": "stays"})
    """Of the attempt before; "": in one of its own."""
    until: float | None = field(default=None, metadata={"stored": "stays_until"})
    """When that is given up unless what was ordered has happened; None: nothing was ordered."""


OWN_INSTANCE = AttemptHost()


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceEntry(AttemptRecord):
    """Ledger of one (role, index): what is intended and what is known. Persisted before acting."""

    key: InstanceKey = field(metadata=INLINE_KEY)
    phase: InstancePhase = field(default=PendingPhase(), metadata=INLINE)
    attempt_id: AttemptId = field(default=FIRST_ATTEMPT, metadata=INLINE)
    uid: str = ""
    state: InstanceState = "pending"
    reason: str = ""
    message: str = ""
    restarts: int = 0
    """Counted restarts of this instance (backoffLimit is a ceiling over these)."""
    was_running: bool = False
    """It ran at least once in the current attempt."""
    node: str = ""
    address: str = ""
    started_at: float | None = None
    finished_at: float | None = None
    last_transition_at: float = 0.0
    retired: bool = False
    """Not part of the role any more (scaled down); kept so that its attempt numbers never repeat."""
    joining: bool = False
    """Its role goes on without it: it counts once it runs."""
    avoid_nodes: tuple[str, ...] = ()
    """Where an attempt failed that needs another node; the newest few."""
    last_try: bool = False
    """The attempt is the one more that a failure was worth, and has not run yet."""
    observed_hardware: ObservedHardware | None = field(default=None, metadata={"stored": "had"})
    """What the last attempt that ran and failed had around it: what the next one must find."""
    own: OwnCheckpoints | None = None
    """Of an instance that saves alone beside others; None: nothing yet, or what the job says counts."""
    memory: RaisedMemory | None = None
    """What its attempts ask for since one ran out of it; None: what the document says."""
    deletion_mode: DeletionMode = field(default="", metadata={"stored": "parting"})
    """How what is left of the attempt before is ended."""
    host: AttemptHost = field(default=OWN_INSTANCE, metadata=INLINE)

    @property
    def wanted(self) -> bool:
        """Return whether an object should exist for the attempt; False: none, or being deleted."""
        return self.phase.wanted

    @property
    def final(self) -> bool:
        return self.phase.final

    @property
    def end(self) -> AttemptEnd:
        return self.phase.end


@dataclass(frozen=True, slots=True, kw_only=True)
class ReducedSize:
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
class Elapsed:
    """What a clock has counted that runs only for its own cause; see `clocks`."""

    seconds: float = 0.0
    """Of the stretches that are over."""
    at: float = 0.0
    """When it last began to run, or to stand still."""
    runs: bool = False
    began_at: float | None = None
    """When it ran first; None: never."""


NOTHING_ELAPSED = Elapsed()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldWait:
    """What was told last of instances that find no place."""

    reason: str
    message: str
    at: float


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
    waited: Mapping[str, Elapsed] = field(default_factory=dict)
    """Dependency (`role/status`) -> how long it alone held the role, though its own role had all it needs."""
    created: int = 0
    """Instances that have appeared since that was told: it is, once no other one is expected."""
    fewer: ReducedSize | None = None
    """Set while some of its instances cannot be had."""
    told: ToldWait | None = None
    """Set while some of them are known to find no place."""

    @property
    def desired(self) -> int:
        """Return how many instances it should have."""
        return self.replicas if self.fewer is None else self.fewer.full


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRecord(InstanceRecord):
    """One counted restart: exactly one per failure that was acted on."""

    at: float
    failure_class: FailureClass
    key: InstanceKey = field(metadata=INLINE_KEY)
    scope: str
    rule: str
    counted: bool = True
    """False for classes and rules that are counted but never limited."""
    epoch: int = 0
    """Ceilings start again in a new epoch; the record stays."""
    attempt: int = -1
    """The one that failed."""
    started_at: float | None = None
    """When that attempt began to run."""
    cause: str = ""
    """Id of what its log says, once that is known."""
    fingerprint: str = ""
    """What was the same if the same error happens again at the same step."""
    said_by_runtime: bool = False
    """The class comes from more than an exit code or signal: what a log says later does not change it."""
    explained: Literal["", "itself", "peers"] = ""
    """By what that happened in the instance itself, or only by the loss of others; "": not known yet."""
    lost_node: str = ""
    """The node that was lost with all that ran there: one outage is charged once; "": none."""
    silent_since: float | None = None
    """Since when nothing was heard of the attempt; None: it ended in another way."""

    @property
    def attempt_key(self) -> AttemptKey:
        return AttemptKey(self.key, self.epoch, self.attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptInstance(AttemptRecord):
    """The instance that failed first, which stays for a look inside once the job has failed."""

    state: Literal["asked", "stays", "impossible", "ended"]
    """`asked`: its agent is told to stay; `ended`: before its time, by request."""
    key: InstanceKey = field(default=("", 0), metadata=INLINE_KEY)
    attempt_id: AttemptId = field(default=FIRST_ATTEMPT, metadata=INLINE)
    uid: str = ""
    until: float = 0.0
    """When it goes by itself; of one that has `ended` when it did."""
    answer_by: float = 0.0
    """When it is given up, unless it was seen to stay."""
    why: str = ""
    """Of what is `impossible`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEntry:
    state: JobState = "Pending"
    condition: str = "Received"
    reason: str = ""
    message: str = ""
    last_transition_at: float = 0.0
    unreachable_since: float | None = None
    """Since when the runtime does not answer; None: it does, as far as anybody has asked."""
    answers_since: float = 0.0
    """Since when it answers again after it had not."""
    submitted_at: float = 0.0
    started_at: float | None = None
    running_at: float | None = None
    finished_at: float | None = None
    paused_at: float | None = None
    paused_seconds: float = 0.0
    ran: Elapsed = NOTHING_ELAPSED
    """What `activeDeadlineSeconds` counts."""
    trained: Elapsed = NOTHING_ELAPSED
    crowded_since: float | None = None
    """Since when some instances are refused while others hold places; None: all that are wanted are there."""
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
    killed: bool = False
    """What is left is ended at once: nothing that it could save is wanted."""
    root_cause: RootCause | None = None
    """The failure that ended the job; None unless it failed."""
    limit: str = ""
    """Of a job that failed: what let that failure end it, in words; `message` tells both."""
    checkpoint: CheckpointCommit | None = None
    """The newest that was committed."""
    recovery: Recovery = field(default_factory=Recovery)
    kept: KeptInstance | None = None
    """Of a job that failed with `keepFailedSeconds`."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended and nothing of it is alive."""
        return self.state in TERMINAL_JOB_STATES and self.drained

    @property
    def first_attempt(self) -> AttemptId:
        """Return the id of an instance's first attempt in its job attempt."""
        return AttemptId(self.epoch, self.job_attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    job: JobEntry = field(default_factory=JobEntry)
    roles: Mapping[str, RoleEntry] = field(default_factory=dict)
    instances: Mapping[InstanceKey, InstanceEntry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Create(AttemptRecord):
    key: InstanceKey
    attempt_id: AttemptId
    held: bool = False
    """Start in the initializer and wait for `Release`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedAttempt(AttemptRecord):
    """The runtime does not make an attempt for now: it waits, and nothing has failed."""

    key: InstanceKey
    attempt_id: AttemptId
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete(InstanceRecord):
    key: InstanceKey
    uid: str
    grace_seconds: float
    reason: str
    dump_stacks: bool = False
    """It hangs: its log first gets to know where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopProcess(InstanceRecord):
    """End what runs inside an instance that stays."""

    key: InstanceKey
    uid: str
    grace_seconds: float
    dump_stacks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartProcess(AttemptRecord):
    """Begin an attempt inside the instance `uid`, whose own attempt is over."""

    key: InstanceKey
    attempt_id: AttemptId
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dismiss(InstanceRecord):
    """No further attempt will begin inside this instance: let it go as it ended."""

    key: InstanceKey
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep(InstanceRecord):
    """Let an instance whose process has failed stay for a look inside."""

    key: InstanceKey
    uid: str
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Release(InstanceRecord):
    key: InstanceKey
    uid: str
    attempt: int
    answer: Literal["List", "Confirmation"] = "Confirmation"


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitPeers(InstanceRecord):
    """Let an instance be silent for a while, as it waits for others of its group that do not run."""

    key: InstanceKey
    uid: str
    seconds: float
    number: int
    """Of the order: the same one is followed once, however often it is given."""


Action = AwaitPeers | Create | Delete | Dismiss | Keep | Release | RestartProcess | StopProcess


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
