"""The plain data that decisions read and write: ledger, requests, events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from airflow_training.control.actions import Action
from airflow_training.control.attempts import (
    FIRST_ATTEMPT,
    INLINE,
    AttemptId,
    AttemptKey,
    AttemptRecord,
    InstanceRecord,
)
from airflow_training.control.causes import RootCause
from airflow_training.control.hardware import ObservedHardware
from airflow_training.control.observations import InstanceState
from airflow_training.control.reports import RejectedCheckpoint
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import FailureClass
from airflow_training.documents.resolved_blocks import CheckpointCommit

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
STOPS: frozenset[str] = frozenset({"stop", "kill", "interrupt"})
"""Kinds of requests that end a run."""
TERMINAL_JOB_STATES: frozenset[str] = frozenset({"Succeeded", "Failed", "Stopped"})
RequestKind = Literal[
    "activate", "pause", "preempt", "resume", "scale", "stop", "kill", "interrupt", "reopen"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What anybody else wants of a run; appended to the store, read by the lease holder.

    `activate` and `scale` name a role; `stop` ends all with its grace, `kill` at once, also what is
    being stopped; `preempt` is a pause for a run of a higher priority, until it is this one's turn
    again; `interrupt` is a stop that the process which drives the run was sent as a signal, `by`
    names it; `reopen` starts a new epoch (a task was cleared): finished indexes stay finished.
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
    stepped_back_at: float = field(default=0.0, metadata={"stored": "turned_at"})
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
    of_node: bool = False
    """It failed for its node."""


NOT_READY, NO_END = Readiness(), AttemptEnd()


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingPhase:
    """No object should exist, or what exists is being deleted: the attempt has yet to begin."""

    stored_as: ClassVar[str] = ""
    desired: ClassVar[bool] = False
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
class PeerWait:
    """What the agent of an attempt is told of others that it waits for."""

    number: int
    """Of the order."""
    since: float
    """When it began to wait, or waits no more."""
    at: float
    """When it was told so last."""
    waits: bool = True
    """False: all that it waited for run again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivePhase:
    """An object should exist for the attempt."""

    stored_as: ClassVar[str] = "wanted"
    desired: ClassVar[bool] = True
    final: ClassVar[bool] = False
    end: ClassVar[AttemptEnd] = NO_END
    desired_since: float = field(default=0.0, metadata={"stored": "wanted_at"})
    """Since when."""
    released: bool = False
    readiness: Readiness = field(default=NOT_READY, metadata=INLINE)
    deadline_at: float | None = None
    """When it counts as lost, while nothing is heard of it."""
    refused_since: float | None = None
    """Since when the runtime does not make it for now."""
    refusal_announced_at: float | None = field(default=None, metadata={"stored": "refusal_told_at"})
    """When that was told last."""
    announced_node_reasons: tuple[str, ...] = field(default=(), metadata={"stored": "told_of_node"})
    """Reasons for which its node was spoken of: an attempt has one node, whose conditions come and go."""
    peer_wait: PeerWait | None = None
    """None: its agent was told of no wait."""
    preflight_told: bool = False
    """What it measured before its command started was told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalPhase:
    """Succeeded, failed or stopped for good: it never runs again within the run's epoch."""

    stored_as: ClassVar[str] = "final"
    desired: ClassVar[bool] = False
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
class FailedAttempt:
    """How the attempt ended after which the next one has not begun yet."""

    attempt_id: AttemptId = field(metadata=INLINE)
    reason: str
    message: str
    finished_at: float
    node: str = ""
    end: AttemptEnd = field(default=NO_END, metadata=INLINE)

    def attempt_key(self, key: InstanceKey) -> AttemptKey:
        """Name it; `key`: of its instance."""
        return AttemptKey(key, self.attempt_id.epoch, self.attempt_id.attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceEntry(AttemptRecord):
    """Ledger of one (role, index): what is intended and what is known. Persisted before acting."""

    key: InstanceKey = field(metadata=INLINE)
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
    before: FailedAttempt | None = None
    """The attempt that failed, until the next one begins; None: it did not end by itself."""

    @property
    def desired(self) -> bool:
        """Return whether an object should exist for the attempt; False: none, or being deleted."""
        return self.phase.desired

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
class AnnouncedWait:
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
    """Wanted now: the document's, what `scale` asked for, or the `reduced` number it goes on with."""
    activated: bool = False
    waits: Mapping[str, Elapsed] = field(default_factory=dict, metadata={"stored": "waited"})
    """Dependency (`role/status`) -> how long it alone held the role, though its own role had all it needs."""
    created: int = 0
    """Instances that have appeared since that was told: it is, once no other one is expected."""
    reduced: ReducedSize | None = field(default=None, metadata={"stored": "fewer"})
    """Set while some of its instances cannot be had."""
    announced_wait: AnnouncedWait | None = field(default=None, metadata={"stored": "told"})
    """Set while some of them are known to find no place."""

    @property
    def desired(self) -> int:
        """Return how many instances it should have."""
        return self.replicas if self.reduced is None else self.reduced.full


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRecord(InstanceRecord):
    """One counted restart: exactly one per failure that was acted on."""

    at: float
    failure_class: FailureClass
    key: InstanceKey = field(metadata=INLINE)
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
    explained_by: Literal["", "itself", "peers"] = field(
        default="", metadata={"stored": "explained"}
    )
    """By what that happened in the instance itself, or only by the loss of others; "": not known yet."""
    lost_node: str = ""
    """The node that was lost with all that ran there: one outage is charged once; "": none."""
    silent_since: float | None = None
    """Since when nothing was heard of the attempt; None: it ended in another way."""
    node: str = ""
    """Where the attempt was."""
    of_node: bool = False
    """It failed for that node, as its reason or the devices there say."""

    @property
    def attempt_key(self) -> AttemptKey:
        return AttemptKey(self.key, self.epoch, self.attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptInstance(AttemptRecord):
    """The instance that failed first, which stays for a look inside once the job has failed."""

    state: Literal["asked", "stays", "impossible", "ended"]
    """`asked`: its agent is told to stay; `ended`: before its time, by request."""
    key: InstanceKey = field(default=InstanceKey("", 0), metadata=INLINE)
    attempt_id: AttemptId = field(default=FIRST_ATTEMPT, metadata=INLINE)
    uid: str = ""
    until: float = 0.0
    """When it goes by itself; of one that has `ended` when it did."""
    answer_by: float = 0.0
    """When it is given up, unless it was seen to stay."""
    why: str = ""
    """Of what is `impossible`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopVerdict(AttemptRecord):
    """That the job's stop condition holds, so that the instance with its output is told to finish."""

    condition: str
    """What holds, with the values."""
    at: float = 0.0
    attempt_id: AttemptId = field(default=FIRST_ATTEMPT, metadata=INLINE)
    """Of the instance that is told: a later one has its own progress, and is judged by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEntry:
    state: JobState = "Pending"
    condition: str = "Received"
    reason: str = ""
    message: str = ""
    last_transition_at: float = 0.0
    unreachable_since: float | None = None
    """Since when the runtime does not answer; None: it does, as far as anybody has asked."""
    unreachable_why: str = ""
    """In the words of the runtime."""
    outage_announced: bool = field(default=False, metadata={"stored": "unreachable_told"})
    """Whether an event tells of it: it lasts."""
    answers_since: float = 0.0
    """Since when it answers again after it had not."""
    submitted_at: float = 0.0
    started_at: float | None = None
    running_at: float | None = None
    finished_at: float | None = None
    paused_at: float | None = None
    paused_seconds: float = 0.0
    active_time: Elapsed = field(default=NOTHING_ELAPSED, metadata={"stored": "ran"})
    """What `activeDeadlineSeconds` counts."""
    training_time: Elapsed = field(default=NOTHING_ELAPSED, metadata={"stored": "trained"})
    crowded_since: float | None = None
    """Since when some instances are refused while others hold places; None: all that are wanted are there."""
    epoch: int = 0
    job_attempt: int = 0
    plan_revision: int = 0
    """Of the plan that instances carry out: each split that they change to while their processes stay is another one."""
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
    stop: StopVerdict | None = None
    """Set from when a stop condition holds until the output is away, and the job ends."""

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
