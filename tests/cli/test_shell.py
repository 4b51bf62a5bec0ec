"""A look inside: what stays of a job that has failed, and a shell in it, on this machine."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_training.agent import proc
from tests.cli.conftest import COMMAND, job_file
from tests.terminals import terminal, use_as_a_person
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.e2e

TRAIN = """
import os, sys, time
from pathlib import Path

index = int(os.environ["TRAINING_INDEX"])
Path("left-by-%d" % index).write_text("state of %d" % index)
Path("here-%d" % index).touch()
while len(list(Path().glob("here-*"))) < 2:
    time.sleep(0.01)
if index == 1:
    print("ValueError: this sample is empty", file=sys.stderr, flush=True)
    sys.exit(7)
time.sleep(600)
"""


@pytest.fixture
def ended(home: Path) -> Iterator[None]:
    """See to it that no agent outlives its test."""
    yield
    for index in (0, 1):
        for pid, start in agents(home, index):
            proc.kill_exactly(pid, start, 9)


def agents(home: Path, index: int) -> list[tuple[int, int]]:
    found = sorted(home.glob(f"training/*/worker-{index}/attempt-*/.agent/state.json"))
    told = [json.loads(path.read_text())["agent"] for path in found]
    return [(each["pid"], each["start_time"]) for each in told]


def lives(home: Path, index: int) -> bool:
    return any(proc.start_time(pid) == start for pid, start in agents(home, index))


def failing(seconds: float = 600, **spec: Any) -> Path:
    Path("train.py").write_text(TRAIN)
    restart = {"maxRestarts": 0, "keepFailedSeconds": seconds}
    command = [sys.executable, "train.py"]
    return job_file(Path("job.yaml"), ("worker", 2), command=command, restart=restart, **spec)


def test_the_instance_that_failed_first_can_be_looked_into(command, home, ended):
    done = command("run", str(failing()), "--run-id", "r", "-o", "json")
    assert done.code == 1
    document = done.json
    assert document["state"] == "Failed"
    kept = document["kept"]
    assert (kept["state"], kept["role"], kept["index"]) == ("stays", "worker", 1)
    assert kept["command"] in command("status", "r").stdout.replace("\n", " ")
    assert lives(home, 1)
    assert not lives(home, 0)

    told = command("shell", "r", "--", "sh", "-c", "cat left-by-1; echo $TRAINING_INDEX; exit 3")
    assert (told.stdout, told.code) == ("state of 11\n", 3)
    other = command("shell", "r", "--role", "worker", "--index", "0", "--", "true")
    assert (other.code, other.stdout) == (2, "")
    assert "nothing of worker-0 lives any more" in other.stderr

    (row,) = [each for each in command("status", "r", "-o", "json").json["usage"] if each["index"]]
    assert row["finished_at"] is None, "its place is still taken"

    killed = command("kill", "r")
    assert killed.code == 0, killed.stderr
    assert not lives(home, 1)
    status = command("status", "r", "-o", "json").json
    assert (status["state"], status["kept"]["state"]) == ("Failed", "ended")
    (row,) = [each for each in status["usage"] if each["index"]]
    assert row["finished_at"] is not None
    assert command("shell", "r", "--", "true").code == 2


def test_its_own_timer_ends_it_though_nobody_drives_the_run(background, command, home, ended):
    run = background("run", str(failing(seconds=2)), "--run-id", "r")
    run.until(lambda: any(home.glob("training/*/worker-1/attempt-*/.agent/exit.json")))
    run.kill()
    assert command("run", "--open").code == 1
    wait_until(lambda: not lives(home, 1), "its time is over")
    status = wait_until(
        lambda: (
            found
            if (found := command("status", "r", "-o", "json").json)["kept"]["state"] == "gone"
            else None
        ),
        "status says so",
    )
    assert status["kept"]["command"] is None


def test_a_sweep_ends_what_stays_and_a_clean_up_does_not(command, home, ended):
    path = failing(cleanPodPolicy="All")
    assert command("run", str(path), "--run-id", "r").code == 1
    assert lives(home, 1)
    looked = command("sweep", "--dry-run", "-o", "json").json["swept"]
    assert [each["why"] for each in looked] == ["its failed instance stays for a look inside"]
    swept = command("sweep", "-o", "json").json["swept"]
    assert [each["problem"] for each in swept] == [None]
    assert not lives(home, 1)
    assert command("sweep", "-o", "json").json["swept"] == []


def test_where_its_agent_is_gone_nothing_stays_and_that_is_said(background, command, home, ended):
    Path("train.py").write_text(
        "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nimport time; time.sleep(60)\n"
    )
    restart = {"maxRestarts": 0, "keepFailedSeconds": 600}
    path = job_file(Path("job.yaml"), command=[sys.executable, "train.py"], restart=restart)
    done = command("run", str(path), "--run-id", "r", "-o", "json")
    assert done.code == 1
    assert done.json["kept"]["state"] == "impossible"
    assert "AgentLost" in done.json["kept"]["why"]
    assert "look inside: worker-0 does not stay" in command("status", "r").stdout


def test_a_terminal_is_a_terminal_there(command, home, ended):
    assert command("run", str(failing()), "--run-id", "r").code == 1
    with terminal([*COMMAND, "shell", "r"]) as shell:
        shell.type(b"cp left-by-1 left\n")
        use_as_a_person(shell, text=b"state of 1")


def test_an_open_shell_holds_up_no_stop(background, command, home):
    Path("train.py").write_text("import time; print('up', flush=True); time.sleep(600)\n")
    path = job_file(Path("job.yaml"), command=[sys.executable, "train.py"])
    run = background("run", str(path), "--run-id", "r")
    run.until(
        lambda: any("up" in each.read_text() for each in home.rglob("log*") if each.is_file())
    )
    with terminal([*COMMAND, "shell", "r"]) as shell:
        shell.type(b"echo he''re; sleep 600\n")
        shell.read(b"here")
        assert command("kill", "r").code == 0
        assert shell.end() != 0
    assert "had to be killed" not in command("status", "r").stdout


RAW = """
import asyncio, sys
from airflow_training.runtimes.terminal import raw_terminal

async def main():
    with raw_terminal(0, resized=lambda *_: None):
        print("raw", flush=True)
        await asyncio.sleep(600)

try:
    asyncio.run(main())
except asyncio.CancelledError:
    sys.exit(9)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_it_leaves_the_terminal_as_it_was(number: signal.Signals):
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    with subprocess.Popen(
        [sys.executable, "-c", RAW], stdin=theirs, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"raw\n"
        assert termios.tcgetattr(theirs) != before
        process.send_signal(number)
        assert process.wait(PATIENCE) == 9
    assert termios.tcgetattr(theirs) == before
    os.close(theirs)
    os.close(ours)


def test_a_living_training_can_be_looked_into(background, command, home):
    Path("train.py").write_text("import time; print('up', flush=True); time.sleep(600)\n")
    path = job_file(Path("job.yaml"), command=[sys.executable, "train.py"])
    run = background("run", str(path), "--run-id", "r")
    run.until(
        lambda: any("up" in each.read_text() for each in home.rglob("log*") if each.is_file())
    )
    told = command("shell", "r", "--", "sh", "-c", "echo $TRAINING_ROLE; echo bad >&2; exit 4")
    assert (told.stdout, told.stderr, told.code) == ("worker\n", "bad\n", 4)
