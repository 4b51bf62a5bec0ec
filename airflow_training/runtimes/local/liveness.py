"""What an attempt's folder says about it: alive, ended, lost, or on another host. Reads only."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any

from airflow_training.agent import proc
from airflow_training.agent.files import AttemptFolder, read_json
from airflow_training.agent.order import Order
from airflow_training.runtimes.local.paths import RunFolder, attempt_of, is_locked
from airflow_training.runtimes.port import InstanceRef

__all__ = ["AgentLiveness", "AttemptState", "find_attempt", "read_attempt_state"]


class AgentLiveness(Enum):
    MISSING = "no agent was started, or it left before it recorded itself"
    STARTING = "an agent has the lock and will record itself in a moment"
    ALIVE = "its agent lives here"
    ENDED = "its agent wrote down how it ended"
    WAITING = "its agent wrote down how it ended, and waits for the next attempt"
    STAYING = "its agent wrote down how it ended, and stays for a look inside"
    LOST = "its agent is dead and wrote nothing down"
    ELSEWHERE = "it was started where we cannot see"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptState:
    """One attempt as it is now. `state` and `end` are what its agent wrote."""

    life: AgentLiveness
    order: Order
    """What its agent was started with."""
    state: Mapping[str, Any]
    end: Mapping[str, Any]
    deletion: Mapping[str, Any]
    """The order to delete it; empty without one."""

    @property
    def uid(self) -> str:
        return self.order.uid

    @property
    def deleted(self) -> bool:
        return bool(self.deletion)

    @property
    def recorded(self) -> bool:
        """An agent wrote down that it is, or was, there."""
        return self.life not in (AgentLiveness.MISSING, AgentLiveness.STARTING)

    @property
    def over(self) -> bool:
        """Nothing of it lives, as far as anybody can know."""
        return self.life in (AgentLiveness.ENDED, AgentLiveness.MISSING)

    @property
    def agent(self) -> Mapping[str, Any]:
        """Names the agent's process: pid, start_time, boot_id, pid_ns, host."""
        found: Mapping[str, Any] = self.state.get("agent", {})
        return found

    @property
    def rebooted(self) -> bool:
        return bool(self.agent) and self.agent["boot_id"] != _here().boot_id

    @property
    def pids_mean_here(self) -> bool:
        """Whether the numbers in its record name processes as we see them."""
        agent, here = self.agent, _here()
        return bool(agent) and (agent["boot_id"], agent["pid_ns"]) == (here.boot_id, here.pid_ns)

    @property
    def place(self) -> str:
        """Return where its agent was started, for people."""
        agent = self.agent
        return f"host {agent['host']} (pid {agent['pid']} in pid namespace {agent['pid_ns']})"


@dataclass(frozen=True, slots=True)
class _HostIdentity:
    host: str
    boot_id: str
    pid_ns: int


@lru_cache(maxsize=1)
def _here() -> _HostIdentity:
    return _HostIdentity(socket.gethostname(), proc.boot_id(), proc.pid_namespace())


def read_attempt_state(folder: AttemptFolder) -> AttemptState | None:
    """Return how an attempt stands; None where nothing was ever ordered."""
    document = read_json(folder.spec)
    if document is None:
        return None
    order = Order.seen(document)

    def own(path: Path) -> dict[str, Any]:
        """Return a file's content if it is about this object, not one of the same name before."""
        content = read_json(path) or {}
        return content if content.get("uid") == order.uid else {}

    state = own(folder.state)
    if state:
        life = _liveness(folder, state)
    else:
        life = AgentLiveness.STARTING if is_locked(folder.lock) else AgentLiveness.MISSING
    end = own(folder.exit)  # after looking for the process: it may just have ended
    if end:
        alive = life is AgentLiveness.ALIVE
        life = AgentLiveness.WAITING if alive and end.get("in_place") else AgentLiveness.ENDED
        life = AgentLiveness.STAYING if alive and end.get("stays") else life
    return AttemptState(life=life, order=order, state=state, end=end, deletion=own(folder.delete))


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
    agent, here = state["agent"], _here()
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
