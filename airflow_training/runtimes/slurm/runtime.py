"""`SlurmRuntime`: the port, over Slurm's commands and a folder that all nodes share."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_training.agent.files import AttemptFolder, read_json, write_json
from airflow_training.control.attempts import FIRST_ATTEMPT, AttemptId
from airflow_training.documents.resolved import ResolvedJob, RunRef
from airflow_training.errors import InputError, Problem, RuntimeUnavailable, StillAlive
from airflow_training.runtimes.folders.attempt_state import AgentLiveness, AttemptState
from airflow_training.runtimes.folders.orders import order_delete
from airflow_training.runtimes.folders.paths import RunFolder
from airflow_training.runtimes.folders.runtime import FolderRuntime
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
from airflow_training.runtimes.slurm.allocation_options import AllocationOptions
from airflow_training.runtimes.slurm.allocation_program import host_name
from airflow_training.runtimes.slurm.allocations import AllocationBook
from airflow_training.runtimes.slurm.attempts import AttemptReader
from airflow_training.runtimes.slurm.capabilities import CAPABILITIES
from airflow_training.runtimes.slurm.cluster import CommandCluster, SlurmCluster
from airflow_training.runtimes.slurm.launch import SlurmLauncher, describe
from airflow_training.runtimes.slurm.queue_watch import QueueWatch, shared_queue
from airflow_training.runtimes.slurm.requests import gang_components
from airflow_training.runtimes.slurm.scan import SlurmScanner
from airflow_training.runtimes.slurm.shell import shell_words
from airflow_training.runtimes.slurm.submission import find_refusals
from airflow_training.runtimes.slurm.sweep import find_living_runs
from airflow_training.runtimes.slurm.transport import environment_without_job
from airflow_training.runtimes.terminal import run_in_terminal
from airflow_training.settings import Settings, user_name

if TYPE_CHECKING:
    from airflow_training.runtimes.slurm.rest import RestCluster

__all__ = ["SlurmRuntime"]

_LOOK_SECONDS = 0.2
"""Between two looks at the folders that tell of a change."""
_REMOVE_SECONDS = 15.0
"""How much longer than the longest grace `remove` waits for agents to end what they have."""
_CANCEL_SECONDS = 90.0
"""How long Slurm may take to end what was cancelled (`KillWait`, epilog)."""
_LOWEST_PORT, _PORTS = 20000, 12000
"""Below the range that kernels hand out by themselves."""


class SlurmRuntime(FolderRuntime):
    """Instances are steps of allocations; what is known of them lies in `root`.

    Any number of objects, in any number of processes, may serve the same folder.
    """

    name = "slurm"
    log_place = "the shared folder"
    capabilities = CAPABILITIES

    def __init__(
        self,
        *,
        root: Path,
        inherit: Sequence[str] = (),
        cluster: SlurmCluster | None = None,
        queue: QueueWatch | None = None,
    ) -> None:
        """`root`: a folder that all nodes see at the same path. `queue`: one that others use too."""
        super().__init__(root)
        self._cluster = cluster or CommandCluster()
        self._queue = queue or QueueWatch(self._cluster)
        self._launcher = SlurmLauncher(root=self._root, inherit=tuple(inherit))

    @classmethod
    def from_settings(cls, settings: Settings) -> SlurmRuntime:
        """Return the runtime that the `[training]` options describe."""
        cluster = _cluster_of(settings)
        return cls(
            root=settings.local_dir / "slurm",
            inherit=settings.local_env,
            cluster=cluster,
            queue=shared_queue(cluster),
        )

    def _reader(self, run: RunRef) -> AttemptReader:
        folder = self._folder(run)
        return AttemptReader(
            folder, AllocationBook(folder, self._cluster, self._queue), self._queue
        )

    def _read(self, run: RunRef, folder: AttemptFolder) -> AttemptState | None:
        return self._reader(run).read(folder)

    def _find(self, ref: InstanceRef) -> tuple[AttemptFolder, AttemptState] | None:
        return self._reader(ref.run).find(ref)

    # the port ---------------------------------------------------------------------------------------
    async def check(
        self,
        run: RunRef,
        job: ResolvedJob,
        firsts: Sequence[InstanceSpec],
    ) -> Sequence[Problem]:
        """Problems with remains of an earlier run of this id, and what `sbatch --test-only` refuses."""
        return await asyncio.to_thread(self._check, run, job, firsts)

    async def prepare(
        self, run: RunRef, job: ResolvedJob, *, attempt: AttemptId = FIRST_ATTEMPT
    ) -> Addresses:
        """Write down what allocations need; names stand for nodes until those are known.

        Raises LeaseLost for a generation that lost the run.
        """
        del attempt  # nodes differ, and where they do not, agents wait until a port is free
        return await asyncio.to_thread(self._prepare, run, job)

    async def create(self, instances: Sequence[InstanceSpec]) -> Sequence[Outcome]:
        """Have allocations start these attempts, and Slurm queue the allocations that are missing."""
        if not instances:
            return ()
        reader = self._reader(instances[0].ref.run)
        return await asyncio.to_thread(self._launcher.create, reader, instances)

    async def restart_process(self, instance: InstanceRef, spec: InstanceSpec) -> Outcome:
        """Let the agent that waits go on as the next attempt; returns when it has."""
        reader = self._reader(instance.run)
        return await asyncio.to_thread(self._launcher.restart, reader, instance, spec)

    async def end_kept(self, run: RunRef) -> None:
        """Order agents that stay to go, and end the run's allocations."""
        await asyncio.to_thread(self._end, self._reader(run), run, spared=())

    async def shell(self, instance: InstanceRef, command: Sequence[str], streams: Streams) -> int:
        """Run a command below an instance's agent, by `srun`, in its folder and environment."""
        words = await self.shell_words(instance, command, terminal=streams.terminal)
        return await run_in_terminal(
            words,
            descriptors=streams.descriptors,
            terminal=streams.terminal,
            env=environment_without_job(),
        )

    async def shell_words(
        self, instance: InstanceRef, command: Sequence[str], *, terminal: bool
    ) -> Sequence[str]:
        """Return the words of a command that runs another below an instance's agent, from a login node; raises InputError."""
        reader = self._reader(instance.run)
        return await asyncio.to_thread(
            shell_words, reader.find(instance), str(instance.key), command, terminal=terminal
        )

    async def watch(
        self, run: RunRef
    ) -> AsyncIterator[Snapshot | InstanceUpdate | InstanceRemoval]:
        """Yield a snapshot, then changes: those that agents tell within a moment, those of the queue later."""
        reader = self._reader(run)
        await asyncio.to_thread(reader.run.make)
        scanner = SlurmScanner(reader, self._queue)
        self._queue.hurry()
        await asyncio.to_thread(scanner.poll)
        yield Snapshot(instances=tuple(scanner.seen.values()))
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for change in await asyncio.to_thread(scanner.poll):
                yield change

    async def remove(self, run: RunRef) -> None:
        """End everything that lives, and its allocations; raises StillAlive."""
        await asyncio.to_thread(self._remove, run)

    async def cluster_view(
        self,
        job: ResolvedJob | None = None,
        *,
        with_free: bool = False,  # noqa: ARG002 - it is always told
    ) -> ClusterSnapshot:
        """Return the nodes that take jobs, those of the job's partition where it names one."""
        return await asyncio.to_thread(self._cluster_view, job)

    async def living_runs(
        self, controller: str, *, older_than: float
    ) -> Sequence[tuple[RunRef, str]]:
        """Return runs of a deployment that have jobs, each with these; raises RuntimeUnavailable."""
        return await asyncio.to_thread(
            find_living_runs, self._root, controller, self._reader, older_than=older_than
        )

    # inside, in threads -----------------------------------------------------------------------------
    def _check(
        self, run: RunRef, job: ResolvedJob, firsts: Sequence[InstanceSpec]
    ) -> Sequence[Problem]:
        about = read_json(RunFolder(self._root, run.uid).about)
        problems = []
        if about is not None and (
            run.submitted_at is None or about.get("submitted_at") != run.submitted_at
        ):
            problems.append(
                Problem(
                    code="conflict",
                    field="run_id",
                    value=run.uid,
                    message=f"an earlier run of this id has left its folder: {self._root / run.uid}",
                    hint="take another run id, or delete that folder",
                )
            )
        try:
            return [*problems, *find_refusals(self._cluster, job, firsts)]
        except InputError as error:  # there is no Slurm
            return [*problems, *error.problems]

    def _prepare(self, run: RunRef, job: ResolvedJob) -> Addresses:
        with self._owned_folder(run, job, self._about(job)) as folder:
            ports = self._ports(folder, job)
        return {
            role.name: tuple(
                Address(host=host_name(role.name, index, run.uid), ports=each)
                for index, each in enumerate(ports[role.name])
            )
            for role in job.roles
        }

    @staticmethod
    def _about(job: ResolvedJob) -> dict[str, Any]:
        gang = {
            role: {"component": asdict(component), "count": count}
            for role, (component, count) in gang_components(job).items()
        }
        return {
            "deadline_seconds": job.active_deadline_seconds,
            "options": dict(job.runtime_options),
            "gang": gang,
        }

    @staticmethod
    def _ports(folder: RunFolder, job: ResolvedJob) -> dict[str, list[dict[str, int]]]:
        """Return role -> ports by index, each another one: instances may share a node."""
        known: dict[str, list[dict[str, int]]] = folder.port_book().get("all", {})
        taken = {port for team in known.values() for ports in team for port in ports.values()}
        number = zlib.crc32(folder.path.name.encode())
        for role in job.roles:
            team = known.setdefault(role.name, [])
            while len(team) < max(role.replicas, role.max_replicas or 0):
                mine = {}
                for name in role.ports:
                    while _LOWEST_PORT + number % _PORTS in taken:
                        number += 1
                    mine[name] = _LOWEST_PORT + number % _PORTS
                    taken.add(mine[name])
                team.append(mine)
        write_json(folder.ports, {"all": known})
        return known

    def _delete(
        self, instances: Sequence[InstanceRef], *, grace_seconds: float, dump_stacks: bool
    ) -> None:
        readers: dict[str, AttemptReader] = {}
        for ref in instances:
            reader = readers.setdefault(ref.run.uid, self._reader(ref.run))
            found = reader.find(ref)
            if found is None:
                continue
            folder, state = found
            order_delete(folder, state.uid, grace_seconds=grace_seconds, dump_stacks=dump_stacks)
            if not state.state:
                reader.give_up(folder, state)
        for reader in readers.values():
            self._cancel_unwanted(reader)

    def _cancel_unwanted(self, reader: AttemptReader) -> None:
        """Take allocations out of the queue that nothing was left in before they began."""
        unwanted = [
            each
            for each in reader.book
            if not each.started and not each.wanted and reader.book.phase(each) == "queued"
        ]
        if unwanted:
            reader.book.cancel(unwanted)

    # the end ----------------------------------------------------------------------------------------
    def _remove(self, run: RunRef) -> None:
        reader = self._reader(run)
        reader.run.make()
        # first of all: an agent that starts from here on sees it under its lock and leaves
        reader.run.bury(run.generation)
        self._end(reader, run, spared={AgentLiveness.STAYING})
        if any(state.life is AgentLiveness.STAYING for _, _, state in reader.each()):
            reader.run.note_what_stays(run.generation)

    def _end(
        self, reader: AttemptReader, run: RunRef, *, spared: Collection[AgentLiveness]
    ) -> None:
        """End every attempt that lives but those of such a life, and all allocations without one."""
        until = 0.0
        pause = 0.02
        while True:
            states = self._ordered_to_end(reader, spared)
            living = [each for each in states if not each.over]
            if not living:
                break
            if not until:
                grace = max(each.order.grace_seconds for each in living)
                until = time.monotonic() + grace + _REMOVE_SECONDS
            if time.monotonic() > until:
                break  # what our agents did not end, Slurm does
            time.sleep(pause)
            pause = min(pause * 1.5, 0.25)
        try:
            self._end_allocations(reader, run, spared)
        except RuntimeUnavailable as error:
            raise StillAlive(f"run {run.uid}: nobody knows of its jobs: {error}") from error

    @staticmethod
    def _ordered_to_end(
        reader: AttemptReader, spared: Collection[AgentLiveness]
    ) -> list[AttemptState]:
        found = []
        for _, folder, state in reader.each():
            if state.life in spared and not state.deleted:
                continue
            if not state.deleted:
                order_delete(folder, state.uid, grace_seconds=state.order.grace_seconds)
            if not state.state and not state.end:
                reader.give_up(folder, state)
            found.append(reader.settle(folder, reader.read(folder) or state))
        return found

    def _end_allocations(
        self, reader: AttemptReader, run: RunRef, spared: Collection[AgentLiveness]
    ) -> None:
        """Cancel what is left, and return when Slurm says that it is over."""
        kept = {
            placed[0].key
            for _, folder, state in reader.each()
            if state.life in spared and (placed := reader.placement(folder, state.uid))
        }
        reader.book.resolve_unsure()
        until = time.monotonic() + _CANCEL_SECONDS
        pause = 0.1
        while True:
            # those that have begun go by themselves now, as the run is buried: no request is needed for them
            left = [each for each in reader.book if each.job and not each.ended]
            left = [each for each in left if each.key not in kept]
            if left and (pause > 1.0 or any(not each.started for each in left)):
                alive = {each.key for each in reader.book.living()}
                left = [each for each in left if each.key in alive]
                reader.book.cancel(left)
            if not left:
                return
            if time.monotonic() > until:
                jobs = ", ".join(each.job for each in left)
                states = [describe(each) for _, _, each in reader.each() if not each.over]
                raise StillAlive(f"run {run.uid}: Slurm jobs {jobs} live; {'; '.join(states)}")
            time.sleep(pause)
            pause = min(pause * 1.5, 5.0)

    def _cluster_view(self, job: ResolvedJob | None) -> ClusterSnapshot:
        options = AllocationOptions.from_document({} if job is None else job.runtime_options)
        return ClusterSnapshot(nodes=self._cluster.nodes(options.partition))


def _cluster_of(settings: Settings) -> CommandCluster | RestCluster:
    """Return what is asked of Slurm: its commands, or the slurmrestd that the settings name."""
    if not settings.slurm_rest_url:
        return CommandCluster()
    from airflow_training.runtimes.slurm.rest import RestCluster

    return RestCluster(
        url=settings.slurm_rest_url,
        user=settings.slurm_rest_user or user_name(),
        token_file=settings.slurm_rest_token_file,
    )
