"""Whether the agent of an attempt lives: on this host, gone, or on another one. Reads only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_training.agent import proc
from airflow_training.agent.files import AttemptFolder, read_json
from airflow_training.agent.order import Order
from airflow_training.runtimes.folders.attempt_state import (
    AgentLiveness,
    AttemptState,
    host_identity,
    read_own,
)
from airflow_training.runtimes.folders.paths import RunFolder, attempt_of, is_locked
from airflow_training.runtimes.port import InstanceRef

__all__ = ["find_attempt", "read_attempt_state"]


def read_attempt_state(folder: AttemptFolder) -> AttemptState | None:
    """Return how an attempt stands; None where nothing was ever ordered."""
    document = read_json(folder.spec)
    if document is None:
        return None
    order = Order.seen(document)
    state = read_own(folder.state, order.uid)
    if state:
        life = _liveness(folder, state)
    else:
        life = AgentLiveness.STARTING if is_locked(folder.lock) else AgentLiveness.MISSING
    end = read_own(folder.exit, order.uid)  # after looking for the process: it may just have ended
    if end:
        alive = life is AgentLiveness.ALIVE
        life = AgentLiveness.WAITING if alive and end.get("in_place") else AgentLiveness.ENDED
        life = AgentLiveness.STAYING if alive and end.get("stays") else life
    deletion = read_own(folder.delete, order.uid)
    return AttemptState(life=life, order=order, state=state, end=end, deletion=deletion)


def find_attempt(run: RunFolder, ref: InstanceRef) -> tuple[AttemptFolder, AttemptState] | None:
    """Return the attempt that `ref` means: the object itself, or without a uid its numbers."""
    for numbers, folder in run.attempts(ref.role, ref.index):
        standing = read_attempt_state(folder)
        if standing is not None and (
            ref.uid == standing.uid if ref.uid else numbers == attempt_of(ref)
        ):
            return folder, standing
    return None


def _liveness(folder: AttemptFolder, state: Mapping[str, Any]) -> AgentLiveness:
    agent, here = state["agent"], host_identity()
    if agent["boot_id"] != here.boot_id:
        # the same host after a reboot knows that nothing survived
        return AgentLiveness.LOST if agent["host"] == here.host else AgentLiveness.ELSEWHERE
    if agent["pid_ns"] == here.pid_ns:
        alive = proc.start_time(agent["pid"]) == agent["start_time"]
        return AgentLiveness.ALIVE if alive else AgentLiveness.LOST
    # Another container on the same kernel. Its pids mean nothing here, but its lock does; and a
    # container that came back under its name has lost all its processes.
    if agent["host"] == here.host and not is_locked(folder.lock):
        return AgentLiveness.LOST
    return AgentLiveness.ELSEWHERE
