"""Folders of living instances that somebody deletes."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.contracts.runtime import JOB, Harness, watching
from tests.runtimes.local_runs import agent_pid, alive, attempt_folder
from tests.runtimes.local_trees import kill_and_wait, run_hydra, start_sleeper
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e


async def test_an_agent_whose_folder_was_deleted_ends_itself(
    harness: Harness, tmp_path: Path
) -> None:
    pids = await run_hydra(harness, tmp_path)
    folder = attempt_folder(tmp_path, harness, "sleeper")
    agent = agent_pid(folder)
    shutil.rmtree(tmp_path / harness.run.uid)
    wait_until(lambda: not alive(agent))
    assert not any(alive(pid) for pid in pids)


@pytest.mark.parametrize("agent", ["alive", "stopped", "dead"])
async def test_nothing_starts_beside_what_lost_its_folder(
    harness: Harness, tmp_path: Path, agent: str
) -> None:
    """Somebody deletes the folder of a running instance; the mark of its processes is left."""
    pids = await run_hydra(harness, tmp_path)
    pid = agent_pid(attempt_folder(tmp_path, harness, "sleeper"))
    if agent == "stopped":
        os.kill(pid, signal.SIGSTOP)
    shutil.rmtree(tmp_path / harness.run.uid)
    if agent == "dead":
        kill_and_wait(pid)
    unprepared = (await harness.runtime.create([harness.spec("sleeper", attempt=1)]))[0]
    assert unprepared.result == "refused"
    await harness.runtime.prepare(harness.run, JOB)
    made = (await harness.runtime.create([harness.spec("sleeper", attempt=1)]))[0]
    assert made.result == "created"
    assert [each for each in (pid, *pids) if alive(each)] == []


async def test_an_instance_is_gone_when_its_processes_are_not_when_its_folder_is(
    harness: Harness, tmp_path: Path
) -> None:
    async with watching(harness.runtime, harness.run) as seen:
        pids = await run_hydra(harness, tmp_path)
        await seen.state("sleeper", 0, "running")
        shutil.rmtree(tmp_path / harness.run.uid)
        await seen.gone("sleeper", 0)
        assert not any(alive(pid) for pid in pids)


async def test_a_run_without_its_folder_is_removed_with_all_that_lives(
    harness: Harness, tmp_path: Path
) -> None:
    pids = await run_hydra(harness, tmp_path)
    shutil.rmtree(tmp_path / harness.run.uid)
    await harness.runtime.remove(harness.run)
    assert not any(alive(pid) for pid in pids)


async def test_processes_of_others_are_left_alone_when_a_folder_is_gone(
    harness: Harness, tmp_path: Path
) -> None:
    await harness.runtime.create([harness.spec("sleeper"), harness.spec("quick", held=True)])
    staying = attempt_folder(tmp_path, harness, "quick")
    other = {"TRAINING_INSTANCE_DIR": str(tmp_path / f"{harness.run.uid}0" / "w-0" / "attempt-0")}
    innocent = start_sleeper(**other)
    try:
        shutil.rmtree(tmp_path / harness.run.uid / "sleeper-0")
        made = (await harness.runtime.create([harness.spec("sleeper", attempt=1)]))[0]
        assert made.result == "created"
        assert innocent.poll() is None
        assert alive(agent_pid(staying))
    finally:
        innocent.kill()
        innocent.wait()
