"""Models of what counts as success and failure, and of restarts. Fields and ranges only."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, Tag, WithJsonSchema
from pydantic_core import PydanticCustomError

from airflow_training.documents.base import Many, Model, Number, discriminate_by_kind
from airflow_training.documents.quantities import QUANTITY_PATTERN, parse_quantity, quantity_error
from airflow_training.documents.resolved import FailureClass, RestartScope, RuleAction

__all__ = [
    "Backoff",
    "DiskPreflight",
    "ExitCodes",
    "FailurePolicy",
    "FailurePolicyRule",
    "GpuPreflight",
    "NetworkPreflight",
    "OnExitCodes",
    "OnOutOfMemory",
    "Preflight",
    "Restart",
    "RestartWindow",
    "SuccessPolicy",
]

ExitCode = Annotated[int, Field(ge=1, le=255)]
_WEEK_SECONDS = 7 * 24 * 3600.0


def _regular_expression(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise PydanticCustomError(
            "not_allowed", "is no regular expression: {error}", {"error": str(error)}
        ) from error
    return value


class SuccessPolicy(Model):
    operator: Literal["All", "Any"] = "All"
    target_roles: Many[str] = Field(default_factory=list)
    """Empty: every tracked role."""


class OnExitCodes(Model):
    operator: Literal["In", "NotIn"] = "In"
    values: Annotated[Many[ExitCode], Field(min_length=1)]


class FailurePolicyRule(Model):
    """One rule; all conditions that it names must hold."""

    name: str = ""
    action: RuleAction
    on_classes: Many[FailureClass] = Field(default_factory=list)
    on_reasons: Many[str] = Field(default_factory=list)
    on_exit_codes: OnExitCodes | None = None
    on_message_pattern: Annotated[str, AfterValidator(_regular_expression)] = ""
    target_roles: Many[str] = Field(default_factory=list)


class FailurePolicy(Model):
    operator: Literal["All", "Any"] = "Any"
    target_roles: Many[str] = Field(default_factory=list)
    """Empty: every role, tracked or not."""
    rules: Many[FailurePolicyRule] = Field(default_factory=list)


class RestartWindow(Model):
    """A sliding ceiling: at most `max_restarts` within any `seconds`."""

    seconds: Annotated[Number, Field(gt=0)]
    max_restarts: Annotated[int, Field(ge=0)]


class Backoff(Model):
    initial_seconds: Annotated[Number, Field(ge=0)] = 2.0
    factor: Annotated[Number, Field(ge=1)] = 2.0
    max_seconds: Annotated[Number, Field(ge=0)] = 300.0


def _memory(value: str) -> str:
    problem = quantity_error(value)
    if problem:
        raise PydanticCustomError("bad_quantity", "{problem}", {"problem": problem})
    if parse_quantity(value) < 1:
        raise PydanticCustomError("out_of_range", "must be at least one byte")
    return value


Bytes = Annotated[
    str,
    AfterValidator(_memory),
    WithJsonSchema({"type": "string", "pattern": QUANTITY_PATTERN}),
]
"""A Kubernetes quantity of at least one byte."""


class OnOutOfMemory(Model):
    """How much more memory the next attempt asks for after one that ran out of it."""

    factor: Annotated[Number, Field(gt=1)] = 1.5
    up_to: Bytes


def _absolute(value: str) -> str:
    if not value.startswith("/"):
        raise PydanticCustomError("not_allowed", "is no absolute path, as instances see it")
    return value


class GpuPreflight(Model):
    """The GPUs that an instance has to find, all of them in order."""

    count: Annotated[int, Field(ge=0)] | None = None
    """None: the limit `nvidia.com/gpu`."""
    free_memory: Bytes | None = None
    """Of each."""


class DiskPreflight(Model):
    """What an instance has to find on a disk; bandwidth is that of writing and syncing, a second."""

    path: (
        Annotated[
            str,
            AfterValidator(_absolute),
            WithJsonSchema({"type": "string", "pattern": "^/"}),
        ]
        | None
    ) = None
    """A folder; None: where the instance keeps its own files."""
    free: Bytes | None = None
    bandwidth: Bytes | None = None


class NetworkPreflight(Model):
    """What an instance has to find on its way to the next ones of its role that are there; bandwidth: a second."""

    bandwidth: Bytes | None = None
    latency_milliseconds: Annotated[Number, Field(gt=0)] | None = None
    wait_seconds: Annotated[Number, Field(gt=0, le=600)] = 30.0
    """For the others to be there, too."""


class Preflight(Model):
    """What the agent of an instance looks at before its command starts."""

    timeout_seconds: Annotated[Number, Field(gt=0)] | None = None
    """Until all of it holds; None: `restart.readyTimeoutSeconds`."""
    gpus: GpuPreflight | None = None
    disk: DiskPreflight | None = None
    network: NetworkPreflight | None = None


class ExitCodes(Model):
    """A table of one's own: which exit codes may be retried and which may not."""

    retryable: Many[ExitCode] = Field(default_factory=list)
    permanent: Many[ExitCode] = Field(default_factory=list)


NamedExitCodes = Literal["default", "kubeflow", "kubedl"]


class Restart(Model):
    scope: RestartScope | None = None
    """None: the framework's."""
    max_restarts: Annotated[int, Field(ge=0)] = 3
    window: RestartWindow | None = None
    backoff: Backoff = Field(default_factory=Backoff)
    exit_codes: Annotated[
        Annotated[NamedExitCodes, Tag("<text>")] | Annotated[ExitCodes, Tag("<object>")],
        discriminate_by_kind(
            "the name of a table (default, kubeflow, kubedl) or {retryable, permanent}",
            kinds=("<text>", "<object>"),
        ),
    ] = "default"
    then: Literal["FreshJob", "Fail"] | None = None
    """None: FreshJob where the job has a checkpoint, else Fail."""
    max_fresh_jobs: Annotated[int, Field(ge=0)] = 1
    fresh_from: Literal["newest", "scratch"] = "newest"
    ready_timeout_seconds: Annotated[Number, Field(gt=0)] = 60.0
    """How long what an instance needs around it may take to be there, before its command starts."""
    on_out_of_memory: OnOutOfMemory | None = None
    """None: each attempt asks for what the document says."""
    keep_failed_seconds: Annotated[Number, Field(ge=0, le=_WEEK_SECONDS)] = 0.0
    """How long the instance that failed first stays for a look inside, once the job has failed; 0: it goes."""
