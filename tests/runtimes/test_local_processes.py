"""What only real processes can show: whole trees, killed agents and commands."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from airflow_training.agent.files import read_json
from airflow_training.agent.proc import descendants
from airflow_training.runtimes.local import watch
from tests.contracts.runtime import Harness, watching
from tests.runtimes.local_runs import agent_pid, alive, attempt_folder, python_script
from tests.runtimes.local_trees import HYDRA, kill_and_wait, observe, run_hydra
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e


def parent_and_session(pid: int) -> tuple[int, int]:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1]), int(fields[3])


def zombies() -> set[str]:
    """Return the pids of this process's children that nobody has waited for."""
    command = ["ps", "--ppid", str(os.getpid()), "-o", "stat=,pid="]
    shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return {line.split()[1] for line in shown.splitlines() if line.startswith("Z")}


async def test_delete_ends_the_whole_tree_also_what_hides(harness: Harness, tmp_path: Path) -> None:
    pids = await run_hydra(harness, tmp_path)
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.delete([harness.ref("sleeper")], grace_seconds=0.2)
        await seen.gone("sleeper", 0)
        assert not any(alive(pid) for pid in pids)


async def test_the_grace_is_kept_by_those_who_use_it(harness: Harness, tmp_path: Path) -> None:
    polite = """
import os, signal, sys, time
def bye(*_):
    time.sleep(0.3)
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, bye)
print("ready", flush=True)
time.sleep(3600)
"""
    await harness.runtime.create([harness.spec("sleeper", command=python_script(polite))])
    log = attempt_folder(tmp_path, harness, "sleeper").log
    wait_until(lambda: b"ready" in log.read_bytes())
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.delete([harness.ref("sleeper")], grace_seconds=20)
        await seen.state("sleeper", 0, "terminating")
        await seen.gone("sleeper", 0)
    assert log.read_bytes() == b"ready\nsaved\n"


async def test_what_a_command_leaves_running_ends_with_it(harness: Harness, tmp_path: Path) -> None:
    leaves = HYDRA.replace(
        'linger("main.pid")',
        """
while not os.path.exists(os.path.join(os.environ["TRAINING_INSTANCE_DIR"], "orphan.pid")):
    time.sleep(0.01)
""",
    )
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([harness.spec("sleeper", command=python_script(leaves))])
        await seen.state("sleeper", 0, "succeeded")
        orphan = attempt_folder(tmp_path, harness, "sleeper").path / "orphan.pid"
        assert not alive(int(orphan.read_text()))


async def test_a_killed_agent_takes_everything_along_and_is_told_as_failed(
    harness: Harness, tmp_path: Path
) -> None:
    pids = await run_hydra(harness, tmp_path)
    async with watching(harness.runtime, harness.run) as seen:
        os.kill(agent_pid(attempt_folder(tmp_path, harness, "sleeper")), signal.SIGKILL)
        found = await seen.state("sleeper", 0, "failed")
        assert found.reason == "AgentLost"
        assert not any(alive(pid) for pid in pids)
        again = await harness.runtime.create([harness.spec("sleeper", attempt=1)])
        assert again[0].result == "created"


async def test_a_killed_agent_counts_as_ended_when_it_was_last_heard_of(
    harness: Harness, tmp_path: Path
) -> None:
    """Not when somebody looked again: until then nobody knows what it used."""
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([harness.spec("sleeper")])
        await seen.state("sleeper", 0, "running")
    folder = attempt_folder(tmp_path, harness, "sleeper")
    kill_and_wait(agent_pid(folder))
    an_hour_ago = time.time() - 3600
    for path in (folder.state, folder.log, folder.progress, folder.environment):
        if path.exists():
            os.utime(path, (an_hour_ago, an_hour_ago))
    found = await observe(harness)
    assert found.reason == "AgentLost"
    assert an_hour_ago <= (found.finished_at or 0) < an_hour_ago + 60


async def test_a_killed_agent_is_not_doubled_when_nobody_watched(
    harness: Harness, tmp_path: Path
) -> None:
    pids = await run_hydra(harness, tmp_path)
    kill_and_wait(agent_pid(attempt_folder(tmp_path, harness, "sleeper")))
    again = await harness.runtime.create([harness.spec("sleeper", attempt=1)])
    assert again[0].result == "created"
    assert not any(alive(pid) for pid in pids)


async def test_a_command_does_not_outlive_its_agent_even_without_a_controller(
    harness: Harness, tmp_path: Path
) -> None:
    await harness.runtime.create([harness.spec("sleeper")])
    folder = attempt_folder(tmp_path, harness, "sleeper")
    wait_until(lambda: (read_json(folder.state) or {})["phase"] == "running")
    state = read_json(folder.state)
    assert state is not None
    kill_and_wait(state["agent"]["pid"])
    wait_until(lambda: not alive(state["child"]["pid"]))


async def test_a_stopped_agent_is_killed_in_the_end(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_training.runtimes.local.recovery._IMPATIENCE_SECONDS", 0.3)
    monkeypatch.setattr("airflow_training.runtimes.local.watch._LOOK_SECONDS", 0.3)
    pids = await run_hydra(harness, tmp_path)
    os.kill(agent_pid(attempt_folder(tmp_path, harness, "sleeper")), signal.SIGSTOP)
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.delete([harness.ref("sleeper")], grace_seconds=0)
        await seen.gone("sleeper", 0)
        assert not any(alive(pid) for pid in pids)


async def test_an_agent_that_gets_a_term_ends_its_tree_as_a_failure(
    harness: Harness, tmp_path: Path
) -> None:
    pids = await run_hydra(harness, tmp_path)
    async with watching(harness.runtime, harness.run) as seen:
        os.kill(agent_pid(attempt_folder(tmp_path, harness, "sleeper")), signal.SIGTERM)
        found = await seen.state("sleeper", 0, "failed")
        assert found.reason == "Terminated"
        assert not any(alive(pid) for pid in pids)


async def test_signals_reach_the_command(harness: Harness, tmp_path: Path) -> None:
    listener = """
import signal, sys, time
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(7))
print("ready", flush=True)
time.sleep(3600)
"""
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([harness.spec("sleeper", command=python_script(listener))])
        folder = attempt_folder(tmp_path, harness, "sleeper")
        wait_until(lambda: b"ready" in folder.log.read_bytes())
        os.kill(agent_pid(folder), signal.SIGUSR1)
        await seen.state("sleeper", 0, "failed", exit_code=7)


async def test_a_killed_command_is_told_with_its_signal(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for look in ("_LOOK_SECONDS", "_PROGRESS_SECONDS"):  # it is told, not found
        monkeypatch.setattr(watch, look, 3600.0)
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([harness.spec("sleeper")])
        await seen.state("sleeper", 0, "running")
        state = read_json(attempt_folder(tmp_path, harness, "sleeper").state)
        assert state is not None
        os.kill(state["child"]["pid"], signal.SIGKILL)
        found = await seen.state("sleeper", 0, "failed")
        assert (found.signal, found.exit_code, found.reason) == (9, 137, "Error")


async def test_agents_belong_to_nobody_and_leave_no_zombies(
    harness: Harness, tmp_path: Path
) -> None:
    before = zombies()  # of other tests
    await harness.runtime.create([harness.spec("sleeper")])
    pid = agent_pid(attempt_folder(tmp_path, harness, "sleeper"))
    parent, session = parent_and_session(pid)
    assert parent != os.getpid()
    assert session not in (os.getsid(0), 0)
    assert pid not in descendants(os.getpid())
    assert zombies() <= before
