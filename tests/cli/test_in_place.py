"""A process that fails begins again inside its instance: the same agent, an attempt of its own."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_training.agent import proc
from tests.cli.conftest import job_file

pytestmark = pytest.mark.e2e

TRAIN = """
import os, sys, time
from pathlib import Path
from airflow_training.agent.progress import report

attempt, index = int(os.environ["TRAINING_ATTEMPT"]), int(os.environ["TRAINING_INDEX"])
print("attempt", attempt, "of", index, flush=True)
report(step=10 * attempt + 1)
MISHAP
"""
CRASH = "sys.exit(0 if attempt else 7)"


def failing(mishap: str = CRASH, *, workers: int = 1, **spec) -> Path:
    Path("train.py").write_text(TRAIN.replace("MISHAP", mishap))
    spec = {"restart": {"backoff": {"initialSeconds": 0.05}}, **spec}
    command = [sys.executable, "train.py"]
    return job_file(Path("job.yaml"), ("worker", workers), command=command, **spec)


def agents(home: Path, index: int = 0) -> list[int]:
    """Return the pid of the agent of each attempt that had one."""
    found = sorted(home.glob(f"training/*/worker-{index}/attempt-*/.agent/state.json"))
    return [json.loads(path.read_text())["agent"]["pid"] for path in found]


def restarted(command, run: str) -> list[dict[str, Any]]:
    events = command("events", run, "-o", "json").json["events"]
    return [each for each in events if each["reason"].endswith("Restarted")]


def test_a_crash_keeps_the_agent_and_begins_an_attempt_of_its_own(command, home):
    done = command("run", str(failing()), "--run-id", "r", "-o", "json")
    assert done.code == 0, done.stderr
    first, second = agents(home)
    assert first == second
    assert proc.start_time(first) is None, "nobody waits for anything any more"
    assert done.json["restarts"]["user"] == 1
    (event,) = restarted(command, "r")
    assert event["data"]["recovery"] == "process"
    for attempt in ("0", "1"):
        log = command("logs", "show", "r", "--role", "worker", "--index", "0", "--attempt", attempt)
        assert log.stdout == f"attempt {attempt} of 0\n"
    (instance,) = done.json["instances"]
    assert (instance["attempt"], instance["progress"]["step"]) == (1, 11)


def test_ranks_that_restart_together_all_keep_their_agents(command, home):
    mishap = """
if attempt == 0:
    Path(f"here-{index}").touch()
    while len(list(Path().glob("here-*"))) < 3:
        time.sleep(0.01)
    for step in range(1, 31):  # what it has around it is on record, and was read
        report(step=step)
        time.sleep(0.1)
    if index == 1:
        sys.exit(7)
    time.sleep(600)
"""
    path = failing(mishap, workers=3, restart={"scope": "Job", "backoff": {"initialSeconds": 0.05}})
    done = command("run", str(path), "--run-id", "r", "-o", "json")
    assert done.code == 0, done.stderr
    for index in range(3):
        first, second = agents(home, index)
        assert first == second
    assert len(restarted(command, "r")) == 1
    assert done.json["restarts"]["user"] == 1


def test_an_agent_that_dies_while_it_waits_costs_no_further_restart(command, background, home):
    path = failing(restart={"backoff": {"initialSeconds": 3}})
    run = background("run", str(path), "--run-id", "r")
    (pid,) = run.until(lambda: agents(home) if waits(home) else None)
    os.kill(pid, 9)
    assert run.wait() == 0
    first, second = agents(home)
    assert first != second
    assert len(restarted(command, "r")) == 1


def test_whoever_drives_the_run_next_goes_on_in_place(command, background, home):
    path = failing(restart={"backoff": {"initialSeconds": 3}})
    run = background("run", str(path), "--run-id", "r")
    run.until(lambda: waits(home) and restarted(command, "r"))
    run.kill()
    run.wait()
    done = command("run", "--open", "-o", "json")
    assert done.code == 0, done.stderr
    first, second = agents(home)
    assert first == second
    assert len(restarted(command, "r")) == 1


def test_a_job_that_fails_leaves_no_agent_waiting(command, home):
    path = failing("sys.exit(7)", restart={"maxRestarts": 0})
    assert command("run", str(path), "--run-id", "r").code == 1
    (pid,) = agents(home)
    assert proc.start_time(pid) is None


def waits(home: Path) -> bool:
    """Return whether the first attempt is over."""
    return any(home.glob("training/*/worker-0/attempt-0.0.0/.agent/exit.json"))
