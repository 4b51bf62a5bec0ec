"""What only real processes can show: whole trees, killed agents, killed creators, forged records."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from airflow_training.agent.files import AttemptFolder, read_json, write_json
from airflow_training.agent.proc import boot_id, descendants, marked_processes, start_time
from airflow_training.control.observations import Observation
from airflow_training.errors import StillAlive
from airflow_training.runtimes.local import watch
from airflow_training.runtimes.local.paths import is_locked
from airflow_training.runtimes.local.runtime import LocalRuntime
from airflow_training.runtimes.port import Cursor, ReleaseAnswer
from tests.contracts.runtime import JOB, Harness, watching
from tests.runtimes.creators import Creator, let_go
from tests.runtimes.local_runs import (
    agent_pid,
    alive,
    attempt_folder,
    local_harness,
    python_script,
    stopped,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

# A command that leaves behind whatever a program can leave: a child in a session of its own, an
# orphan of two forks, all of them deaf to TERM; it writes their pids to a file.
HYDRA = """
import os, signal, sys, time
def linger(name):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with open(os.path.join(os.environ["TRAINING_INSTANCE_DIR"], name + ".tmp"), "w") as f:
        f.write(str(os.getpid()))
    os.rename(f.name, f.name[:-4])
    time.sleep(3600)
if os.fork() == 0:
    os.setsid()
    linger("own-session.pid")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        linger("orphan.pid")
    os._exit(0)
linger("main.pid")
"""


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    async with local_harness(tmp_path) as harness:
        yield harness


def pids_of(folder: Path) -> list[int]:
    names = ("own-session.pid", "orphan.pid", "main.pid")
    wait_until(lambda: all((folder / name).exists() for name in names))
    return [int((folder / name).read_text()) for name in names]


def kill_and_wait(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not alive(pid))


def start_sleeper(**environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "3600"], env={**os.environ, **environment})


def parent_and_session(pid: int) -> tuple[int, int]:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1]), int(fields[3])


def zombies() -> set[str]:
    """Return the pids of this process's children that nobody has waited for."""
    command = ["ps", "--ppid", str(os.getpid()), "-o", "stat=,pid="]
    shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return {line.split()[1] for line in shown.splitlines() if line.startswith("Z")}


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


def start_agent_by_hand(local_dir: Path, folder: Path) -> str:
    """Return what an agent answers that nobody's lock has announced."""
    program = next((local_dir / ".agent").glob("*.pyz"))
    command = [sys.executable, "-I", "-S", str(program), "start", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return str(json.loads(done.stdout)["result"])


async def run_hydra(harness: Harness, tmp_path: Path) -> list[int]:
    await harness.runtime.create([harness.spec("sleeper", command=python_script(HYDRA))])
    return pids_of(attempt_folder(tmp_path, harness, "sleeper").path)


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


# other processes ---------------------------------------------------------------------------------
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


# records that lie --------------------------------------------------------------------------------
async def observe(harness: Harness) -> Observation:
    async with watching(harness.runtime, harness.run) as seen:
        return seen.now["sleeper", 0]


async def test_a_reused_pid_is_never_mistaken(harness: Harness, tmp_path: Path) -> None:
    """After the agent is gone its number belongs to an innocent process."""
    await harness.runtime.create([harness.spec("sleeper")])
    folder = attempt_folder(tmp_path, harness, "sleeper")
    kill_and_wait(agent_pid(folder))
    innocent = start_sleeper()
    try:
        state = read_json(folder.state)
        assert state is not None
        for who in ("agent", "child"):  # the number of the innocent, the start time of the dead
            state[who]["pid"] = innocent.pid
        write_json(folder.state, state)
        await harness.runtime.delete([harness.ref("sleeper")], grace_seconds=0)
        await harness.runtime.remove(harness.run)
        assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()


async def test_a_number_that_was_given_away_again_is_no_agent(
    harness: Harness, tmp_path: Path
) -> None:
    await harness.runtime.create([harness.spec("sleeper")])
    folder = attempt_folder(tmp_path, harness, "sleeper")
    record = read_json(folder.state)
    assert record is not None
    kill_and_wait(record["agent"]["pid"])
    write_json(folder.state, {**record, "agent": {**record["agent"], "pid": os.getpid()}})
    found = await observe(harness)
    write_json(folder.state, record)
    assert (found.state, found.reason) == ("failed", "AgentLost")


@pytest.mark.parametrize(
    ("forged", "state", "reason"),
    [
        pytest.param({"boot_id": "another"}, "failed", "NodeLost", id="rebooted"),
        pytest.param({"boot_id": "x", "host": "far"}, "unknown", "OtherHost", id="other-machine"),
        pytest.param({"pid_ns": 1, "host": "far"}, "unknown", "OtherHost", id="other-container"),
        pytest.param({"pid_ns": 1}, "failed", "AgentLost", id="same-container-restarted"),
    ],
)
async def test_what_a_record_from_elsewhere_means(
    harness: Harness, tmp_path: Path, forged: dict[str, object], state: str, reason: str
) -> None:
    await harness.runtime.create([harness.spec("sleeper")])
    folder = attempt_folder(tmp_path, harness, "sleeper")
    kill_and_wait(agent_pid(folder))
    wait_until(lambda: not is_locked(folder.lock))  # a child that it had just forked holds it too
    record = read_json(folder.state)
    assert record is not None
    write_json(folder.state, {**record, "agent": {**record["agent"], **forged}})
    found = await observe(harness)
    assert (found.state, found.reason) == (state, reason)
    if state == "unknown":
        assert "far" in found.message
        refused = (await harness.runtime.create([harness.spec("sleeper", attempt=1)]))[0]
        assert refused.result == "refused"
        assert "far" in refused.message
        with pytest.raises(StillAlive, match="far"):
            await harness.runtime.remove(harness.run)
        write_json(folder.state, record)


async def test_the_lock_of_a_living_agent_in_another_container_counts(
    harness: Harness, tmp_path: Path
) -> None:
    await harness.runtime.create([harness.spec("sleeper")])
    folder = attempt_folder(tmp_path, harness, "sleeper")
    with stopped(agent_pid(folder)):  # or it may write its own record over this one
        record = read_json(folder.state)
        assert record is not None
        write_json(folder.state, {**record, "agent": {**record["agent"], "pid_ns": 1}})
        found = await observe(harness)
        write_json(folder.state, record)
    assert found.state == "unknown"
    assert record["agent"]["host"] in found.message


def test_a_process_is_known_by_more_than_its_number() -> None:
    assert start_time(os.getpid()) == start_time(os.getpid()) is not None
    assert start_time(2**22 + 1) is None
    assert len(boot_id()) == 36


# agents by themselves ------------------------------------------------------------------------------
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


async def test_an_agent_needs_its_archive_no_more_once_it_runs(
    harness: Harness, tmp_path: Path
) -> None:
    pids = await run_hydra(harness, tmp_path)
    held = attempt_folder(tmp_path, harness, "quick")
    await harness.runtime.create([harness.spec("quick", held=True)])
    shutil.rmtree(tmp_path / ".agent")
    async with watching(harness.runtime, harness.run) as seen:
        found = await seen.state("sleeper", 0, "running")
        wait_until(attempt_folder(tmp_path, harness, "sleeper").environment.exists)
        await harness.runtime.delete([harness.ref("sleeper")], grace_seconds=0.2, dump_stacks=True)
        await seen.gone("sleeper", 0)
        await harness.runtime.release([harness.ref("quick")], ReleaseAnswer(kind="Confirmation"))
        await seen.state("quick", 0, "succeeded")
    assert not any(alive(pid) for pid in pids)
    ended = read_json(attempt_folder(tmp_path, harness, "sleeper").exit)
    assert ended is not None
    assert (ended["uid"], ended["reason"]) == (found.uid, "Deleted"), "written by its agent"
    assert not (held.control / "agent-error.txt").exists()


async def test_a_release_is_found_without_being_told(harness: Harness, tmp_path: Path) -> None:
    made = await harness.runtime.create([harness.spec("quick", held=True)])
    async with watching(harness.runtime, harness.run) as seen:
        answer = {"uid": made[0].ref.uid, "kind": "Confirmation", "addresses": {}}
        write_json(attempt_folder(tmp_path, harness, "quick").release, answer)
        await seen.state("quick", 0, "succeeded")


async def test_only_one_agent_can_live_per_instance(harness: Harness, tmp_path: Path) -> None:
    """Whoever starts it, and whatever the creators' lock says."""
    await harness.runtime.create([harness.spec("sleeper")])
    folder = attempt_folder(tmp_path, harness, "sleeper")
    assert start_agent_by_hand(tmp_path, folder.path) == "busy"


async def test_an_attempt_that_has_ended_is_not_run_again(harness: Harness, tmp_path: Path) -> None:
    """Its creator was stopped between the check and the start, and another was faster."""
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([harness.spec("quick")])
        await seen.state("quick", 0, "succeeded")
    folder = attempt_folder(tmp_path, harness, "quick")
    assert start_agent_by_hand(tmp_path, folder.path) == "busy"
    assert folder.log.read_bytes() == b"quick\n"


@pytest.mark.parametrize("fence", ["tombstone", "fence"])
async def test_an_agent_that_starts_late_sees_that_it_must_not(
    harness: Harness, tmp_path: Path, fence: str
) -> None:
    """Its creator was stopped between the check and the start."""
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([harness.spec("quick")])
        await seen.state("quick", 0, "succeeded")
    folder = attempt_folder(tmp_path, harness, "quick")
    folder.exit.unlink()
    folder.state.unlink()
    write_json(getattr(folder, fence), {"generation": 4})
    assert start_agent_by_hand(tmp_path, folder.path) == "refused"
    assert not folder.state.exists()


async def test_a_create_that_broke_down_is_continued(tmp_path: Path) -> None:
    async with local_harness(tmp_path) as harness:
        broken = LocalRuntime(local_dir=tmp_path, python="/nonexistent/python")
        failed = (await broken.create([harness.spec("quick")]))[0]
        assert failed.result == "error"
        assert "/nonexistent/python" in failed.message
        async with watching(harness.runtime, harness.run) as seen:
            assert seen.now == {}
            made = (await harness.runtime.create([harness.spec("quick")]))[0]
            assert made.result == "created"
            await seen.state("quick", 0, "succeeded")


async def test_one_program_starts_four_instances(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each start of Python would cost as much as all the rest."""
    specs = [harness.spec(kind, i) for kind in ("quick", "broken") for i in range(2)]
    started = []

    class Counted(subprocess.Popen[Any]):
        def __init__(self, command: Any, **options: Any) -> None:
            started.append(command)
            super().__init__(command, **options)

    monkeypatch.setattr(subprocess, "Popen", Counted)
    outcomes = await harness.runtime.create(specs)
    assert [o.result for o in outcomes] == ["created"] * 4
    assert len(started) == 1


async def test_the_log_holds_exactly_what_the_command_wrote(harness: Harness) -> None:
    text = "ä" * 1000
    script = f"import sys; print({text!r}); sys.stderr.write('err\\n')"
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([harness.spec("quick", command=python_script(script))])
        await seen.state("quick", 0, "succeeded")
    chunk = await harness.runtime.read_log(harness.ref("quick"), Cursor(offset=1990), limit=100)
    assert chunk.data == b"\xc3\xa4" * 5 + b"\nerr\n"
    assert chunk.end


# what a full disk, a clock and a busy machine do ---------------------------------------------------
async def test_an_end_that_cannot_be_written_now_is_written_later(
    harness: Harness, tmp_path: Path
) -> None:
    """As on a full disk: a training that succeeded must not be told as a lost agent."""
    go = tmp_path / "go"
    command = ("sh", "-c", f"while [ ! -e {go} ]; do sleep 0.01; done")
    await harness.runtime.create([harness.spec("quick", command=command)])
    folder = attempt_folder(tmp_path, harness, "quick")
    pid = agent_pid(folder)
    folder.exit.mkdir()  # nothing can be put in its place
    go.touch()
    wait_until(lambda: not descendants(pid))

    def was_touched(since: int) -> bool:
        return folder.control.stat().st_mtime_ns != since

    for _ in range(3):  # each try leaves its mark on the folder
        wait_until(partial(was_touched, folder.control.stat().st_mtime_ns))
    assert alive(pid)
    wait_until(lambda: not [*folder.control.glob("*.tmp")])  # it may be trying again right now
    folder.exit.rmdir()
    wait_until(lambda: not alive(pid))
    assert (read_json(folder.exit) or {})["reason"] == "Completed"


async def test_a_record_that_cannot_be_written_does_not_end_the_training(
    harness: Harness, tmp_path: Path
) -> None:
    go, output = tmp_path / "go", tmp_path / "models"
    command = ("sh", "-c", f"while [ ! -e {go} ]; do sleep 0.01; done")
    await harness.runtime.create([harness.spec("quick", command=command, output_uri=str(output))])
    folder = attempt_folder(tmp_path, harness, "quick")
    pid = agent_pid(folder)
    wait_until(lambda: (read_json(folder.state) or {}).get("phase") == "running")
    folder.state.rename(folder.control / "state.before")
    folder.state.mkdir()
    go.touch()  # from here on it wants to record that it uploads
    wait_until(lambda: not alive(pid))
    assert (read_json(folder.exit) or {})["reason"] == "Completed"
    folder.state.rmdir()
    (folder.control / "state.before").rename(folder.state)


async def test_a_clock_that_jumps_shortens_no_grace(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = tmp_path / "ready"
    command = (
        "sh",
        "-c",
        f"trap 'sleep 1; exit 0' TERM; touch {ready}; while :; do sleep 0.05; done",
    )
    await harness.runtime.create([harness.spec("sleeper", command=command)])
    folder = attempt_folder(tmp_path, harness, "sleeper")
    wait_until(ready.exists)
    await harness.runtime.delete([harness.ref("sleeper")], grace_seconds=20)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    async with watching(harness.runtime, harness.run) as seen:
        await seen.gone("sleeper", 0)
    assert (read_json(folder.exit) or {})["exit_code"] == 0


def open_descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def test_an_agent_keeps_no_descriptors_of_those_started_before_it(
    harness: Harness, tmp_path: Path
) -> None:
    await harness.runtime.create([harness.spec("sleeper", i) for i in range(4)])
    run = tmp_path / harness.run.uid
    pids = [agent_pid(AttemptFolder(run / f"sleeper-{i}" / "attempt-0.0.0")) for i in range(4)]
    # one that is just reading a file has one more for a moment; a leak stays
    wait_until(lambda: len({open_descriptors(pid) for pid in pids}) == 1)
