"""What decisions are told of instances: what a runtime sees, refuses, and what logs say of their ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from airflow_training.control.attempts import FIRST_ATTEMPT, AttemptId, AttemptRecord
from airflow_training.control.causes import DiagnosedCause
from airflow_training.control.reports import ProgressReport
from airflow_training.control.run_output import RunOutput
from airflow_training.documents.instances import InstanceKey

InstanceState = Literal[
    "pending", "running", "succeeded", "failed", "stopped", "terminating", "unknown"
]
"""`stopped`: the run or its role needed it no more; only entries are, what is observed has failed."""


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
    outlived_by: str = ""
    """Of one that succeeded: processes that still ran then and were ended, in words."""
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
        return self.state == "failed" and (self.in_place or self.can_stay)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """All instance objects of one run, after the first full snapshot."""

    instances: Sequence[Observation] = ()
    reachable: bool = True
    """False: the runtime does not answer now; states are the last known ones."""
    why: str = ""
    """Why it does not answer, in its words."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedAttempt(AttemptRecord):
    """The runtime does not make an attempt for now: it waits, and nothing has failed."""

    key: InstanceKey
    attempt_id: AttemptId
    reason: str
    message: str
