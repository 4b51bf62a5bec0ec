"""`LocalRuntime`: the port, implemented on this machine's processes and files."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import sys
import time
import zlib
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path

from airflow_training.agent.files import AttemptFolder, write_json
from airflow_training.agent.proc import marked_processes
from airflow_training.control.attempts import FIRST_ATTEMPT, AttemptId
from airflow_training.documents.quantities import parse_quantity
from airflow_training.documents.resolved import ResolvedJob, RunRef
from airflow_training.errors import Problem, StillAlive
from airflow_training.runtimes.folders.attempt_state import AgentLiveness, AttemptState
from airflow_training.runtimes.folders.orders import order_delete
from airflow_training.runtimes.folders.paths import (
    RolePorts,
    RunFolder,
    ports_of,
)
from airflow_training.runtimes.folders.runtime import FolderRuntime
from airflow_training.runtimes.local.capabilities import CAPABILITIES
from airflow_training.runtimes.local.gpus import GpuBook
from airflow_training.runtimes.local.launch import Launcher
from airflow_training.runtimes.local.leftovers import end_strays
from airflow_training.runtimes.local.liveness import find_attempt, read_attempt_state
from airflow_training.runtimes.local.node import this_node
from airflow_training.runtimes.local.place import place_here
from airflow_training.runtimes.local.ports import PortBook
from airflow_training.runtimes.local.previous_run import leftover_problem, quarantine_previous
from airflow_training.runtimes.local.recovery import settle_attempt
from airflow_training.runtimes.local.scan import current
from airflow_training.runtimes.local.shell import open_shell
from airflow_training.runtimes.local.sweep import OrphanProcesses, find_orphans
from airflow_training.runtimes.local.watch import watch
from airflow_training.runtimes.port import (
    Address,
    Addresses,
    ClusterSnapshot,
    InstanceRef,
    InstanceRemoval,
    InstanceSpec,
    InstanceUpdate,
    Outcome,
    Snapshot,
    Streams,
)
from airflow_training.settings import Settings

__all__ = ["LocalRuntime"]

_KEPT = frozenset({AgentLiveness.STAYING})
_LOOPBACK = "127.0.0.1"
_REMOVE_SECONDS = 15.0
"""How much longer than the longest grace `remove` waits for the last process to go."""


class LocalRuntime(FolderRuntime):
    """Instances are process trees of this machine, below `local_dir`; survives its own death.

    Any number of objects, in any number of processes, may serve the same directory.
    """

    name = "local"
    log_place = "this machine"

    def __init__(
        self,
        *,
        local_dir: Path,
        inherit: Sequence[str] = (),
        python: str = sys.executable,
        ports: PortBook | None = None,
    ) -> None:
        """`inherit`: more names (with `*`) of our environment that instances see.

        `python`: interpreter of the agents, not of the training.
        """
        super().__init__(local_dir)
        place = place_here(self._root, inherit=inherit, python=python)
        self.capabilities = dataclasses.replace(CAPABILITIES, place=place)
        self._launcher = Launcher(local_dir=self._root, inherit=tuple(inherit), python=python)
        self._ports = ports or PortBook.of_this_user(self._root)

    @classmethod
    def from_settings(cls, settings: Settings) -> LocalRuntime:
        """Return the runtime that the `[training]` options describe."""
        return cls(local_dir=settings.local_dir, inherit=settings.local_env)

    # the port ----------------------------------------------------------------------------------
    async def check(
        self,
        run: RunRef,
        job: ResolvedJob,  # noqa: ARG002 - the port's signature
        firsts: Sequence[InstanceSpec],  # noqa: ARG002 - the port's signature
    ) -> Sequence[Problem]:
        """Problems with remains of an earlier run of this id."""
        problem = await asyncio.to_thread(leftover_problem, self._folder(run), run)
        return () if problem is None else [problem]

    async def prepare(
        self, run: RunRef, job: ResolvedJob, *, attempt: AttemptId = FIRST_ATTEMPT
    ) -> Addresses:
        """Reserve loopback ports; raises LeaseLost for a generation that lost the run."""
        number = f"{attempt.epoch}.{attempt.job_attempt}"
        return await asyncio.to_thread(self._prepare, run, job, number)

    async def create(self, instances: Sequence[InstanceSpec]) -> Sequence[Outcome]:
        """Start or adopt the agents of these attempts."""
        return await asyncio.to_thread(self._launcher.create, instances)

    async def restart_process(self, instance: InstanceRef, spec: InstanceSpec) -> Outcome:
        """Let the agent that waits go on as the next attempt; returns when it has."""
        return await asyncio.to_thread(self._launcher.restart, instance, spec)

    async def end_kept(self, run: RunRef) -> None:
        """Order agents that stay to go, and wait until they have."""
        await asyncio.to_thread(self._end, run, spared=())

    async def shell(self, instance: InstanceRef, command: Sequence[str], streams: Streams) -> int:
        """Run a command below an instance's agent, in its folder and environment."""
        return await open_shell(self._folder(instance.run), instance, command, streams)

    async def watch(
        self, run: RunRef
    ) -> AsyncIterator[Snapshot | InstanceUpdate | InstanceRemoval]:
        """Yield a snapshot, then changes."""
        folder = self._folder(run)
        await asyncio.to_thread(folder.make)
        if run.generation > 1:  # a holder before us may have made what has no folder any more
            await asyncio.to_thread(end_strays, folder)
        async with contextlib.aclosing(watch(folder)) as changes:
            async for change in changes:
                yield change

    async def remove(self, run: RunRef) -> None:
        """End everything that lives and give the ports back; raises StillAlive."""
        await asyncio.to_thread(self._remove, run)

    async def cluster_view(
        self,
        job: ResolvedJob | None = None,  # noqa: ARG002 - the port's signature
        *,
        with_free: bool = False,  # noqa: ARG002 - as above: it is always known here
    ) -> ClusterSnapshot:
        """Return this machine as the only node, with what is free of it."""
        return await asyncio.to_thread(self._cluster_view)

    async def find_orphans(
        self, *, controller: str, known_uids: Collection[str]
    ) -> list[OrphanProcesses]:
        """Return runs of `controller` that live although they are not in `known_uids`."""
        return await asyncio.to_thread(
            find_orphans, self._root, controller=controller, known_uids=known_uids
        )

    # inside, in threads --------------------------------------------------------------------------
    def _read(self, run: RunRef, folder: AttemptFolder) -> AttemptState | None:  # noqa: ARG002 - files tell all
        return read_attempt_state(folder)

    def _find(self, ref: InstanceRef) -> tuple[AttemptFolder, AttemptState] | None:
        return find_attempt(self._folder(ref.run), ref)

    def _prepare(self, run: RunRef, job: ResolvedJob, job_attempt: str) -> Addresses:
        quarantine_previous(self._folder(run), run)
        with self._owned_folder(run, job, {}) as folder:
            roles = self._reserve(folder, job, job_attempt)
        return {
            role: tuple(Address(host=_LOOPBACK, ports=ports) for ports in known)
            for role, known in roles.items()
        }

    def _reserve(self, folder: RunFolder, job: ResolvedJob, job_attempt: str) -> RolePorts:
        """Return role -> ports by index: what was answered for this job attempt, and what is new."""
        owner, book = folder.path, folder.port_book()
        roles = book.pop(job_attempt, {})
        for port in ports_of({job_attempt: roles}):
            self._ports.keep(owner, port)
        for role in job.roles:
            known = roles.setdefault(role.name, [])
            while len(known) < max(role.replicas, role.max_replicas or 0):
                taken = self._new_ports(owner, len(role.ports))
                known.append(dict(zip(role.ports, taken, strict=True)))
        # of the job attempt before something may still be ending; older ones are surely gone
        kept = {**dict(list(book.items())[-1:]), job_attempt: roles}
        write_json(folder.ports, kept)
        self._ports.release(owner, ports_of(book) - ports_of(kept))
        return roles

    def _new_ports(self, owner: Path, count: int) -> list[int]:
        return self._ports.reserve(owner, count=count, start=zlib.crc32(str(owner).encode()))

    def _remove(self, run: RunRef) -> None:
        folder = self._folder(run)
        folder.make()
        # first of all: an agent that starts from here on sees it under its lock and leaves
        folder.bury(run.generation)
        self._end(run, spared=_KEPT)
        if self._stays(folder):
            folder.note_what_stays(run.generation)
        if left := end_strays(folder):
            raise StillAlive(f"run {run.uid}: processes whose folder was deleted live: {left}")
        taken = ports_of(folder.port_book())
        folder.ports.unlink(missing_ok=True)
        self._ports.release(folder.path, taken)

    def _end(self, run: RunRef, *, spared: Collection[AgentLiveness]) -> None:
        """End every attempt that lives, but those of such a life; raises StillAlive."""
        folder = self._folder(run)
        until = 0.0
        pause = 0.005
        while True:
            standings = self._standings(folder, spared=spared)
            living = [each for each in standings if not each.over]
            if not living:
                break
            if not until:
                grace = max(each.order.grace_seconds for each in living)
                until = time.monotonic() + grace + _REMOVE_SECONDS
            hidden = all(each.life is AgentLiveness.ELSEWHERE for each in living)
            if hidden or time.monotonic() > until:
                raise StillAlive(f"run {run.uid}: {'; '.join(map(_describe, living))}")
            time.sleep(pause)
            pause = min(pause * 1.5, 0.25)

    def _stays(self, folder: RunFolder) -> bool:
        latest = (current(folder, *key) for key in folder.instances())
        return any(found is not None and found[1].life in _KEPT for found in latest)

    def _standings(
        self, folder: RunFolder, *, spared: Collection[AgentLiveness]
    ) -> list[AttemptState]:
        """Return every attempt but those that are spared, ordering the end of those that live."""
        found = []
        for role, index in folder.instances():
            for _, attempt in folder.attempts(role, index):
                standing = read_attempt_state(attempt)
                if standing is None or (standing.life in spared and not standing.deleted):
                    continue
                if not standing.deleted:
                    grace = standing.order.grace_seconds
                    order_delete(attempt, standing.uid, grace_seconds=grace)
                found.append(settle_attempt(attempt, read_attempt_state(attempt) or standing))
        return found

    def _cluster_view(self) -> ClusterSnapshot:
        cpus, memory = 0.0, 0.0
        for path in self._root.iterdir() if self._root.is_dir() else ():
            run = RunFolder(self._root, path.name)
            if not run.about.exists() or not run.may_hold:
                continue
            for role, index in run.instances():
                found = current(run, role, index)
                if found is not None and not found[1].over:
                    asked = found[1].order.resources
                    cpus += parse_quantity(asked.get("cpu", 0))
                    memory += parse_quantity(asked.get("memory", 0))
        free_gpus = GpuBook(self._root).free()
        node = this_node(asked_cpus=cpus, asked_memory_bytes=int(memory), free_gpus=free_gpus)
        return ClusterSnapshot(nodes=(node,))


def _describe(standing: AttemptState) -> str:
    name = f"{standing.order.role} {standing.order.index}"
    if standing.life is AgentLiveness.LOST:
        left = sorted(marked_processes([f"TRAINING_INSTANCE_UID={standing.uid}"]))
        return f"{name} left processes {left} on {standing.place}"
    return f"{name} lives on {standing.place}"
