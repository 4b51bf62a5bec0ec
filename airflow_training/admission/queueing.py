"""Waiting for a turn: what a run wants of the machine, and whether the queue lets it start.

The order of the queue is the store's; what there is to share is the runtime's.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_training.control.model import Event, Ledger
from airflow_training.control.preemption import is_preempted
from airflow_training.control.reasons import QUEUE_PREEMPTED
from airflow_training.documents.quantities import parse_quantity
from airflow_training.documents.resolved import ResolvedJob, ResolvedRole
from airflow_training.documents.text import counted
from airflow_training.errors import InputError, Problem
from airflow_training.frameworks.pods import requested_amounts, training_container
from airflow_training.runtimes.port import ClusterSnapshot, Runtime
from airflow_training.state.queue import QueueStanding
from airflow_training.state.store import Store

__all__ = [
    "QueueTurn",
    "check_fits",
    "queued_ledger",
    "requested_resources",
    "role_resources",
    "shortage_text",
    "standing_text",
]

_MOST_NAMED = 3


def role_resources(job: ResolvedJob) -> Mapping[str, Mapping[str, str]]:
    """Return role -> what one instance asks for: limits where given, else requests."""
    return {role.name: _resources_of(role) for role in job.roles}


def _resources_of(role: ResolvedRole) -> Mapping[str, str]:
    return requested_amounts(training_container(role.template, None, name=role.container))


def requested_resources(job: ResolvedJob) -> Mapping[str, float]:
    """Sum of all instances' requests: `cpu` in cores, `memory` in bytes, GPUs by name."""
    wants: dict[str, float] = {}
    for role in job.roles:
        for name, amount in _resources_of(role).items():
            wants[name] = wants.get(name, 0.0) + parse_quantity(amount) * role.replicas
    return wants


def _offered(view: ClusterSnapshot) -> Mapping[str, float]:
    """Return what the machine has at all."""
    return {
        "cpu": sum(node.cpus for node in view.nodes),
        "memory": float(sum(node.memory_bytes for node in view.nodes)),
        "nvidia.com/gpu": float(sum(node.gpus for node in view.nodes)),
    }


def _free(view: ClusterSnapshot) -> Mapping[str, float]:
    """Return what no living instance has asked for; all of it where a node does not say."""
    free = {"cpu": 0.0, "memory": 0.0, "nvidia.com/gpu": 0.0}
    for node in view.nodes:
        free["cpu"] += node.cpus if node.free_cpus is None else node.free_cpus
        memory = node.free_memory_bytes
        free["memory"] += node.memory_bytes if memory is None else memory
        free["nvidia.com/gpu"] += node.gpus if node.free_gpus is None else node.free_gpus
    return free


def check_fits(job: ResolvedJob, view: ClusterSnapshot) -> None:
    """Raise InputError (`not_supported`) for a job that is larger than the whole machine."""
    offered = _offered(view)
    problems = [
        Problem(
            code="not_supported",
            field="spec.resources",
            value=f"{name}: {wanted:g}",
            message=f"the job asks for {_amount(name, wanted)} of {name} in all,"
            f" this machine has {_amount(name, offered.get(name, 0.0))}",
            hint="ask for less, run fewer replicas, or use a larger machine",
        )
        for name, wanted in sorted(requested_resources(job).items())
        if wanted > offered.get(name, 0.0)
    ]
    if problems:
        raise InputError(problems=problems)


def _amount(name: str, value: float) -> str:
    return f"{value / 2**30:.1f} GiB" if name == "memory" else f"{value:g}"


def queued_ledger(ledger: Ledger, *, before: str, now: float) -> tuple[Ledger, tuple[Event, ...]]:
    """Return the ledger of a run that must wait, and the event that says so; none where it waits already.

    `before`: who is before it, in words.
    """
    message = "waits until it is its turn and the machine has room"
    if before:
        message = f"{message}: {before}"
    waits = ledger.job.state == "Queued"
    job = dataclasses.replace(
        ledger.job,
        state="Queued",
        condition="Queued",
        # who was preempted goes on from there, be it with another holder
        reason=QUEUE_PREEMPTED if is_preempted(ledger.job) else "WaitingForTurn",
        message=message,
        last_transition_at=ledger.job.last_transition_at if waits else now,
    )
    events = () if waits else (Event(at=now, reason="Queued", message=message),)
    return dataclasses.replace(ledger, job=job), events


def shortage_text(wants: Mapping[str, float], free: Mapping[str, float]) -> str:
    """Say what the machine has too little of at the moment; "" for nothing."""
    return "; ".join(
        f"{name}: asks for {_amount(name, wanted)}, {_amount(name, max(0.0, free[name]))} of it is free"
        for name, wanted in sorted(wants.items())
        if name in free and wanted > free[name]
    )


def standing_text(standing: QueueStanding, *, max_running_jobs: int) -> str:
    """Say who has the places, and who waits before a run; "" where nobody does."""
    kept = f"{counted(standing.kept, 'run')} ended, of which an instance stays for a look inside"
    kept += _names(standing.kept_ids)
    limit = f" of {max_running_jobs} (max_running_jobs)" if max_running_jobs else ""
    running = f"{counted(standing.running, 'run')}{limit} started{_names(standing.running_ids)}"
    waiting = f"{counted(standing.waiting, 'run')} before it{_names(standing.waiting_ids)}"
    return "; ".join(
        text
        for number, text in (
            (standing.running, running),
            (standing.waiting, waiting),
            (standing.kept, kept),
        )
        if number
    )


def _names(ids: Sequence[str]) -> str:
    """Return ` (a, b and 3 more)` of some ids; "" for none."""
    more = f" and {len(ids) - _MOST_NAMED} more" if len(ids) > _MOST_NAMED else ""
    return f" ({', '.join(ids[:_MOST_NAMED])}{more})" if ids else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTurn:
    """One run's place in the queue."""

    store: Store
    runtime: Runtime
    job: ResolvedJob
    uid: str
    max_running_jobs: int

    async def try_start(self) -> bool:
        """Take the run off the queue if it may start now; raises RuntimeUnavailable."""
        free = wants = None
        if self.runtime.capabilities.shares_machine:
            wants = requested_resources(self.job)
            free = _free(await self.runtime.cluster_view()) if wants else None
        return await asyncio.to_thread(
            self.store.queue.try_start,
            self.uid,
            max_running_jobs=self.max_running_jobs,
            runtime=self.runtime.name,
            free=free,
            wants=wants or None,
            preempts=self.job.scheduling.preempts_lower_priority,
        )

    async def before(self) -> str:
        """Say what the machine lacks for the run, and who is before it."""
        standing = await asyncio.to_thread(self.store.queue.standing, self.uid)
        who = standing_text(standing, max_running_jobs=self.max_running_jobs)
        short = ""
        if self.runtime.capabilities.shares_machine and (wants := requested_resources(self.job)):
            short = shortage_text(wants, _free(await self.runtime.cluster_view()))
        return "; ".join(filter(None, (short, who)))

    def poll_seconds(self) -> float:
        """Return seconds until the next try, spread so that many that wait do not try at once."""
        return random.uniform(0.5, 1.5)  # noqa: S311 - no secret
