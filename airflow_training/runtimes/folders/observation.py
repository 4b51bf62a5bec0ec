"""From an attempt's standing to the observation that decisions are made from. Reads only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from airflow_training.control.attempts import AttemptId
from airflow_training.control.observations import Observation
from airflow_training.control.reports import ProgressReport
from airflow_training.control.run_output import RunOutput
from airflow_training.documents.instances import InstanceKey
from airflow_training.runtimes.folders.attempt_state import AgentLiveness, AttemptState

__all__ = ["last_of", "observe"]

_State = Literal["pending", "running", "succeeded", "failed", "terminating", "unknown"]


def observe(
    standing: AttemptState,
    *,
    progress: ProgressReport | None = None,
    environment: tuple[str, ...] = (),
    port_open: bool = False,
) -> Observation | None:
    """Observation of an attempt; None where its object does not exist (any more)."""
    if standing.life is AgentLiveness.MISSING or (
        standing.deleted and standing.life is AgentLiveness.ENDED
    ):
        return None
    return _observation(standing, progress=progress, environment=environment, port_open=port_open)


def last_of(standing: AttemptState) -> Observation | None:
    """The end of an attempt that was deleted, where more than its end is to be told; None else."""
    told = standing.life is AgentLiveness.ENDED and standing.deleted and standing.end.get("killed")
    return _observation(standing) if told else None


def _observation(
    standing: AttemptState,
    *,
    progress: ProgressReport | None = None,
    environment: tuple[str, ...] = (),
    port_open: bool = False,
) -> Observation:
    order, state, end = standing.order, standing.state, standing.end
    now, reason, message = _state(standing)
    running = now == "running"
    return Observation(
        key=InstanceKey(order.role, order.index),
        uid=order.uid,
        attempt_id=AttemptId(order.epoch, order.job_attempt, order.attempt, order.generation),
        state=now,
        reason=reason,
        message=message,
        exit_code=end.get("exit_code"),
        signal=end.get("signal"),
        held=now == "pending" and state["phase"] == "held",
        address_live=running,
        port_open=port_open and running,
        ready=running and bool(state["ready"]),
        node=standing.agent["host"],
        address=order.address,
        state_since=end.get("finished_at") or state["since"],
        started_at=state["started_at"] or end.get("started_at"),
        finished_at=end.get("finished_at"),
        progress=progress,
        environment=environment,
        output=_output(end),
        outlived_by=str(end.get("outlived_by") or ""),
        in_place=_in_place(standing, now),
        kept=standing.life is AgentLiveness.STAYING and not standing.deleted,
    )


def _in_place(standing: AttemptState, state: _State) -> bool:
    if standing.life is AgentLiveness.ALIVE:
        return state in ("pending", "running") and standing.order.in_place_seconds > 0
    return standing.life is AgentLiveness.WAITING and state == "failed"


def _output(end: Mapping[str, Any]) -> RunOutput | None:
    found = end.get("output")
    return RunOutput.from_document(found) if found else None


def _state(standing: AttemptState) -> tuple[_State, str, str]:
    """Return (state, reason, message)."""
    state, end = standing.state, standing.end
    if standing.life in (AgentLiveness.WAITING, AgentLiveness.STAYING) and standing.deleted:
        return "terminating", "Deleted", ""
    if standing.life in (AgentLiveness.ENDED, AgentLiveness.WAITING, AgentLiveness.STAYING):
        ended: _State = "succeeded" if end["reason"] == "Completed" else "failed"
        return ended, end["reason"], end.get("message", "")
    if standing.life is AgentLiveness.ELSEWHERE:
        return "unknown", "OtherHost", f"it was started on {standing.place}; only there it is known"
    if standing.life is AgentLiveness.LOST:
        return "unknown", "AgentLost", "its agent died; looking for what it left behind"
    phase, message = state["phase"], state.get("message", "")
    if standing.deleted or phase == "stopping":
        return "terminating", state.get("reason") or "Deleted", message
    if phase == "held":
        return "pending", "WaitingForDependency", message
    if phase == "checking":
        return "pending", "CheckingEnvironment", message
    if phase == "uploading":
        return "running", "UploadingOutput", message
    return ("running", "Started", message) if phase == "running" else ("pending", "Starting", "")
