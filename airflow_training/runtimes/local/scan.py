"""One look at a run's folder: what is there now, and what changed since the look before."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_training.agent.files import AttemptFolder
from airflow_training.control.observations import Observation
from airflow_training.control.transitions import ENDED
from airflow_training.documents.instances import InstanceKey
from airflow_training.runtimes.folders.attempt_state import AgentLiveness, AttemptState
from airflow_training.runtimes.folders.observation import last_of, observe
from airflow_training.runtimes.folders.observed import ObservedInstances
from airflow_training.runtimes.folders.paths import RunFolder, instance_of
from airflow_training.runtimes.local.leftovers import end_strays
from airflow_training.runtimes.local.liveness import read_attempt_state
from airflow_training.runtimes.local.ports import listening_ports
from airflow_training.runtimes.local.reasons import FOLDER_DELETED
from airflow_training.runtimes.local.recovery import settle_attempt
from airflow_training.runtimes.port import InstanceRemoval, InstanceUpdate

__all__ = ["AgentProcess", "Scanner", "current"]

_GONE: Mapping[str, Any] = {
    "state": "failed",
    "reason": FOLDER_DELETED,
    "address_live": False,
    "port_open": False,
    "ready": False,
    "in_place": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentProcess:
    """A living agent of this host, as its own record names it."""

    instance: str
    pid: int
    start_time: int
    folder: AttemptFolder


def current(run: RunFolder, role: str, index: int) -> tuple[AttemptFolder, AttemptState] | None:
    """Return the newest attempt of an instance that ever had an agent, settled; None: none had."""
    for _, folder in run.attempts(role, index):
        standing = read_attempt_state(folder)
        if standing is not None and standing.recorded:
            return folder, settle_attempt(folder, standing)
    return None


class Scanner:
    """Remembers what it saw. `look` blocks for file reads only; one call at a time."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._observed = ObservedInstances()
        self.seen: Mapping[InstanceKey, Observation] = self._observed.newest
        self.agents: dict[str, AgentProcess] = {}
        """Uid of the object -> its living agent."""
        self._ports: dict[InstanceKey, int] = {}
        """First ports of running instances that nobody listens on yet."""
        self._opened: set[str] = set()

    @property
    def awaited_ports(self) -> bool:
        """Whether a running instance has a port that is not open yet."""
        return bool(self._ports)

    def poll(self, instances: Collection[str] | None) -> list[InstanceUpdate | InstanceRemoval]:
        """Changes since the last poll; `instances` limits it to these, None is all of them."""
        if instances is None:
            keys = {*self._run.instances(), *self.seen}
        else:
            keys = {key for name in instances if (key := instance_of(name)) is not None}
        changes: list[InstanceUpdate | InstanceRemoval] = []
        for key in sorted(keys):
            changes += self._observed.compare(key, self._observe(key))
        return changes + self.poll_ports()

    def poll_ports(self) -> list[InstanceUpdate | InstanceRemoval]:
        """Changes because an awaited port has opened."""
        changes: list[InstanceUpdate | InstanceRemoval] = []
        listening = listening_ports() if self._ports else frozenset()
        for key in [k for k, port in self._ports.items() if port in listening]:
            self._opened.add(self.seen[key].uid)
            changes += self._observed.compare(key, self._observe(key))
        return changes

    def poll_progress(self) -> list[InstanceUpdate | InstanceRemoval]:
        """Changes because a progress file has grown: one `stat` per living agent."""
        grown = [
            agent.instance
            for uid, agent in self.agents.items()
            if self._observed.has_progress(agent.folder, uid)
        ]
        return self.poll(grown) if grown else []

    def _observe(self, key: InstanceKey) -> Observation | None:
        self._ports.pop(key, None)
        old = self.seen.get(key)
        found = current(self._run, *key)
        if old is not None and (found is None or found[1].uid != old.uid):
            if old.state not in ENDED and end_strays(self._run):
                message = "its folder was deleted, and what it ran does not end"
                return replace(old, state="unknown", reason=FOLDER_DELETED, message=message)
            if found is None and old.state in ("pending", "running"):
                where = self._run.instance(*key)
                message = f"its folder {where} was deleted or moved while it ran, so it was ended"
                self._observed.note_end(replace(old, message=message, **_GONE))
            self._forget(old.uid)
        if found is None:
            return None
        folder, standing = found
        uid = standing.uid
        self._attend(folder, standing)
        port_open = uid in self._opened
        observation = observe(
            standing,
            progress=self._observed.read_progress(folder, uid),
            environment=self._observed.read_environment(folder, uid),
            port_open=port_open,
        )
        if observation is None:
            self._forget(uid)
            last = last_of(standing)
            if last is not None and old is not None and old.state not in ENDED:
                self._observed.note_end(last)
        elif observation.state == "running" and not port_open:
            port = next(iter(standing.order.ports.values()), None)
            if port is not None:
                self._ports[key] = port
        return observation

    def _attend(self, folder: AttemptFolder, standing: AttemptState) -> None:
        if (
            standing.life in (AgentLiveness.ALIVE, AgentLiveness.WAITING, AgentLiveness.STAYING)
            and standing.pids_mean_here
        ):
            agent = standing.agent
            self.agents[standing.uid] = AgentProcess(
                instance=folder.instance.name,
                pid=agent["pid"],
                start_time=agent["start_time"],
                folder=folder,
            )
        else:
            self.agents.pop(standing.uid, None)

    def _forget(self, uid: str) -> None:
        self.agents.pop(uid, None)
        self._opened.discard(uid)
        self._observed.forget(uid)
