"""The port every runtime adapter implements. Nothing above it knows what a pod or a process is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, runtime_checkable

from airflow_training.control.attempts import (
    FIRST_ATTEMPT,
    AttemptId,
    AttemptRecord,
    InstanceRecord,
)
from airflow_training.control.hardware import RequiredHardware
from airflow_training.control.observations import Observation
from airflow_training.control.reason_facts import Reasons
from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob, ResolvedRole, RunRef
from airflow_training.documents.resolved_blocks import ResolvedCode, ResolvedEnvironment, StallRules
from airflow_training.errors import Problem
from airflow_training.runtimes.agent_reasons import AGENT_REASONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    hold: bool = False
    """Instances can be created and wait for `release`."""
    restart_in_place: bool = False
    """Instances can stay while their process ends and another attempt begins in them."""
    gangs: tuple[str, ...] = ("none",)
    """What a job may ask for as `schedulingPolicy.gang`; documents may name those of all runtimes."""
    fixed_size_gangs: tuple[str, ...] = ()
    """Of these, those whose groups stay as large as they began, and lose a member only to another."""
    memory_limits: bool = False
    leaves_objects: bool = False
    """A run that is over has objects besides its ended instances, which `remove` takes away."""
    finishes: bool = False
    """Agents can be told to finish (`SupportsFinish`)."""
    replaces_files: bool = False
    """Files of instances can be replaced while their command runs (`ReplacesFiles`)."""
    runs_here: bool = False
    """Instances are processes of this machine, and see its files."""
    code: bool = False
    """What a job names as `spec.code` is laid out before its commands start."""
    environments: bool = False
    """The Python that a job names as `spec.environment` is made ready before its commands start."""
    shares_files: bool = False
    """Instances are elsewhere, and see the files of this machine at the same paths all the same."""
    shares_machine: bool = False
    """Nothing behind shares out what its nodes have, so that the queue does."""
    reasons: Reasons = field(default_factory=lambda: AGENT_REASONS, compare=False, repr=False)
    """What the reasons say that its instances end with; all others say nothing."""
    excludes_nodes: bool = False
    """Instances are placed on nodes by an engine that can be told to leave out some (`InstanceSpec.excluded_nodes`)."""
    spares: bool = False
    """Places can be held for instances that may come (`HoldsSpares`)."""
    place: str = ""
    """Only processes of the same place see its instances and make them alike; empty: all do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where one instance is reached: a name that is fixed for the run, ports for a job attempt."""

    host: str
    ports: Mapping[str, int] = field(default_factory=dict)

    @property
    def port(self) -> int | None:
        """Return the first port, or None where the role has none."""
        return next(iter(self.ports.values()), None)

    def __str__(self) -> str:
        return self.host if self.port is None else f"{self.host}:{self.port}"


Addresses = Mapping[str, Sequence[Address]]
"""Role -> addresses by index; fixed in `prepare`, for one job attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRef(AttemptRecord):
    """One attempt of one instance of one run."""

    run: RunRef
    key: InstanceKey
    attempt_id: AttemptId = FIRST_ATTEMPT
    uid: str = ""
    """Of the object, where known: a precondition of delete and release."""

    def at_attempt(self, attempt: int) -> InstanceRef:
        """Return the attempt of that number of the same instance, whatever its object."""
        return replace(self, attempt_id=replace(self.attempt_id, attempt=attempt), uid="")


_NO_ROLE = ResolvedRole(name="", replicas=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSpec:
    """Everything an adapter needs to start one attempt; fully rendered, no templates left."""

    ref: InstanceRef
    name: str
    resolved: ResolvedRole = _NO_ROLE
    """Its role, as the job has it: what an adapter needs besides, it renders from there."""
    image: str = ""
    command: Sequence[str] = ()
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Path -> content, written before the command starts."""
    replaced: frozenset[str] = frozenset()
    """Paths of `files` that may get another content while the command runs (`ReplacesFiles`)."""
    executables: frozenset[str] = frozenset()
    """Paths of `files` that get the executable bit."""
    live_files: Mapping[str, str] = field(default_factory=dict)
    """Path -> content that is written on release, from the live addresses."""
    working_dir: str = ""
    """Below the code where there is `code`, and below the folder of the job file on this machine."""
    code: ResolvedCode | None = None
    """Laid out before the command starts; what is changed below it goes with the output."""
    environment: ResolvedEnvironment | None = None
    """Whose Python runs the command; None: that of the image or the machine."""
    ports: Mapping[str, int] = field(default_factory=dict)
    resources: Mapping[str, str] = field(default_factory=dict)
    """Limits where given, else requests, of the training container: Kubernetes quantities."""
    avoid_nodes: tuple[str, ...] = ()
    """Nodes to keep away from where there are others: earlier attempts failed there."""
    excluded_nodes: tuple[str, ...] = ()
    """Nodes that it may not be placed on, also where there are no others: of a runtime that `excludes_nodes`."""
    held: bool = False
    deadline_seconds: float | None = None
    """The instance ends itself after this, even if nobody is left to tell it."""
    grace_seconds: float = 30.0
    readiness: RequiredHardware | None = None
    """What has to be there before the command starts; None: nobody looks."""
    in_place_seconds: float = 0.0
    """How long it waits after its command has failed for `restart_process`; 0: it ends."""
    keep_seconds: float = 0.0
    """How long it may stay for a look inside after its job has failed (`KeepsFailed.keep`)."""
    stall: StallRules | None = None
    """Of a job whose hangs are to be found; None: nobody looks."""
    watch: str = ""
    """Folder whose content is committed as checkpoints, and put back before the command starts."""
    predictions_uri: str = ""
    """Where complete files of `TRAINING_PREDICTIONS_DIR` are brought; "": where the runtime keeps things itself."""
    finishes: bool = False
    """It may be told to finish (`SupportsFinish`)."""
    output_uri: str = ""
    """Not empty: upload `TRAINING_OUTPUT_DIR`, and what was written below its code, there after exit 0, before it
    counts as succeeded."""
    output_continuous: bool = False
    """What is whole of it is uploaded while the command runs."""

    @property
    def container(self) -> str:
        """Return the name of the training container in the role's template."""
        return self.resolved.container


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Answer of one create."""

    ref: InstanceRef
    result: Literal["created", "adopted", "refused", "error", "impossible"]
    message: str = ""
    reason: str = ""
    """Of what is refused for now: what it waits for, as `status` shows it."""
    patience_seconds: float = 4.0
    """Of what is refused for now: at most so long until the next try."""
    grace_seconds: float | None = None
    """Of what is refused for now: after so long it is `impossible`; None: it waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All instance objects of the run; always the first thing a watch yields."""

    instances: Sequence[Observation]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceUpdate:
    instance: Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRemoval(InstanceRecord):
    key: InstanceKey
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomMade:
    """What was refused for now may be made by now: a quota is larger, or less of it is used."""


Change = Snapshot | InstanceUpdate | InstanceRemoval | RoomMade
"""What a watch yields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseAnswer:
    """What the initializer receives: the live addresses, or only a confirmation."""

    kind: Literal["List", "Confirmation"]
    addresses: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """Position in a log: a byte offset (`local`), or an opaque token of a live source."""

    offset: int = 0
    token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChunk:
    data: bytes
    next: Cursor
    end: bool
    """True when the instance's attempt is over and everything was read."""
    missing: str = ""
    """What of the attempt's log could not be kept, and why; "": nothing that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """One machine: what it has at all, and what no instance of ours asked for yet."""

    name: str
    cpus: float
    memory_bytes: int
    gpus: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    """As on a node of Kubernetes; `nvidia.com/gpu.product` says what its GPUs are."""
    free_cpus: float | None = None
    """None: not known, take `cpus`."""
    free_memory_bytes: int | None = None
    free_gpus: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """What the planner and the queue see of the machine or cluster."""

    nodes: Sequence[NodeView]
    instances: int | None = None
    """How many instances with a rank quotas let the job have that was asked for; None: any number."""


class Runtime(Protocol):
    """Creates, watches and removes instances. Every method is idempotent and async-safe.

    All raise `RuntimeUnavailable` where the engine behind cannot be reached now.
    """

    name: str
    capabilities: Capabilities

    async def check(
        self, run: RunRef, job: ResolvedJob, firsts: Sequence[InstanceSpec]
    ) -> Sequence[Problem]:
        """Problems that keep the job from running on this engine; creates nothing.

        `firsts`: the first instance of each role, as `create` would get it.
        """

    async def prepare(
        self, run: RunRef, job: ResolvedJob, *, attempt: AttemptId = FIRST_ATTEMPT
    ) -> Addresses:
        """Fix the addresses of a job attempt (services, ports, configuration, gang).

        `attempt`: of it, epoch and job attempt say which.
        The same answer every time for the same job attempt, whoever asks. Another one has the same
        names, and other ports where its instances would meet those of the attempt before on the
        same machine: what is left of their connections keeps a port for a minute.

        Raises LeaseLost where `create` would be refused for the run's generation, and RefusedForNow
        where something of it is not made for now: then `create` is not asked, and all instances wait.
        """

    async def create(self, instances: Sequence[InstanceSpec]) -> Sequence[Outcome]:
        """Create, or adopt what exists under the same name and attempt; one outcome each.

        `refused`: another attempt still lives, a newer attempt exists, a newer generation owns
        the run, or the run was removed (tombstone) under this generation or a newer one. An
        ended attempt that was not deleted is adopted as it is; a deleted one is made again.
        What is full or away is `refused` too: it is tried again, and is no failure.
        `error`: it failed, and may not the next time. `impossible`: the engine will never take it,
        or the name is somebody else's. Raises InputError where that goes for all of the run.
        """

    async def release(self, instances: Sequence[InstanceRef], answer: ReleaseAnswer) -> None:
        """Let held instances start their command."""

    async def stop_process(
        self,
        instances: Sequence[InstanceRef],
        *,
        grace_seconds: float,
        dump_stacks: bool = False,
    ) -> None:
        """End what runs inside instances that stay: they are then failed, and wait.

        For those that were observed with `in_place`; for any other, nothing happens.
        """

    async def restart_process(self, instance: InstanceRef, spec: InstanceSpec) -> Outcome:
        """Begin the attempt of `spec` inside `instance`, which has failed and waits.

        From then on `instance` is gone, and the new attempt an instance with a uid of its own.
        `adopted`: it has begun already. `refused`: as with `create`, or nothing waits there.
        """

    async def dismiss(self, instances: Sequence[InstanceRef]) -> None:
        """Let instances that wait go as they ended; they stay visible as any that has ended."""

    async def delete(
        self,
        instances: Sequence[InstanceRef],
        *,
        grace_seconds: float,
        dump_stacks: bool = False,
    ) -> None:
        """End whole instances: TERM, grace, KILL. Returns when asked for, not when gone.

        `dump_stacks`: they hang; where the adapter can, their logs first say where.
        """

    def watch(self, run: RunRef) -> AsyncIterator[Change]:
        """Yield a full snapshot first, then changes; survives reconnects with a new snapshot.

        RoomMade, where a runtime knows, lets refused creates be asked for again without waiting for longer.
        An instance that runs, or starts, on a machine that it should leave has the reason `NodeUnfit`
        (`control.reasons`), and the machine's words; the job's `unfitNodes` says what counts.

        Raises RuntimeUnavailable while the engine cannot be reached: watch again later.
        """

    async def read_log(
        self, instance: InstanceRef, cursor: Cursor, *, limit: int, attempt: int | None = None
    ) -> LogChunk:
        """Return up to `limit` bytes of the instance's log from `cursor`."""

    async def tail_log(self, instance: InstanceRef, *, limit: int) -> bytes:
        """Return the end of the attempt's log as of now, at most `limit` bytes; empty where there is none.

        It costs the same however long the log is. An engine that counts no bytes may return fewer:
        its last 20 lines at least.
        """

    async def collect_logs(
        self, run: RunRef, *, only: Collection[InstanceKey] | None = None
    ) -> None:
        """Keep what the run's instances print where `read_log` finds it, as it comes, until cancelled.

        Returns at once where all of it is kept anyway. `only`: for somebody who looks at these
        instances beside the one who drives the run.
        """

    async def remove(self, run: RunRef) -> None:
        """End everything of the run and refuse later creates; raises StillAlive.

        Logs and outputs stay. A later lease generation may create again (a reopened run).
        """

    async def cluster_view(
        self, job: ResolvedJob | None = None, *, with_free: bool = False
    ) -> ClusterSnapshot:
        """Return the nodes; `job`: and how much of them it is allowed.

        `with_free`: what others hold is looked up, where that takes a question of its own.
        """


@runtime_checkable
class SupportsRoom(Protocol):
    """A runtime that can tell whether quotas leave room for a job now; others may take it before it starts."""

    async def room_problems(self, job: ResolvedJob) -> Sequence[Problem]:
        """What of all its instances could not be made now; creates nothing. Raises RuntimeUnavailable."""


@runtime_checkable
class SupportsStartWarnings(Protocol):
    """A runtime that can tell before the start what a job would wait for."""

    async def warnings(
        self, run: RunRef, job: ResolvedJob, firsts: Sequence[InstanceSpec]
    ) -> Sequence[Problem]:
        """Warnings before a start; empty where nobody may know. `firsts` as for `check`.

        Of code `never_fits`: an instance that no machine could take even when it is empty, with the largest
        that would fit. What is observed of such an instance has the reason `NeverFits` (`control.reasons`).
        """


@runtime_checkable
class ExcusesWaits(Protocol):
    """A runtime whose agents can be told that their instances wait for others."""

    async def await_peers(
        self, instances: Sequence[InstanceRef], *, seconds: float, number: int
    ) -> None:
        """Let the silence of instances count as no hang for so long; the same `number` counts once.

        `seconds` 0: they wait no more, and their silence counts from now on.

        For those that were observed with `in_place`; for any other, nothing happens.
        """


@runtime_checkable
class SupportsFinish(Protocol):
    """A runtime whose agents can end a command early as one that has done all."""

    async def finish_early(self, instances: Sequence[InstanceRef], *, grace_seconds: float) -> None:
        """End what runs inside instances (TERM, grace, KILL), and bring their output away: they then have succeeded.

        However the command ends after that. For those created with `finishes`; of one that has not begun or is
        over, nothing changes.
        """


@runtime_checkable
class ReplacesFiles(Protocol):
    """A runtime that can give instances other files while their command runs."""

    async def replace_files(self, given: Sequence[tuple[InstanceRef, Mapping[str, str]]]) -> None:
        """Replace files (path -> content, of `InstanceSpec.replaced`) of instances, each in one step.

        What has that content already is left alone, and so is an instance that is not there any more.
        Raises LeaseLost where a newer generation owns the run: nothing is replaced then.
        """

    async def can_replace_files(self, instances: Sequence[InstanceRef]) -> bool:
        """Return whether all of these that are there have such files: what an earlier version of us created may have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpareRequest:
    """How many spares a role should have."""

    role: str
    number: int
    spec: InstanceSpec | None = None
    """An instance of the role as it would be made now: its spares ask for the same place. None where `number` is 0."""
    yields: int = 0
    """How many of those that have a place give it up first."""
    may_wait: bool = True
    """False: those that wait for a place go, and none is made that might take the one of an instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldSpare:
    """A spare that has a place."""

    role: str
    number: int
    """Above 0, of this spare alone in its run."""
    node: str
    since: float
    """Epoch seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparesAnswer:
    """What became of the spares that were asked for."""

    held: Sequence[HeldSpare] = ()
    yielded: Sequence[HeldSpare] = ()
    """Those that have given up their places."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Role -> why no more can be had, in words that stay the same."""


@runtime_checkable
class HoldsSpares(Protocol):
    """A runtime that can hold places for instances, with their image, until one needs a place."""

    async def hold_spares(self, run: RunRef, requests: Sequence[SpareRequest]) -> SparesAnswer:
        """Make, and end, as many spares as are asked for.

        They are no instances: nothing watches them, and `remove` ends what is left. Raises LeaseLost.
        """


@runtime_checkable
class KeepsFailed(Protocol):
    """A runtime whose instances can stay for a look inside after their process has failed."""

    async def keep(self, instance: InstanceRef, *, seconds: float) -> None:
        """Let an instance that has failed and waits stay for so long; it is then observed as `kept`.

        Its own agent ends it, though nobody is left to ask for it. `remove` leaves it alone.
        """

    async def end_kept(self, run: RunRef) -> None:
        """End what stays of a run before its time; raises StillAlive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """Where a shell reads and writes: descriptors of this process."""

    stdin: int = 0
    stdout: int = 1
    stderr: int = 2
    terminal: bool = False
    """All of them are one terminal: the shell gets one of its own, as large, and keys as they are typed."""

    @property
    def descriptors(self) -> tuple[int, int, int]:
        """Return all three."""
        return self.stdin, self.stdout, self.stderr


@runtime_checkable
class OpensShells(Protocol):
    """A runtime that lets people look inside its instances."""

    async def shell(self, instance: InstanceRef, command: Sequence[str], streams: Streams) -> int:
        """Run a command inside an instance that lives, and return its exit code.

        `command`: empty for a shell of the instance's own. Raises InputError where nothing of the
        instance lives, or where we may not.
        """


@runtime_checkable
class SupportsExpiry(Protocol):
    """A runtime that keeps the logs and outputs of its runs in folders that this process can delete."""

    async def due_runs(self) -> Sequence[str]:
        """Return uids of runs here that may have outlived their `ttlSecondsAfterFinished`."""

    async def look_again(self, uid: str, *, seconds: float) -> None:
        """Leave a run out of `due_runs` for so long."""

    async def quarantine(self, run: RunRef) -> None:
        """Take a removed run's folder away; raises StillAlive for one that is not ours or lives.

        Raises OSError where it cannot: then the run is not over, and somebody tries again.
        """

    async def delete_quarantined(self, uid: str) -> None:
        """Delete what was set aside; raises OSError where something of `uid` stays."""


__all__ = [
    "Address",
    "Addresses",
    "Capabilities",
    "Change",
    "ClusterSnapshot",
    "Cursor",
    "ExcusesWaits",
    "HeldSpare",
    "HoldsSpares",
    "InstanceRef",
    "InstanceRemoval",
    "InstanceSpec",
    "InstanceUpdate",
    "KeepsFailed",
    "LogChunk",
    "NodeView",
    "OpensShells",
    "Outcome",
    "ProgressReport",
    "ReleaseAnswer",
    "ReplacesFiles",
    "RoomMade",
    "Runtime",
    "Snapshot",
    "SpareRequest",
    "Streams",
    "SupportsExpiry",
    "SupportsStartWarnings",
]
