"""What the memory runtime keeps: one object per instance, one record per run. No behaviour here."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from airflow_training.control.observations import Observation
from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.port import (
    Address,
    InstanceRef,
    InstanceRemoval,
    InstanceSpec,
    InstanceUpdate,
)

__all__ = ["ENDED", "Attempt", "Change", "SimulatedInstance", "SimulatedRun", "attempt_of"]

Attempt = tuple[int, int, int]
"""(epoch, job attempt, attempt): a later one is greater."""
ENDED = frozenset({"succeeded", "failed"})


def attempt_of(ref: InstanceRef) -> Attempt:
    """Return which attempt of its instance `ref` means."""
    return (ref.epoch, ref.job_attempt, ref.attempt)


class SimulatedInstance:
    """One instance object and its simulated life."""

    __slots__ = (
        "address", "disrupted", "excuse", "excused_until", "exit_code", "finished_at", "finishing", "in_place", "kept", "key", "limited", "message", "placed", "progress", "ready",
        "reason", "signal", "since", "spec", "started_at", "state", "uid",
    )  # fmt: skip

    def __init__(self, spec: InstanceSpec, *, uid: str, address: str, now: float) -> None:
        self.spec = spec
        self.key = spec.ref.key
        self.uid = uid
        self.address = address
        self.state = "pending"
        self.reason = "WaitingForDependency" if spec.held else ""
        self.message = ""
        self.exit_code: int | None = None
        self.signal: int | None = None
        self.disrupted = False
        self.placed = True
        self.limited = False
        """Its own deadline is set."""
        self.ready = False
        self.in_place = spec.in_place_seconds > 0
        self.excuse = -1
        self.finishing = False
        """It was told to finish."""
        self.excused_until = 0.0
        """Until when it may be silent."""
        self.kept = False
        self.progress: ProgressReport | None = None
        self.since = now
        self.started_at: float | None = None
        self.finished_at: float | None = None

    @property
    def attempt(self) -> Attempt:
        return attempt_of(self.spec.ref)

    @property
    def held(self) -> bool:
        return self.state == "pending" and self.reason == "WaitingForDependency"

    @property
    def waits_in_place(self) -> bool:
        """Whether its process has ended, and it stays for the next one."""
        return self.in_place and self.state in ENDED

    def observe(self) -> Observation:
        ref = self.spec.ref
        return Observation(
            key=ref.key, uid=self.uid, attempt_id=ref.attempt_id,
            state=self.state,  # type: ignore[arg-type]  # only InstanceState values are assigned
            reason=self.reason, message=self.message, exit_code=self.exit_code,
            signal=self.signal, disrupted=self.disrupted,
            held=self.held, scheduled=self.placed, address_live=self.state == "running", port_open=self.ready,
            ready=self.ready, node="memory", address=self.address, state_since=self.since,
            started_at=self.started_at, finished_at=self.finished_at, progress=self.progress,
            in_place=self.in_place, kept=self.kept,
        )  # fmt: skip


Change = InstanceUpdate | InstanceRemoval | RuntimeUnavailable


@dataclass(slots=True)
class SimulatedRun:
    prepared_at: float | None = None
    addresses: dict[tuple[int, int], dict[str, list[Address]]] = field(default_factory=dict)
    """(epoch, job attempt) -> role -> addresses by index."""
    instances: dict[InstanceKey, SimulatedInstance] = field(default_factory=dict)
    logs: dict[tuple[str, int, Attempt], bytes] = field(default_factory=dict)
    watchers: set[asyncio.Queue[Change]] = field(default_factory=set)
    generation: int = 0
    removed_generation: int = -1
    next_uid: int = 0

    def refuse_or_own(self, generation: int) -> str:
        """Return why this generation may not create here, or take note that it owns the run."""
        if generation <= self.removed_generation:
            return "the run was removed"
        if generation < self.generation:
            return f"generation {self.generation} owns the run"
        self.generation = generation
        return ""
