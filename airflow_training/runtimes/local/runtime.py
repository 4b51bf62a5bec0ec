"""`LocalRuntime`: the port, implemented on this machine's processes and files."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
import zlib
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path
from typing import Any

from airflow_training.agent.files import read_json, write_json
from airflow_training.agent.proc import marked
from airflow_training.errors import LeaseLost, Problem, StillAlive
from airflow_training.runtimes.local import expiry
from airflow_training.runtimes.local.gpus import GpuBook
from airflow_training.runtimes.local.launch import Launcher
from airflow_training.runtimes.local.life import Life, Standing, find_attempt, look_at
from airflow_training.runtimes.local.node import this_node
from airflow_training.runtimes.local.paths import RunFolder, attempt_of, locked
from airflow_training.runtimes.local.ports import PortBook
from airflow_training.runtimes.local.scan import current
from airflow_training.runtimes.local.settle import give_order, order_delete, poke, settle
from airflow_training.runtimes.local.sweep import Orphan, find_orphans
from airflow_training.runtimes.local.watch import watch
from airflow_training.runtimes.port import (
    Address,
    Addresses,
    Capabilities,
    Changed,
    ClusterView,
    Cursor,
    Gone,
    InstanceRef,
    InstanceSpec,
    LogChunk,
    Outcome,
    ReleaseAnswer,
    Snapshot,
)
from airflow_training.settings import Settings
from airflow_training.spec.quantities import parse_quantity
from airflow_training.spec.resolved import ResolvedJob, RunRef

__all__ = ["LocalRuntime"]

_LOOPBACK = "127.0.0.1"
_REMOVE_SECONDS = 15.0
"""How much longer than the longest grace `remove` waits for the last process to go."""


class LocalRuntime:
    """Instances are process trees of this machine, below `local_dir`; survives its own death.

    Any number of objects, in any number of processes, may serve the same directory.
    """

    name = "local"
    capabilities = Capabilities(hold=True, restart_in_place=True, memory_limits=True)

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
        self._launcher = Launcher(local_dir=self._dir, inherit=tuple(inherit), python=python)
        self._ports = ports or PortBook()

    @classmethod
    def from_settings(cls, settings: Settings) -> LocalRuntime:
        """Return the runtime that the `[training]` options describe."""
        return cls(local_dir=settings.local_dir, inherit=settings.local_env)

    # the port ----------------------------------------------------------------------------------
    async def check(self, run: RunRef, job: ResolvedJob) -> Sequence[Problem]:  # noqa: ARG002 - the port's signature
        """Return nothing: whether the job fits the machine was asked before."""
        return ()

    async def prepare(self, run: RunRef, job: ResolvedJob) -> Addresses:
        """Reserve loopback ports; raises LeaseLost for a generation that lost the run."""
        return await asyncio.to_thread(self._prepare, run, job)

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
        how = {"grace_seconds": grace_seconds, "dump_stacks": dump_stacks}
        await asyncio.to_thread(self._order, instances, do="stop", **how)

    async def restart_process(self, instance: InstanceRef, spec: InstanceSpec) -> Outcome:
        """Let the agent that waits go on as the next attempt; returns when it has."""
        return await asyncio.to_thread(self._launcher.restart, instance, spec)

    async def dismiss(self, instances: Sequence[InstanceRef]) -> None:
        """Let agents that wait go."""
        await asyncio.to_thread(self._order, instances, do="leave")

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

    async def watch(self, run: RunRef) -> AsyncIterator[Snapshot | Changed | Gone]:
        """Yield a snapshot, then changes."""
        folder = self._folder(run)
        await asyncio.to_thread(folder.make)
        async with contextlib.aclosing(watch(folder)) as changes:
            async for change in changes:
                yield change

    async def read_log(
        self, instance: InstanceRef, cursor: Cursor, *, limit: int, attempt: int | None = None
    ) -> LogChunk:
        """Return bytes of the attempt's log file; offsets are those of the file."""
        return await asyncio.to_thread(self._read_log, instance, cursor, limit, attempt)

    async def remove(self, run: RunRef) -> None:
        """End everything that lives and give the ports back; raises StillAlive."""
        await asyncio.to_thread(self._remove, run)

    async def cluster_view(
        self,
        job: ResolvedJob | None = None,  # noqa: ARG002 - the port's signature
        *,
        with_free: bool = False,  # noqa: ARG002 - as above: it is always known here
    ) -> ClusterView:
        """Return this machine."""
        return await asyncio.to_thread(self._cluster_view)

    async def find_orphans(self, *, controller: str, known_uids: Collection[str]) -> list[Orphan]:
        """Return runs of `controller` that live although they are not in `known_uids`."""
        return await asyncio.to_thread(
            find_orphans, self._dir, controller=controller, known_uids=known_uids
        )

    async def due_runs(self) -> list[str]:
        """Return uids of runs here that may have outlived their `ttlSecondsAfterFinished`."""
        return await asyncio.to_thread(expiry.due, self._dir, now=time.time())

    async def look_again(self, uid: str, *, seconds: float) -> None:
        """Leave a run out of `due_runs` for so long."""
        await asyncio.to_thread(expiry.look_again, self._dir, uid, at=time.time() + seconds)

    async def set_aside(self, run: RunRef) -> None:
        """Take a removed run's folder away; raises StillAlive for one that is not ours or lives."""
        await asyncio.to_thread(expiry.set_aside, self._dir, run)

    async def delete_aside(self, uid: str) -> None:
        """Delete what was set aside; raises OSError where something of `uid` stays."""
        await asyncio.to_thread(expiry.delete_aside, self._dir, uid)

    # inside, in threads --------------------------------------------------------------------------
    def _folder(self, run: RunRef) -> RunFolder:
        return RunFolder(self._dir, run.uid)

    def _prepare(self, run: RunRef, job: ResolvedJob) -> Addresses:
        folder = self._folder(run)
        folder.make()
        refusal = folder.refuse_or_own(run.generation)
        if refusal:
            raise LeaseLost(f"run {run.uid}: {refusal}")
        about = {
            "job": run.job,
            "namespace": run.namespace,
            "controller": run.controller,
            "base_dir": job.base_dir,
        }
        with locked(folder.prepare_lock):
            write_json(folder.about, about)
            if job.ttl_seconds_after_finished is not None:
                at = time.time() + job.ttl_seconds_after_finished
                expiry.look_again(self._dir, run.uid, at=at)
            roles = self._reserve(folder, job)
        return {
            role: tuple(Address(host=_LOOPBACK, ports=ports) for ports in known)
            for role, known in roles.items()
        }

    def _reserve(self, folder: RunFolder, job: ResolvedJob) -> dict[str, list[dict[str, int]]]:
        """Return role -> ports by index: what was answered before, and what is new."""
        roles: dict[str, list[dict[str, int]]] = (read_json(folder.ports) or {}).get("roles", {})
        owner = folder.path
        for known in roles.values():
            for ports in known:
                for name, port in ports.items():
                    # taken by somebody else while this run was removed: nothing of it lives now
                    if not self._ports.take(owner, port):
                        ports[name] = self._new_ports(owner, 1)[0]
        for role in job.roles:
            known = roles.setdefault(role.name, [])
            while len(known) < max(role.replicas, role.max_replicas or 0):
                taken = self._new_ports(owner, len(role.ports))
                known.append(dict(zip(role.ports, taken, strict=True)))
        write_json(folder.ports, {"roles": roles})
        return roles

    def _new_ports(self, owner: Path, count: int) -> list[int]:
        return self._ports.reserve(owner, count=count, start=zlib.crc32(str(owner).encode()))

    def _release(self, instances: Sequence[InstanceRef], answer: ReleaseAnswer) -> None:
        for ref in instances:
            run = self._folder(ref.run)
            folder = run.attempt(ref.role, ref.index, attempt_of(ref))
            standing = look_at(folder)
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
            poke(folder)

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

    def _order(self, instances: Sequence[InstanceRef], **order: Any) -> None:
        for ref in instances:
            found = find_attempt(self._folder(ref.run), ref)
            if found is not None:
                give_order(found[0], found[1].uid, **order)

    def _read_log(
        self, ref: InstanceRef, cursor: Cursor, limit: int, attempt: int | None
    ) -> LogChunk:
        run = self._folder(ref.run)
        folder = run.attempt(ref.role, ref.index, attempt_of(ref, attempt))
        # looked at before reading: what is over then writes nothing after it
        standing = look_at(folder)
        over = run.removed_generation >= 0 if standing is None else bool(standing.end)
        try:
            with folder.log.open("rb") as file:
                file.seek(cursor.offset)
                data = file.read(limit)
        except FileNotFoundError:
            return LogChunk(data=b"", next=cursor, end=over)
        position = cursor.offset + len(data)
        return LogChunk(data=data, next=Cursor(offset=position), end=over and len(data) < limit)

    def _remove(self, run: RunRef) -> None:
        folder = self._folder(run)
        folder.make()
        # first of all: an agent that starts from here on sees it under its lock and leaves
        folder.bury(run.generation)
        until = 0.0
        pause = 0.005
        while True:
            standings = self._standings(folder)
            living = [each for each in standings if not each.over]
            if not living:
                break
            if not until:
                grace = max(float(each.spec["grace_seconds"]) for each in living)
                until = time.monotonic() + grace + _REMOVE_SECONDS
            hidden = all(each.life is Life.ELSEWHERE for each in living)
            if hidden or time.monotonic() > until:
                raise StillAlive(f"run {run.uid}: {'; '.join(map(_describe, living))}")
            time.sleep(pause)
            pause = min(pause * 1.5, 0.25)
        roles = (read_json(folder.ports) or {}).get("roles", {})
        taken = [port for known in roles.values() for ports in known for port in ports.values()]
        self._ports.release(folder.path, taken)

    def _standings(self, folder: RunFolder) -> list[Standing]:
        """Return every attempt, ordering the end of those that live."""
        found = []
        for role, index in folder.instances():
            for _, attempt in folder.attempts(role, index):
                standing = look_at(attempt)
                if standing is None:
                    continue
                if not standing.deleted:
                    grace = float(standing.spec["grace_seconds"])
                    order_delete(attempt, standing.uid, grace_seconds=grace)
                found.append(settle(attempt, look_at(attempt) or standing))
        return found

    def _cluster_view(self) -> ClusterView:
        cpus, memory = 0.0, 0.0
        for path in self._dir.iterdir() if self._dir.is_dir() else ():
            if not (path / "run.json").exists() or (path / "tombstone.json").exists():
                continue
            run = RunFolder(self._dir, path.name)
            for role, index in run.instances():
                found = current(run, role, index)
                if found is not None and not found[1].over:
                    asked = found[1].spec["resources"]
                    cpus += parse_quantity(asked.get("cpu", 0))
                    memory += parse_quantity(asked.get("memory", 0))
        free_gpus = GpuBook(self._dir).free()
        node = this_node(asked_cpus=cpus, asked_memory_bytes=int(memory), free_gpus=free_gpus)
        return ClusterView(nodes=(node,))


def _describe(standing: Standing) -> str:
    spec = standing.spec
    if standing.life is Life.LOST:
        left = sorted(marked([f"TRAINING_INSTANCE_UID={standing.uid}"]))
        return f"{spec['role']} {spec['index']} left processes {left} on {standing.place}"
    return f"{spec['role']} {spec['index']} lives on {standing.place}"
