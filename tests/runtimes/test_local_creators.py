"""Creators of instances that are killed, or race each other."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from airflow_training.agent.files import read_json
from airflow_training.agent.proc import marked_processes
from tests.contracts.runtime import Harness, watching
from tests.runtimes.creators import Creator, let_go
from tests.runtimes.local_runs import agent_pid, alive, attempt_folder, python_script
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e


def agents_of(folder: Path) -> set[int]:
    """Return the living processes that were started for an attempt's folder.

    A child that an agent has forked and that has not become its command yet looks like its agent.
    """
    found = set()
    for name in os.listdir("/proc"):  # noqa: PTH208  # thousands of entries: no Path objects
        if name.isdigit() and str(folder) in command_line_of(int(name)) and alive(int(name)):
            found.add(int(name))
    return {pid for pid in found if parent_of(pid) not in found}


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def command_line_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


async def test_an_instance_outlives_its_killed_creator_and_is_adopted(
    harness: Harness, tmp_path: Path
) -> None:
    creator = Creator(tmp_path, harness.run)
    let_go(creator)
    [(result, uid)] = creator.answer()
    creator.end()
    assert result == "created"
    adopted = (await harness.runtime.create([harness.spec("sleeper")]))[0]
    assert (adopted.result, adopted.ref.uid) == ("adopted", uid)
    async with watching(harness.runtime, harness.run) as seen:
        await seen.state("sleeper", 0, "running", uid=uid)


STEPS = """
import itertools, os, time
for step in itertools.count():
    print(os.getpid(), step, flush=True)
    time.sleep(0.02)
"""


async def test_killing_the_creators_whole_process_group_costs_no_step(
    harness: Harness, tmp_path: Path
) -> None:
    """As a service manager ends a triggerer: everything it started and can name."""
    creator = Creator(tmp_path, harness.run, {"command": python_script(STEPS)})
    let_go(creator)
    assert creator.answer()[0][0] == "created"
    log = attempt_folder(tmp_path, harness, "sleeper").log

    def steps() -> list[list[int]]:
        return [[int(word) for word in line.split()] for line in log.read_text().splitlines()[:-1]]

    wait_until(lambda: len(steps()) > 5)
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGKILL):
        os.killpg(creator.process.pid, number)
    creator.end()
    assert alive(agent_pid(attempt_folder(tmp_path, harness, "sleeper")))
    before = len(steps())
    wait_until(lambda: len(steps()) > before + 20)
    assert [step for _, step in steps()] == list(range(len(steps())))
    assert len({pid for pid, _ in steps()}) == 1


async def test_a_deadline_needs_no_controller(harness: Harness, tmp_path: Path) -> None:
    creator = Creator(tmp_path, harness.run, {"deadline_seconds": 0.5})
    let_go(creator)
    creator.answer()
    creator.end()
    folder = attempt_folder(tmp_path, harness, "sleeper")
    pid = agent_pid(folder)
    wait_until(folder.exit.exists)
    assert (read_json(folder.exit) or {})["reason"] == "DeadlineExceeded"
    wait_until(lambda: not alive(pid))


async def test_of_two_racing_creators_one_adopts(harness: Harness, tmp_path: Path) -> None:
    creators = [Creator(tmp_path, harness.run) for _ in range(2)]
    try:
        let_go(*creators)
        answers = [each for creator in creators for each in creator.answer()]
    finally:
        for creator in creators:
            creator.end()
    assert sorted(result for result, _ in answers) == ["adopted", "created"]
    assert len({uid for _, uid in answers}) == 1
    assert len(agents_of(attempt_folder(tmp_path, harness, "sleeper").path)) == 1


async def test_creators_killed_at_any_moment_leave_one_instance(
    harness: Harness, tmp_path: Path
) -> None:
    for delay in (0.0, 0.02, 0.05, 0.08, 0.12):
        creator = Creator(tmp_path, harness.run)
        let_go(creator)
        await asyncio.sleep(delay)
        creator.end()
    async with watching(harness.runtime, harness.run) as seen:
        outcome = (await harness.runtime.create([harness.spec("sleeper")]))[0]
        assert outcome.result in ("created", "adopted")
        await seen.state("sleeper", 0, "running", uid=outcome.ref.uid)
    folder = attempt_folder(tmp_path, harness, "sleeper").path
    assert len(marked_processes([f"TRAINING_INSTANCE_DIR={folder}"])) == 1
    # an agent that somebody started before he was killed may still wait a moment for the lock
    wait_until(lambda: len(agents_of(folder)) == 1)
