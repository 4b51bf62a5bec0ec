"""Models of what a TrainingJob holds: every field, default and range. No cross-field checks.

A field whose default is None takes its value from the framework, or has none. What the user set
is in `model_fields_set`, and only that is written by `to_dict` and `to_yaml`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, Tag, WithJsonSchema
from pydantic_core import PydanticCustomError

from airflow_training.documents.base import (
    DnsLabel,
    GangName,
    Many,
    Model,
    Number,
    RuntimeName,
    discriminate_by_kind,
)
from airflow_training.documents.dag import Dag
from airflow_training.documents.logs import Logs
from airflow_training.documents.plan import Plan
from airflow_training.documents.policies import FailurePolicy, Preflight, Restart, SuccessPolicy
from airflow_training.documents.roles import Role, Shorthand
from airflow_training.documents.stop_conditions import Over, parse_condition
from airflow_training.documents.trainer import Trainer

__all__ = [
    "Checkpoint",
    "Code",
    "Data",
    "EnvironmentReference",
    "FrameworkRef",
    "Metadata",
    "Output",
    "Progress",
    "ResumeFrom",
    "RuntimeChoice",
    "SchedulingPolicy",
    "Spread",
    "Stop",
    "TrainingJobSpec",
]

_STORAGE_PATTERN = r"^([a-zA-Z][a-zA-Z0-9+.-]*://|/)."
_PACKAGE_PATTERN = r"^[^\s-][^\n\r]*$"
_ENVIRONMENT_PATTERN = r"^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$"
_DIGEST_PATTERN = r"^sha256:[0-9a-f]{64}$"


def _digest(value: str) -> str:
    if not re.fullmatch(_DIGEST_PATTERN, value):
        raise PydanticCustomError(
            "not_allowed", "must be 'sha256:' and 64 lower-case hexadecimal digits"
        )
    return value


def _storage(value: str) -> str:
    if not re.match(_STORAGE_PATTERN, value):
        raise PydanticCustomError(
            "not_allowed",
            "is no storage: an absolute path, file:///PATH or s3://BUCKET/PATH and the like",
        )
    return value


def _environment_part(value: str) -> str:
    if not re.fullmatch(_ENVIRONMENT_PATTERN, value):
        raise PydanticCustomError(
            "not_allowed", "has other characters than small letters, digits, '.', '_' and '-'"
        )
    return value


EnvironmentPart = Annotated[
    str,
    AfterValidator(_environment_part),
    WithJsonSchema({"type": "string", "pattern": _ENVIRONMENT_PATTERN}),
]
"""A name or a version of a named environment, as `environments.named` has them."""


def _package(value: str) -> str:
    if not re.fullmatch(_PACKAGE_PATTERN, value):
        raise PydanticCustomError(
            "not_allowed",
            "is no package: one line such as 'einops==0.8.1'; options of pip go into env, as PIP_INDEX_URL",
        )
    return value


def _condition(value: str) -> str:
    try:
        parse_condition(value)
    except ValueError as error:
        raise PydanticCustomError("not_allowed", "{why}", {"why": str(error)}) from None
    return value


class Stop(Model):
    """When a training has done enough, without a line of its script."""

    until: Annotated[str, Field(min_length=1), AfterValidator(_condition)]
    """`loss < 0.1`, `epoch >= 20 or mean(accuracy) > 0.9`; see `stop_conditions`."""
    rank: Literal[0, "mean", "max", "min"] = 0
    """Whose report counts where `until` does not say: rank 0's, or that of all ranks."""

    @property
    def over(self) -> Over:
        """Whose values count, as control calls it."""
        return "rank 0" if self.rank == 0 else self.rank


class Metadata(Model):
    name: DnsLabel
    namespace: DnsLabel = "default"
    labels: dict[str, str] = Field(default_factory=dict)
    """As annotations for Kubernetes: what a server refuses, its runtime says."""
    annotations: dict[str, str] = Field(default_factory=dict)


class FrameworkRef(Model):
    """A framework from an address."""

    name: DnsLabel
    ref: str | None = None
    digest: (
        Annotated[
            str,
            AfterValidator(_digest),
            WithJsonSchema({"type": "string", "pattern": _DIGEST_PATTERN}),
        ]
        | None
    ) = None


class RuntimeChoice(Model):
    name: RuntimeName | None = None
    """None: `[training] default_runtime`."""
    connection: str | None = None
    """An Airflow connection id."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Of the runtime, checked against what it declares; those that come with us have none."""


class PackagesArchive(Model):
    """A tar of what was installed once for the Python of an image."""

    path: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$")]
    """Below `uri`."""
    digest: Annotated[
        str,
        AfterValidator(_digest),
        WithJsonSchema({"type": "string", "pattern": _DIGEST_PATTERN}),
    ]


class Code(Model):
    """A tree of files that is laid out, and compared with its digest, before the command starts."""

    uri: Annotated[
        str,
        AfterValidator(_storage),
        WithJsonSchema({"type": "string", "pattern": _STORAGE_PATTERN}),
    ]
    """Of the storage that has it; instances have no folder that a relative path could start from."""
    digest: Annotated[
        str,
        AfterValidator(_digest),
        WithJsonSchema({"type": "string", "pattern": _DIGEST_PATTERN}),
    ]
    packages: Many[
        Annotated[
            str,
            AfterValidator(_package),
            WithJsonSchema({"type": "string", "pattern": _PACKAGE_PATTERN}),
        ]
    ] = Field(default_factory=list)
    """Lines of a requirements file, each a package with its version: what the image lacks."""
    python: Annotated[str, Field(min_length=1)] = "python3"
    """What installs them: the interpreter of the command."""
    archive: PackagesArchive | None = None
    """Instead of `packages`: what they are once they are installed."""


class EnvironmentReference(Model):
    """The Python that commands run on: one of those that `environments list` has."""

    name: EnvironmentPart
    """`builtin`: of the Python that this package is installed in."""
    version: EnvironmentPart | None = None
    """None: of `builtin` the version that is installed; every other environment needs one."""


class Data(Model):
    uri: str | None = None
    files: Many[str] = Field(default_factory=list)
    shard: Literal["byInstance"] | None = None
    initial_model: str | None = None


class Spread(Model):
    topology_key: str
    max_skew: Annotated[int, Field(ge=1)] = 1
    when_unsatisfiable: Literal["ScheduleAnyway", "DoNotSchedule"] = "ScheduleAnyway"


class UnfitNodes(Model):
    """What makes a node one to be left while an instance is on it, and whether that happens."""

    action: Literal["Move", "Warn", "Ignore"] | None = None
    """None: `Move` where the job keeps checkpoints, else `Warn`."""
    max_moves: Annotated[int, Field(ge=0)] = 5
    """Of an instance, and of all together where they restart together."""
    conditions: Many[str] | None = None
    """Types, `*` stands for anything; None: those that the runtime knows."""
    taints: Many[str] | None = None
    """Keys, as above."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Name -> value, as above."""


class SchedulingPolicy(Model):
    gang: GangName = "none"
    min_available: Annotated[int, Field(ge=1)] | None = None
    """None: all instances."""
    startup: Literal["auto", "ordered", "perWave", "firstWaveReserveAll", "createAllHold"] = "auto"
    queue: str | None = None
    priority_class_name: str | None = None
    priority: int = 0
    """In our own queue: higher first, then first come."""
    preemption_policy: Literal["Never", "PreemptLowerPriority"] = "Never"
    """Whether runs of a lower priority give their place up to it, in that queue."""
    schedule_timeout_seconds: Annotated[Number, Field(gt=0)] = 3600.0
    """How long an instance may be without a place."""
    never_fits: Literal["Wait", "Fail"] = "Wait"
    """What becomes of a job of which an instance is larger than any machine: `Wait` for a larger one."""
    unfit_nodes: UnfitNodes = Field(default_factory=UnfitNodes)
    excluded_nodes: Literal["Avoid", "Ignore"] = "Avoid"
    """Whether nodes that `nodes list` names are taken, of runtimes that place instances on nodes."""
    spread: Spread | None = None


class Progress(Model):
    """When a job that reports progress counts as stalled."""

    stall_seconds: Annotated[Number, Field(gt=0)] | None = None
    stall_factor: Annotated[Number, Field(gt=0)] | None = None
    sections: dict[str, Annotated[Number, Field(gt=0)]] = Field(default_factory=dict)
    """Seconds allowed to a named section."""


class ResumeFrom(Model):
    """A checkpoint of another run, or one that is known as an asset: exactly one of the two."""

    from_run: str | None = None
    step: Annotated[int, Field(ge=0)] | None = None
    """Of that run; None: its newest."""
    asset: str | None = None


class Checkpoint(Model):
    uri: str
    every_seconds: Annotated[Number, Field(gt=0)] | None = None
    """With none of the three: 600."""
    every_steps: Annotated[int, Field(ge=1)] | None = None
    every: Literal["auto"] | None = None
    keep: Annotated[int, Field(ge=1)] = 3
    keep_every: Annotated[int, Field(ge=1)] | None = None
    resume: Annotated[
        Annotated[Literal["latest", "none"], Tag("<text>")]
        | Annotated[int, Field(ge=0), Tag("<number>")]
        | Annotated[ResumeFrom, Tag("<object>")],
        discriminate_by_kind(
            "latest, none, a step, {fromRun: <run>, step: <step>} or {asset: <uri>}",
            kinds=("<text>", "<number>", "<object>"),
        ),
    ] = "latest"
    watch: str | None = None
    progress: Progress | None = None


class Output(Model):
    uri: str
    role: str | None = None
    """None: the role of rank 0."""
    continuous: bool = False
    """Each file is uploaded as soon as it is whole, not only at the end."""


class TrainingJobSpec(Shorthand):
    framework: Annotated[
        Annotated[str, Tag("<text>")] | Annotated[FrameworkRef, Tag("<object>")],
        discriminate_by_kind(
            "a framework's name or {name, ref, digest}", kinds=("<text>", "<object>")
        ),
    ] = "pytorch"
    """Required, unless there is a `trainer`, which runs with pytorch."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Of the framework, checked against the schema it declares."""
    runtime: RuntimeChoice = Field(default_factory=RuntimeChoice)
    code: Code | None = None
    """None: what runs is in the image, or on the machine."""
    environment: EnvironmentReference | None = None
    """None: commands run on the Python that the image or the machine has."""
    data: Data | None = None
    roles: Annotated[Many[Role], Field(min_length=1, max_length=1000)]
    success_policy: SuccessPolicy | None = None
    """None: the framework's."""
    failure_policy: FailurePolicy | None = None
    """None: the framework's, else any failed role fails the job."""
    restart: Restart = Field(default_factory=Restart)
    scheduling_policy: SchedulingPolicy = Field(default_factory=SchedulingPolicy)
    preflight: Preflight | None = None
    """None: a job with a checkpoint looks at what every start needs, any other at nothing."""
    active_deadline_seconds: Annotated[Number, Field(gt=0)] | None = None
    """How long its instances may run: time in which at least one trains, without queue, place, image and back-off."""
    stop: Stop | None = None
    """None: it ends when its instances have ended."""
    ttl_seconds_after_finished: Annotated[Number, Field(ge=0)] | None = None
    clean_pod_policy: Literal["Running", "All", "None"] = "Running"
    reconcile_seconds: Annotated[Number, Field(ge=1)] = 10.0
    suspend: bool = False
    checkpoint: Checkpoint | None = None
    output: Output | None = None
    plan: Plan = Field(default_factory=Plan)
    """Nothing is planned without `model`."""
    trainer: Trainer | None = None
    """None: the roles have a command of their own."""
    logs: Logs = Field(default_factory=Logs)
    dag: Dag | None = None

    @property
    def framework_name(self) -> str:
        """Return the framework's name, however it was given."""
        return self.framework if isinstance(self.framework, str) else self.framework.name
