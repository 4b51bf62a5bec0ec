"""From how an attempt stands to the observation that decisions are made from. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from airflow_training.control import reasons
from airflow_training.control.attempts import AttemptId
from airflow_training.control.observations import InstanceState, Observation
from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.runtimes.folders.attempt_state import AgentLiveness, AttemptState
from airflow_training.runtimes.folders.observation import observe
from airflow_training.runtimes.slurm.queue_view import QueuedJob, wait_reason

__all__ = ["observe_attempt"]


def observe_attempt(
    state: AttemptState,
    *,
    phase: str,
    jobs: Sequence[QueuedJob],
    job: str,
    place: dict[str, Any],
    unexplained: bool,
    ordered_at: float,
    progress: ProgressReport | None = None,
    environment: tuple[str, ...] = (),
    port_open: bool = False,
) -> Observation | None:
    """Observation of an attempt; None where its object does not exist (any more).

    `phase`, `jobs`, `job`: of its allocation. `place`: its node there, once that is known. `unexplained`: it has ended, and who ended it
    is still looked for. `ordered_at`: epoch seconds.
    """
    if state.life is AgentLiveness.STARTING or not state.state:
        if state.life is AgentLiveness.STARTING:
            return _waiting(state, phase=phase, jobs=jobs, job=job, place=place, at=ordered_at)
        if state.life is AgentLiveness.ENDED and not state.deleted:
            return _never_began(state, place=place, at=ordered_at)
        if state.life is AgentLiveness.LOST:
            found = _waiting(state, phase=phase, jobs=jobs, job=job, place=place, at=ordered_at)
            return replace(found, state="unknown", reason="AgentLost", message=_LOOKING)
        return None
    found_there = observe(state, progress=progress, environment=environment, port_open=port_open)
    if found_there is None:
        return None
    node = str(place.get("node") or found_there.node)
    if unexplained:
        return replace(found_there, node=node, state="terminating", reason="Terminated")
    return replace(found_there, node=node)


_LOOKING = "its allocation is gone; looking for the reason"


def _waiting(
    state: AttemptState,
    *,
    phase: str,
    jobs: Sequence[QueuedJob],
    job: str,
    place: dict[str, Any],
    at: float,
) -> Observation:
    now: InstanceState = "terminating" if state.deleted else "pending"
    reason, message = reasons.STARTING, f"its step in Slurm job {job} begins"
    waits = phase in ("asked", "queued")
    if waits:
        reason, message = reasons.UNSCHEDULABLE, f"waits in the queue (job {job})"
        pending = next((each for each in jobs if each.waits), None)
        if pending is not None:
            reason, message = wait_reason(pending)
            if pending.starts_at is not None:
                start = datetime.fromtimestamp(pending.starts_at, timezone.utc)
                message += f"; expected to start {start:%Y-%m-%d %H:%M} UTC"
        elif jobs:
            reason, message = reasons.STARTING, f"Slurm job {job} starts"
            waits = False
    order = state.order
    return Observation(
        key=InstanceKey(order.role, order.index),
        uid=order.uid,
        attempt_id=AttemptId(order.epoch, order.job_attempt, order.attempt, order.generation),
        state=now,
        reason="Deleted" if state.deleted else reason,
        message=message,
        scheduled=not waits,
        node=str(place.get("node", "")),
        address=order.address,
        state_since=at,
    )


def _never_began(state: AttemptState, *, place: dict[str, Any], at: float) -> Observation:
    order, end = state.order, state.end
    return Observation(
        key=InstanceKey(order.role, order.index),
        uid=order.uid,
        attempt_id=AttemptId(order.epoch, order.job_attempt, order.attempt, order.generation),
        state="failed",
        reason=str(end["reason"]),
        message=str(end.get("message", "")),
        node=str(place.get("node", "")),
        address=order.address,
        state_since=float(end.get("finished_at") or at),
        finished_at=end.get("finished_at"),
    )
