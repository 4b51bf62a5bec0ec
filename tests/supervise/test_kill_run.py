"""SIGKILL of `airflow-training run` at random moments, each time continued with the same run id.

Set TRAINING_SEED for the same moments again.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.waiting import PATIENCE

SEED = int(os.environ.get("TRAINING_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
KILLS_PER_RUN = 3
RUN_SECONDS = 1.5
KILLS = pytest.mark.parametrize(
    "kills",
    [
        pytest.param(3, id="sample"),
        pytest.param(50, id="all", marks=[pytest.mark.soak, pytest.mark.timeout(1200)]),
    ],
)

# worker 0 fails in its first attempt: exactly one restart is due, however often the host dies
SCRIPT = f"""
mark() {{ echo "$1 $TRAINING_ROLE $TRAINING_INDEX $TRAINING_ATTEMPT $$ $(date +%s.%N)" >> "$MARKS"; }}
mark start
sleep {RUN_SECONDS}
mark stop
if [ "$TRAINING_ROLE $TRAINING_INDEX $TRAINING_ATTEMPT" = "worker 0 0" ]; then exit 3; fi
"""
EXPECTED_ATTEMPTS = {("master", 0): [0], ("worker", 0): [0, 1], ("worker", 1): [0]}


def write_job(folder: Path) -> Path:
    document = {
        "apiVersion": "airflow-training/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "chaos"},
        "spec": {
            "framework": "custom",
            "command": ["sh", "-c", SCRIPT],
            "env": [{"name": "MARKS", "value": str(folder / "marks")}],
            "roles": [{"name": "master", "replicas": 1}, {"name": "worker", "replicas": 2}],
            "restart": {"backoff": {"initialSeconds": 0.1}},
        },
    }
    path = folder / "job.json"
    path.write_text(json.dumps(document))
    return path


def start(job: Path, home: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "airflow_training.cli", "run", str(job)]
    with (home / "stdout").open("wb") as stdout, (home / "stderr").open("ab") as stderr:
        return subprocess.Popen(
            [*command, "--run-id", "chaos", "--output", "json"],
            env={**os.environ, "AIRFLOW_HOME": str(home)},
            stdout=stdout,
            stderr=stderr,
        )


def kill_some_time(process: subprocess.Popen[bytes], moments: random.Random, marks: Path) -> bool:
    """Kill the host after a random while; return whether it was still there to be killed."""
    if moments.random() < 0.6:  # while the instances start, run and end, not while we import
        deadline = time.monotonic() + 30
        while not marks.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(moments.uniform(0.0, RUN_SECONDS * 2.2))
        return False
    process.send_signal(signal.SIGKILL)
    process.wait()
    return True


def check_marks(marks: Path) -> None:
    """No instance twice at the same time, every attempt exactly once."""
    lives: defaultdict[tuple[str, int], dict[int, dict[str, list[float]]]] = defaultdict(dict)
    for line in marks.read_text().splitlines():
        what, role, index, attempt, _, at = line.split()
        life = lives[role, int(index)].setdefault(int(attempt), {"start": [], "stop": []})
        life[what].append(float(at))
    assert {key: sorted(attempts) for key, attempts in lives.items()} == EXPECTED_ATTEMPTS
    for attempts in lives.values():
        ended = 0.0
        for _, life in sorted(attempts.items()):
            assert [len(life["start"]), len(life["stop"])] == [1, 1]
            assert life["start"][0] >= ended, "two attempts at the same time"
            ended = life["stop"][0]


def kill_and_continue(
    folder: Path, kills: int, start: Callable[[Path, Path], subprocess.Popen[bytes]]
) -> int:
    """Kill what `start(job, home)` begins until so many kills hit; return how many runs were made.

    Each of them ends as if nothing had happened.
    """
    moments = random.Random(SEED)
    print(f"TRAINING_SEED={SEED}")
    killed = number = 0
    while killed < kills:
        number += 1
        home = folder / f"run{number}"
        home.mkdir()
        job = write_job(home)
        for _ in range(KILLS_PER_RUN):
            process = start(job, home)
            if not kill_some_time(process, moments, home / "marks"):
                break
            killed += 1
        process = start(job, home)
        process.wait(PATIENCE)
        stderr = (home / "stderr").read_text()
        assert process.returncode == 0, f"seed {SEED}: {stderr}"
        status = json.loads((home / "stdout").read_text())
        assert status["state"] == "Succeeded"
        assert sum(status["restarts"].values()) == 1, f"seed {SEED}: {stderr}"
        assert "Traceback" not in stderr
        check_marks(home / "marks")
    return number


@pytest.mark.e2e
@KILLS
def test_killed_and_continued_runs_end_as_if_nothing_had_happened(tmp_path, kills):
    kill_and_continue(tmp_path, kills, start)
