"""What an attempt's folder says about it: what was ordered, what its agent wrote, whether that lives."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any

from airflow_training.agent import proc
from airflow_training.agent.files import read_json
from airflow_training.agent.order import Order

__all__ = ["AgentLiveness", "AttemptState", "HostIdentity", "host_identity", "read_own"]


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
        return bool(self.agent) and self.agent["boot_id"] != host_identity().boot_id

    @property
    def pids_mean_here(self) -> bool:
        """Whether the numbers in its record name processes as we see them."""
        agent, here = self.agent, host_identity()
        return bool(agent) and (agent["boot_id"], agent["pid_ns"]) == (here.boot_id, here.pid_ns)

    @property
    def place(self) -> str:
        """Return where its agent was started, for people."""
        agent = self.agent
        return f"host {agent['host']} (pid {agent['pid']} in pid namespace {agent['pid_ns']})"


@dataclass(frozen=True, slots=True)
class HostIdentity:
    """By which a process id is known to mean a process here: it does where boot and pid namespace are the same."""

    host: str
    boot_id: str
    pid_ns: int


@lru_cache(maxsize=1)
def host_identity() -> HostIdentity:
    """Name this host as agents do in their records."""
    return HostIdentity(socket.gethostname(), proc.boot_id(), proc.pid_namespace())


def read_own(path: Path, uid: str) -> dict[str, Any]:
    """Return a file's content if it is about the object `uid`, not one of the same name before."""
    content: dict[str, Any] = read_json(path) or {}
    return content if content.get("uid") == uid else {}
