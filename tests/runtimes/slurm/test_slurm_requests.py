"""How often Slurm's daemons are asked where nothing changes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from airflow_training.runtimes.slurm.cluster import CommandCluster
from airflow_training.runtimes.slurm.runtime import SlurmRuntime
from airflow_training.runtimes.slurm.transport import CommandResult, LocalCommands
from tests.contracts.runtime import watching
from tests.runtimes.slurm.test_slurm_faults import run_of
from tests.waiting import until

pytestmark = pytest.mark.soak

RUNS = 5


@dataclass(frozen=True, slots=True)
class _Counted(LocalCommands):
    """The commands of this machine, and when each was given."""

    asked: list[float] = field(default_factory=list, compare=False)

    def run(
        self, words: Sequence[str], *, given: str = "", keep: Sequence[int] = ()
    ) -> CommandResult:
        self.asked.append(time.monotonic())
        return LocalCommands.run(self, words, given=given, keep=keep)


async def test_a_minute_without_a_change_takes_two_requests_for_all_runs(lab, tmp_path):
    commands = _Counted()
    runtime = SlurmRuntime(root=tmp_path, cluster=CommandCluster(commands))
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(RUNS):
            harness = await stack.enter_async_context(run_of(lab, tmp_path, runtime=runtime))
            seen = await stack.enter_async_context(watching(runtime, harness.run))
            await runtime.create([harness.spec("sleeper"), harness.spec("sleeper", 1)])
            for index in (0, 1):
                await seen.state("sleeper", index, "running")
        # quiet: the pause between two looks has grown to its longest
        await until(lambda: time.monotonic() - commands.asked[-1] > 20)
        began = time.monotonic()
        await asyncio.sleep(60)
        assert sum(at >= began for at in commands.asked) <= 2
