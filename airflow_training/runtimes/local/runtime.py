"""`LocalRuntime`: the port, implemented on this machine's processes and files."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import sys
import time
import zlib
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_training.agent.files import AttemptFolder, write_json
from airflow_training.agent.proc import marked_processes
from airflow_training.control.attempts import FIRST_ATTEMPT, AttemptId
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.quantities import parse_quantity
from airflow_training.documents.resolved import ResolvedJob, RunRef
from airflow_training.errors import LeaseLost, Problem, StillAlive
from airflow_training.runtimes.local import expiry
from airflow_training.runtimes.local.capabilities import CAPABILITIES
from airflow_training.runtimes.local.gpus import GpuBook
from airflow_training.runtimes.local.launch import Launcher
from airflow_training.runtimes.local.leftovers import end_strays
from airflow_training.runtimes.local.liveness import (
    AgentLiveness,
    AttemptState,
    find_attempt,
    read_attempt_state,
)
from airflow_training.runtimes.local.node import this_node
from airflow_training.runtimes.local.paths import (
    RolePorts,
    RunFolder,
    attempt_of,
    locked,
    ports_of,
)
from airflow_training.runtimes.local.place import place_here
from airflow_training.runtimes.local.ports import PortBook
from airflow_training.runtimes.local.previous_run import leftover_problem, quarantine_previous
from airflow_training.runtimes.local.recovery import (
    give_order,
    order_delete,
    settle_attempt,
    wake_agent,
)
from airflow_training.runtimes.local.scan import current
from airflow_training.runtimes.local.shell import open_shell
from airflow_training.runtimes.local.sweep import OrphanProcesses, find_orphans
from airflow_training.runtimes.local.watch import watch
from airflow_training.runtimes.port import (
    Address,
    Addresses,
    ClusterSnapshot,
    Cursor,
    InstanceRef,
    InstanceRemoval,
    InstanceSpec,
    InstanceUpdate,
    LogChunk,
    Outcome,
    ReleaseAnswer,
    Snapshot,
    Streams,
)
from airflow_training.settings import Settings

if TYPE_CHECKING:
    from typing_extensions import Unpack  # of `typing` from 3.11 on

    from airflow_training.agent.order import AgentCommand

__all__ = ["LocalRuntime"]

_KEPT = frozenset({AgentLiveness.STAYING})
_LOOPBACK = "127.0.0.1"
_REMOVE_SECONDS = 15.0
"""How much longer than the longest grace `remove` waits for the last process to go."""


class LocalRuntime:
    """Instances are process trees of this machine, below `local_dir`; survives its own death.

    Any number of objects, in any number of processes, may serve the same directory.
    """

    name = "local"

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
        self._dir = local_dir.absolute()
        place = place_here(self._dir, inherit=inherit, python=python)
        self.capabilities = dataclasses.replace(CAPABILITIES, place=place)
        self._launcher = Launcher(local_dir=self._dir, inherit=tuple(inherit), python=python)
        self._ports = ports or PortBook.of_this_user(self._dir)

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

    async def release(self, instances: Sequence[InstanceRef], answer: ReleaseAnswer) -> None:
        """Write the answer where the agents wait for it, and wake them."""
        await asyncio.to_thread(self._release, instances, answer)

    async def stop_process(
        self,
        instances: Sequence[InstanceRef],
        *,
        grace_seconds: float,
        dump_stacks: bool = False,
    ) -> None:
        """Order agents to end their process trees, and to stay."""
        await asyncio.to_thread(
            self._order, instances, "stop", grace_seconds=grace_seconds, dump_stacks=dump_stacks
        )

    async def finish_early(self, instances: Sequence[InstanceRef], *, grace_seconds: float) -> None:
        """Order agents to end their commands as ones that have done all."""
        await asyncio.to_thread(self._order, instances, "finish", grace_seconds=grace_seconds)

    async def await_peers(
        self, instances: Sequence[InstanceRef], *, seconds: float, number: int
    ) -> None:
        """Tell agents that their scripts wait for others."""
        await asyncio.to_thread(self._order, instances, "await", seconds=seconds, number=number)

    async def restart_process(self, instance: InstanceRef, spec: InstanceSpec) -> Outcome:
        """Let the agent that waits go on as the next attempt; returns when it has."""
        return await asyncio.to_thread(self._launcher.restart, instance, spec)

    async def dismiss(self, instances: Sequence[InstanceRef]) -> None:
        """Let agents that wait go."""
        await asyncio.to_thread(self._order, instances, "leave")

    async def keep(self, instance: InstanceRef, *, seconds: float) -> None:
        """Order an agent that waits to stay."""
        await asyncio.to_thread(self._order, [instance], "stay", seconds=seconds)

    async def end_kept(self, run: RunRef) -> None:
        """Order agents that stay to go, and wait until they have."""
        await asyncio.to_thread(self._end, run, spared=())

    async def shell(self, instance: InstanceRef, command: Sequence[str], streams: Streams) -> int:
        """Run a command below an instance's agent, in its folder and environment."""
        return await open_shell(self._folder(instance.run), instance, command, streams)

    async def delete(
        self,
        instances: Sequence[InstanceRef],
        *,
        grace_seconds: float,
        dump_stacks: bool = False,
    ) -> None:
        """Order agents to end their process trees."""
        await asyncio.to_thread(
            self._delete, instances, grace_seconds=grace_seconds, dump_stacks=dump_stacks
        )

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

    async def read_log(
        self, instance: InstanceRef, cursor: Cursor, *, limit: int, attempt: int | None = None
    ) -> LogChunk:
        """Return bytes of the attempt's log file; offsets are those of the file."""
        return await asyncio.to_thread(self._read_log, instance, cursor, limit, attempt)

    async def tail_log(self, instance: InstanceRef, *, limit: int) -> bytes:
        """Return the end of the attempt's log file."""
        return await asyncio.to_thread(self._tail_log, instance, limit)

    async def collect_logs(
        self, run: RunRef, *, only: Collection[InstanceKey] | None = None
    ) -> None:
        """Do nothing: logs are files already."""

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
            find_orphans, self._dir, controller=controller, known_uids=known_uids
        )

    async def due_runs(self) -> list[str]:
        """Return uids of runs here that may have outlived their `ttlSecondsAfterFinished`."""
        return await asyncio.to_thread(expiry.due_runs, self._dir, now=time.time())

    async def look_again(self, uid: str, *, seconds: float) -> None:
        """Leave a run out of `due_runs` for so long."""
        await asyncio.to_thread(expiry.schedule_check, self._dir, uid, at=time.time() + seconds)

    async def quarantine(self, run: RunRef) -> None:
        """Take a removed run's folder away; raises StillAlive for one that is not ours or lives."""
        await asyncio.to_thread(expiry.quarantine, self._dir, run)

    async def delete_quarantined(self, uid: str) -> None:
        """Delete what was set aside; raises OSError where something of `uid` stays."""
        await asyncio.to_thread(expiry.delete_quarantined, self._dir, uid)

    # inside, in threads --------------------------------------------------------------------------
    def _folder(self, run: RunRef) -> RunFolder:
        return RunFolder(self._dir, run.uid)

    def _prepare(self, run: RunRef, job: ResolvedJob, job_attempt: str) -> Addresses:
        folder = self._folder(run)
        quarantine_previous(folder, run)
        folder.make()
        refusal = folder.refuse_or_own(run.generation)
        if refusal:
            raise LeaseLost(f"run {run.uid}: {refusal}")
        about = {
            "job": run.job,
            "namespace": run.namespace,
            "controller": run.controller,
            "base_dir": job.base_dir,
            "submitted_at": run.submitted_at,
        }
        with locked(folder.prepare_lock):
            write_json(folder.about, about)
            if job.ttl_seconds_after_finished is not None:
                at = time.time() + job.ttl_seconds_after_finished
                expiry.schedule_check(self._dir, run.uid, at=at)
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

    def _release(self, instances: Sequence[InstanceRef], answer: ReleaseAnswer) -> None:
        for ref in instances:
            run = self._folder(ref.run)
            folder = run.attempt(ref.role, ref.index, attempt_of(ref))
            standing = read_attempt_state(folder)
            if standing is None or (ref.uid and ref.uid != standing.uid):
                continue
            write_json(
                folder.release,
                {
                    "uid": standing.uid,
                    "kind": answer.kind,
                    "addresses": {role: list(all_) for role, all_ in answer.addresses.items()},
                },
            )
            wake_agent(folder)

    def _delete(
        self, instances: Sequence[InstanceRef], *, grace_seconds: float, dump_stacks: bool
    ) -> None:
        for ref in instances:
            found = find_attempt(self._folder(ref.run), ref)
            if found is not None:
                order_delete(
                    found[0],
                    found[1].uid,
                    grace_seconds=grace_seconds,
                    dump_stacks=dump_stacks,
                )

    def _order(
        self, instances: Sequence[InstanceRef], do: str, **more: Unpack[AgentCommand]
    ) -> None:
        for ref in instances:
            found = find_attempt(self._folder(ref.run), ref)
            if found is not None:
                give_order(found[0], found[1].uid, do, **more)

    def _read_log(
        self, ref: InstanceRef, cursor: Cursor, limit: int, attempt: int | None
    ) -> LogChunk:
        run = self._folder(ref.run)
        folder = run.attempt(ref.role, ref.index, attempt_of(ref, attempt))
        # looked at before reading: what is over then writes nothing after it
        standing = read_attempt_state(folder)
        over = run.removed_generation >= 0 if standing is None else bool(standing.end)
        try:
            with folder.log.open("rb") as file:
                file.seek(cursor.offset)
                data = file.read(limit)
        except FileNotFoundError:
            why = _why_no_log(run, folder)
            return LogChunk(data=b"", next=cursor, end=over, missing=why)
        position = cursor.offset + len(data)
        return LogChunk(data=data, next=Cursor(offset=position), end=over and len(data) < limit)

    def _tail_log(self, ref: InstanceRef, limit: int) -> bytes:
        folder = self._folder(ref.run).attempt(ref.role, ref.index, attempt_of(ref, None))
        try:
            with folder.log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - limit))
                return file.read(limit)
        except FileNotFoundError:
            return b""

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
        for path in self._dir.iterdir() if self._dir.is_dir() else ():
            run = RunFolder(self._dir, path.name)
            if not run.about.exists() or not run.may_hold:
                continue
            for role, index in run.instances():
                found = current(run, role, index)
                if found is not None and not found[1].over:
                    asked = found[1].order.resources
                    cpus += parse_quantity(asked.get("cpu", 0))
                    memory += parse_quantity(asked.get("memory", 0))
        free_gpus = GpuBook(self._dir).free()
        node = this_node(asked_cpus=cpus, asked_memory_bytes=int(memory), free_gpus=free_gpus)
        return ClusterSnapshot(nodes=(node,))


def _describe(standing: AttemptState) -> str:
    name = f"{standing.order.role} {standing.order.index}"
    if standing.life is AgentLiveness.LOST:
        left = sorted(marked_processes([f"TRAINING_INSTANCE_UID={standing.uid}"]))
        return f"{name} left processes {left} on {standing.place}"
    return f"{name} lives on {standing.place}"


def _why_no_log(run: RunFolder, attempt: AttemptFolder) -> str:
    """Return why there is no log of an attempt: one is made with its folder. "": it may be made yet."""
    if attempt.path.exists():
        return "somebody removed it from this machine"
    if not run.path.exists():
        return "the folder of its run is not on this machine: somebody removed it, or it is on another one"
    if run.removed_generation >= 0:
        return "its folder is not on this machine: somebody removed it"
    return ""
