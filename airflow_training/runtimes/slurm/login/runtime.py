"""`LoginRuntime`: the port, asked of the `SlurmRuntime` on a login node."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Collection, Sequence

from airflow_training.control.attempts import FIRST_ATTEMPT, AttemptId
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob, RunRef
from airflow_training.errors import Problem
from airflow_training.runtimes.port import (
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
from airflow_training.runtimes.slurm.capabilities import LOGIN_CAPABILITIES
from airflow_training.runtimes.slurm.login.channel import LoginChannel
from airflow_training.runtimes.slurm.login.messages import WATCH

__all__ = ["LoginRuntime"]


class LoginRuntime:
    """Instances are steps of allocations of a cluster whose folders this machine does not see."""

    name = "slurm"
    capabilities = LOGIN_CAPABILITIES

    def __init__(self, channel: LoginChannel) -> None:
        self._channel = channel

    async def check(
        self, run: RunRef, job: ResolvedJob, firsts: Sequence[InstanceSpec]
    ) -> Sequence[Problem]:
        """Problems with remains of an earlier run of this id, and what `sbatch --test-only` refuses."""
        there = await self._channel.localize(job)
        found: Sequence[Problem] = await self._channel.call("check", run, there, firsts)
        return found

    async def prepare(
        self, run: RunRef, job: ResolvedJob, *, attempt: AttemptId = FIRST_ATTEMPT
    ) -> Addresses:
        """Write down there what allocations need; names stand for nodes until those are known.

        Raises LeaseLost for a generation that lost the run.
        """
        there = await self._channel.localize(job)
        found: Addresses = await self._channel.call("prepare", run, there, attempt=attempt)
        return found

    async def create(self, instances: Sequence[InstanceSpec]) -> Sequence[Outcome]:
        """Have allocations start these attempts, and Slurm queue the allocations that are missing."""
        found: Sequence[Outcome] = await self._channel.call("create", instances)
        return found

    async def release(self, instances: Sequence[InstanceRef], answer: ReleaseAnswer) -> None:
        """Write the answer where the agents wait for it."""
        await self._channel.call("release", instances, answer)

    async def stop_process(
        self,
        instances: Sequence[InstanceRef],
        *,
        grace_seconds: float,
        dump_stacks: bool = False,
    ) -> None:
        """Order agents to end their process trees, and to stay."""
        await self._channel.call(
            "stop_process", instances, grace_seconds=grace_seconds, dump_stacks=dump_stacks
        )

    async def finish_early(self, instances: Sequence[InstanceRef], *, grace_seconds: float) -> None:
        """Order agents to end their commands as ones that have done all."""
        await self._channel.call("finish_early", instances, grace_seconds=grace_seconds)

    async def await_peers(
        self, instances: Sequence[InstanceRef], *, seconds: float, number: int
    ) -> None:
        """Tell agents that their scripts wait for others."""
        await self._channel.call("await_peers", instances, seconds=seconds, number=number)

    async def restart_process(self, instance: InstanceRef, spec: InstanceSpec) -> Outcome:
        """Let the agent that waits go on as the next attempt; returns when it has."""
        found: Outcome = await self._channel.call("restart_process", instance, spec)
        return found

    async def dismiss(self, instances: Sequence[InstanceRef]) -> None:
        """Let agents that wait go."""
        await self._channel.call("dismiss", instances)

    async def keep(self, instance: InstanceRef, *, seconds: float) -> None:
        """Order an agent that waits to stay; its place stays with it."""
        await self._channel.call("keep", instance, seconds=seconds)

    async def end_kept(self, run: RunRef) -> None:
        """Order agents that stay to go, and end the run's allocations."""
        await self._channel.call("end_kept", run)

    async def shell(self, instance: InstanceRef, command: Sequence[str], streams: Streams) -> int:
        """Run a command below an instance's agent, by `srun` of the login node, in its folder and environment."""
        words: Sequence[str] = await self._channel.call(
            "shell_words", instance, command, terminal=streams.terminal
        )
        return await self._channel.run_in_terminal(words, streams)

    async def delete(
        self,
        instances: Sequence[InstanceRef],
        *,
        grace_seconds: float,
        dump_stacks: bool = False,
    ) -> None:
        """Order agents to end their process trees."""
        await self._channel.call(
            "delete", instances, grace_seconds=grace_seconds, dump_stacks=dump_stacks
        )

    async def watch(
        self, run: RunRef
    ) -> AsyncIterator[Snapshot | InstanceUpdate | InstanceRemoval]:
        """Yield a snapshot, then changes, as they are seen there; raises RuntimeUnavailable where the login is lost."""
        async with contextlib.aclosing(self._channel.follow(WATCH, run)) as changes:
            async for change in changes:
                yield change

    async def read_log(
        self, instance: InstanceRef, cursor: Cursor, *, limit: int, attempt: int | None = None
    ) -> LogChunk:
        """Return bytes of the attempt's log file there; offsets are those of the file."""
        found: LogChunk = await self._channel.call(
            "read_log", instance, cursor, limit=limit, attempt=attempt
        )
        return found

    async def tail_log(self, instance: InstanceRef, *, limit: int) -> bytes:
        """Return the last bytes of the attempt's log file there."""
        found: bytes = await self._channel.call("tail_log", instance, limit=limit)
        return found

    async def collect_logs(
        self, run: RunRef, *, only: Collection[InstanceKey] | None = None
    ) -> None:
        """Do nothing: logs are files there already."""
        del run, only

    async def remove(self, run: RunRef) -> None:
        """End everything that lives, and its allocations; raises StillAlive."""
        await self._channel.call("remove", run)

    async def cluster_view(
        self, job: ResolvedJob | None = None, *, with_free: bool = False
    ) -> ClusterSnapshot:
        """Return the nodes that take jobs, those of the job's partition where it names one."""
        there = None if job is None else await self._channel.localize(job)
        found: ClusterSnapshot = await self._channel.call(
            "cluster_view", there, with_free=with_free
        )
        return found

    async def due_runs(self) -> Sequence[str]:
        """Return uids of runs there that may have outlived their `ttlSecondsAfterFinished`."""
        found: Sequence[str] = await self._channel.call("due_runs")
        return found

    async def look_again(self, uid: str, *, seconds: float) -> None:
        """Leave a run out of `due_runs` for so long."""
        await self._channel.call("look_again", uid, seconds=seconds)

    async def quarantine(self, run: RunRef) -> None:
        """Take a removed run's folder away; raises StillAlive for one that is not ours or lives."""
        await self._channel.call("quarantine", run)

    async def delete_quarantined(self, uid: str) -> None:
        """Delete what was set aside; raises OSError where something of `uid` stays."""
        await self._channel.call("delete_quarantined", uid)

    async def living_runs(
        self, controller: str, *, older_than: float
    ) -> Sequence[tuple[RunRef, str]]:
        """Return runs of a deployment that have jobs there, each with these; raises RuntimeUnavailable."""
        found: Sequence[tuple[RunRef, str]] = await self._channel.call(
            "living_runs", controller, older_than=older_than
        )
        return found
