"""What a decision wants to be done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from airflow_training.control.attempts import AttemptId, AttemptRecord, InstanceRecord
from airflow_training.documents.instances import InstanceKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Create(AttemptRecord):
    key: InstanceKey
    attempt_id: AttemptId
    held: bool = False
    """Start in the initializer and wait for `Release`."""


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
class Finish(InstanceRecord):
    """End what runs inside an instance as if it had done all: its output is brought away, and it succeeds."""

    key: InstanceKey
    uid: str
    grace_seconds: float


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisePlan(InstanceRecord):
    """Give an instance that trains the plan's revision `number`: its process follows it."""

    key: InstanceKey
    uid: str
    number: int


Action = (
    AwaitPeers
    | Create
    | Delete
    | Dismiss
    | Finish
    | Keep
    | Release
    | RestartProcess
    | RevisePlan
    | StopProcess
)
