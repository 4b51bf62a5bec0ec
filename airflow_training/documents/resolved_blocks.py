"""The blocks of a resolved job that are stored in a document's own spelling: typed here, JSON outside.

`from_document` and `to_document` of each are the only place that knows the keys; the store calls them. What is
unknown is ignored, what is missing has its default: another version may have written it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

__all__ = [
    "CheckpointReference",
    "FromAsset",
    "FromRun",
    "PlanCapacity",
    "ResolvedCheckpoint",
    "ResolvedCode",
    "ResolvedData",
    "ResolvedEnvironment",
    "ResolvedLogPattern",
    "ResolvedNetworkSource",
    "ResolvedPlan",
    "ResolvedTrainer",
    "Resume",
    "SaveEverySeconds",
    "SaveEverySteps",
    "SaveInterval",
    "StallRules",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedCode:
    """The tree of files that a job runs, and what is installed for it."""

    uri: str
    """Of the storage that has it."""
    digest: str
    """`sha256:` and the hexadecimal digest of the tree."""
    packages: tuple[str, ...] = ()
    """Lines of a requirements file."""
    python: str = "python3"
    """What installs them."""
    archive: Mapping[str, str] | None = None
    """`path` in the storage and `digest` of a tar of what `packages` would install."""

    @property
    def has_packages(self) -> bool:
        """Whether something is put before what the image has."""
        return bool(self.packages) or self.archive is not None

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ResolvedCode:
        """Return `spec.code`."""
        return cls(
            uri=document["uri"],
            digest=document["digest"],
            packages=tuple(document.get("packages") or ()),
            python=document.get("python", "python3"),
            archive=document.get("archive"),
        )

    def to_document(self) -> dict[str, Any]:
        """Return `spec.code`."""
        return {
            "uri": self.uri,
            "digest": self.digest,
            "packages": list(self.packages),
            "python": self.python,
            **({} if self.archive is None else {"archive": dict(self.archive)}),
        }

    def to_order(self) -> dict[str, Any]:
        """What an agent is told: the same, with the bare digest."""
        return {**self.to_document(), "digest": self.digest.removeprefix("sha256:")}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedEnvironment:
    """The Python that a run's commands run on; what is known of it from its admission on never changes."""

    name: str
    version: str = ""
    """Empty: not looked up yet, and the document names none."""
    digest: str = ""
    """64 hexadecimal digits; empty: not looked up yet."""
    storage: str = ""
    """Address of the storage that has it; empty: the built-in one."""
    python: str = ""
    """The version of its Python, `3.11.7`."""
    image: str = ""
    """A container image that has all of it; empty: it is made where it is missing."""

    @property
    def title(self) -> str:
        """`NAME@VERSION`, as people name it."""
        return f"{self.name}@{self.version}" if self.version else self.name

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ResolvedEnvironment:
        """Return `spec.environment`, with what its admission has found."""
        return cls(
            name=document["name"],
            version=document.get("version") or "",
            digest=document.get("digest", ""),
            storage=document.get("storage", ""),
            python=document.get("python", ""),
            image=document.get("image", ""),
        )

    def to_document(self) -> dict[str, Any]:
        """Return `spec.environment`, with what its admission has found."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedData:
    """What a job trains on; all of it empty where the document has no `data`."""

    uri: str = ""
    files: tuple[str, ...] = ()
    by_instance: bool = False
    """Each instance gets a part of `files` of its own."""
    initial_model: str = ""

    @classmethod
    def from_document(cls, document: Mapping[str, Any] | None) -> ResolvedData:
        """Return `spec.data`."""
        found = document or {}
        return cls(
            uri=found.get("uri") or "",
            files=tuple(found.get("files") or ()),
            by_instance=found.get("shard") == "byInstance",
            initial_model=found.get("initialModel") or "",
        )

    def to_document(self) -> dict[str, Any] | None:
        """Return `spec.data`; None where nothing is in it."""
        if self == ResolvedData():
            return None
        return {
            "uri": self.uri or None,
            "files": list(self.files),
            "shard": "byInstance" if self.by_instance else None,
            "initialModel": self.initial_model or None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedNetworkSource:
    """The network that a job trains, whole: nothing has to be looked up to run it."""

    digest: str
    """`sha256:...` of the document."""
    document: Mapping[str, Any]
    """Of kind Network."""
    name: str = ""
    """Under which it was saved; empty: it was not."""
    version: int | None = None

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ResolvedNetworkSource:
        """Read it as the store keeps it."""
        return cls(
            digest=document["digest"],
            document=document["document"],
            name=document.get("name", ""),
            version=document.get("version"),
        )

    def to_document(self) -> dict[str, Any]:
        """Return the network as the store keeps it."""
        return {
            "digest": self.digest,
            "document": dict(self.document),
            "name": self.name,
            "version": self.version,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedTrainer:
    """A network that is trained without a script, and how."""

    network: ResolvedNetworkSource
    settings: Mapping[str, Any]
    """`spec.trainer` without its network, with all defaults."""
    digest: str
    """`sha256:...` of the file that instances get."""

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ResolvedTrainer:
        """Read it as the store keeps it."""
        return cls(
            network=ResolvedNetworkSource.from_document(document["network"]),
            settings=document["settings"],
            digest=document["digest"],
        )

    def to_document(self) -> dict[str, Any]:
        """Return the trainer as the store keeps it."""
        return {
            "network": self.network.to_document(),
            "settings": dict(self.settings),
            "digest": self.digest,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointReference:
    """What names one committed checkpoint."""

    uri: str
    """Of its root."""
    step: int
    digest: str
    """Of its manifest."""

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> CheckpointReference:
        """Return the reference in what a ledger, a manifest or somebody's asset event says."""
        return cls(uri=document["uri"], step=document["step"], digest=document["digest"])

    def to_document(self) -> dict[str, Any]:
        """The reference as instances and `status` read it."""
        return {"uri": self.uri, "step": self.step, "digest": self.digest}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCommit:
    """One committed checkpoint, as its writer reported it or the store of checkpoints shows it."""

    uri: str
    """Of its root."""
    step: int
    digest: str
    """Of its manifest."""
    at: float
    """When it was committed, epoch seconds."""
    seconds: float | None = None
    """How long saving it took."""
    stall_seconds: float | None = None
    """For how much of that training stood still."""
    bytes: int | float | None = None
    number: int | None = None
    """Which one it is of those saved one after the other, from 1; None: its writer did not say."""

    @property
    def reference(self) -> CheckpointReference:
        """What names it elsewhere."""
        return CheckpointReference(uri=self.uri, step=self.step, digest=self.digest)

    def to_document(self) -> dict[str, Any]:
        """The commit as `status` prints it, without fields that were not reported."""
        return {key: value for key, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True)
class SaveEverySteps:
    steps: int


@dataclass(frozen=True, slots=True)
class SaveEverySeconds:
    seconds: float = 600


SaveInterval = SaveEverySteps | SaveEverySeconds | Literal["auto"]


@dataclass(frozen=True, slots=True)
class FromRun:
    run: str
    step: int | None = None
    """None: the newest."""


@dataclass(frozen=True, slots=True)
class FromAsset:
    uri: str


Resume = Literal["latest", "none"] | int | FromRun | FromAsset
"""A number: of the step, in an earlier lineage of the same run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StallRules:
    """When an instance that reports progress counts as stalled; None: as the agent thinks right."""

    seconds: float | None = None
    factor: float | None = None
    sections: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> StallRules:
        """Return `spec.checkpoint.progress`."""
        return cls(
            seconds=document.get("stallSeconds"),
            factor=document.get("stallFactor"),
            sections=document.get("sections") or {},
        )

    def to_document(self) -> dict[str, Any]:
        """Return `spec.checkpoint.progress`."""
        numbers = {"stallSeconds": self.seconds, "stallFactor": self.factor}
        return {**_given(numbers), "sections": dict(self.sections)}

    def to_order(self) -> dict[str, Any]:
        """Return the same as an agent's order has it: short, where the job says nothing of it."""
        return {} if self == StallRules() else self.to_document()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedCheckpoint:
    """Where a job keeps its checkpoints, how often it saves, and what it starts from."""

    uri: str = ""
    every: SaveInterval = SaveEverySeconds()
    keep: int = 3
    keep_every: int | None = None
    resume: Resume = "latest"
    watch: str = ""
    """Folder in which the script saves by itself; "": it does not."""
    stall: StallRules | None = None
    initial: CheckpointReference | None = None
    """What `resume` means, found when the run began; used while the run has no checkpoint of its own."""
    initial_of_each: Mapping[str, CheckpointReference] = field(default_factory=dict)
    """The same by instance (`worker-0`), where each saves alone."""
    passed_over: tuple[str, ...] = ()
    """What was newer than that and damaged, in words."""

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ResolvedCheckpoint:
        """Return `spec.checkpoint`, with what was found for `resume` beside it."""
        progress, initial = document.get("progress"), document.get("initial")
        return cls(
            uri=document.get("uri", ""),
            every=_interval(document),
            keep=document.get("keep", 3),
            keep_every=document.get("keepEvery"),
            resume=_resume(document.get("resume", "latest")),
            watch=document.get("watch") or "",
            stall=None if progress is None else StallRules.from_document(progress),
            initial=None if initial is None else CheckpointReference.from_document(initial),
            initial_of_each={
                name: CheckpointReference.from_document(each)
                for name, each in (document.get("initialOfEach") or {}).items()
            },
            passed_over=tuple(document.get("passedOver") or ()),
        )

    def to_document(self) -> dict[str, Any]:
        """The counterpart of `from_document`."""
        match self.every:
            case SaveEverySteps(steps):
                every: dict[str, Any] = {"everySteps": steps}
            case SaveEverySeconds(seconds):
                every = {"everySeconds": seconds}
            case auto:
                every = {"every": auto}
        match self.resume:
            case FromRun(run, step):
                resume: Any = _given({"fromRun": run, "step": step})
            case FromAsset(uri):
                resume = {"asset": uri}
            case as_written:
                resume = as_written
        own = {name: each.to_document() for name, each in self.initial_of_each.items()}
        return _given(
            {
                "uri": self.uri,
                **every,
                "keep": self.keep,
                "keepEvery": self.keep_every,
                "resume": resume,
                "watch": self.watch or None,
                "progress": self.stall and self.stall.to_document(),
                "initial": self.initial and self.initial.to_document(),
                "initialOfEach": own or None,
                "passedOver": list(self.passed_over) or None,
            }
        )


def _interval(document: Mapping[str, Any]) -> SaveInterval:
    if document.get("everySteps") is not None:
        return SaveEverySteps(document["everySteps"])
    if document.get("every") == "auto":
        return "auto"
    return SaveEverySeconds(document.get("everySeconds", 600))


def _resume(value: Any) -> Resume:
    if not isinstance(value, Mapping):
        return "none" if value == "none" else value if isinstance(value, int) else "latest"
    if "fromRun" in value:
        return FromRun(value["fromRun"], value.get("step"))
    return FromAsset(value["asset"])


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedLogPattern:
    """One shape of a program's own log lines; what the fields mean says `documents.logs.LogPattern`."""

    name: str
    line: str
    example: str
    pairs: Literal["signed", "worded", "both", "none"] = "none"
    around: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    anchor: str | None = None
    unless: str | None = None

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ResolvedLogPattern:
        """Return one item of `spec.logs.patterns`."""
        fields = cls.__dataclass_fields__
        return cls(**{name: value for name, value in document.items() if name in fields})

    def to_document(self) -> dict[str, Any]:
        """The pattern for `logs.metrics.patterns`: only fields that differ from the defaults."""
        plain = type(self)(name=self.name, line=self.line, example=self.example)
        optional = ("pairs", "around", "names", "units", "anchor", "unless")
        changed = [name for name in optional if getattr(self, name) != getattr(plain, name)]
        return {name: getattr(self, name) for name in ("name", "line", "example", *changed)}


PlanCapacity = Literal["all", "free"]
"""What a plan was made for: all of the cluster, or what others left of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedPlan:
    """What the planner answered, and what of it this job got."""

    document: Mapping[str, Any]
    """The whole answer as `status` shows it; the fields below are read from it."""
    id: str
    capacity: PlanCapacity = "all"
    strategy: Mapping[str, Any] = field(default_factory=dict)
    step_seconds: float = 0.0
    applied_replicas: Mapping[str, int] = field(default_factory=dict)
    applied_env: frozenset[str] = frozenset()
    subject: str = ""
    """What measurements of a run under it are about; "": nothing is measured."""
    measured_factor: float = 1.0
    """What `step_seconds` was multiplied by, as runs before measured."""
    cluster_view: Mapping[str, Any] = field(default_factory=dict)
    moves: Sequence[Mapping[str, Any]] = ()
    """What its newest revisions were expected to cost, oldest first: `revision`, `lost_steps`, `seconds`, `moved_bytes`."""
    traced: str = ""
    """The view of a model that is Python, packed; no part of the document that is shown."""

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ResolvedPlan:
        """Return the plan whose document this is, as `to_document` gives it."""
        traced = document.get("traced", "")
        document = {key: value for key, value in document.items() if key != "traced"}
        applied = document.get("applied") or {}
        measurements = document.get("measurements") or {}
        return cls(
            document=document,
            id=document.get("id", ""),
            capacity=document.get("capacity", "all"),
            strategy=document.get("strategy") or {},
            step_seconds=document.get("step_time_s", 0.0),
            applied_replicas=applied.get("replicas") or {},
            applied_env=frozenset(applied.get("env") or ()),
            subject=measurements.get("subject", ""),
            measured_factor=measurements.get("factor", 1.0),
            cluster_view=document.get("cluster_view") or {},
            moves=document.get("moves") or (),
            traced=traced,
        )

    def to_document(self) -> Mapping[str, Any]:
        """Return the whole answer, with the view of the model where that is Python."""
        return {**self.document, "traced": self.traced} if self.traced else self.document

    def with_moves(self, moves: Sequence[Mapping[str, Any]]) -> ResolvedPlan:
        """Return the same plan, with what its revisions were expected to cost."""
        kept = {key: value for key, value in self.to_document().items() if key != "moves"}
        return self.from_document({**kept, "moves": list(moves)} if moves else kept)


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
