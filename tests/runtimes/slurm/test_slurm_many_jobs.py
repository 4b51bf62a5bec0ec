"""Many jobs go through the queue while their controller is killed again and again: each task runs once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.runtimes.slurm.lab import Lab
from tests.runtimes.slurm.many_jobs import TASKS, key_of
from tests.waiting import wait_until


def _lines(folder: Path) -> list[str]:
    ran = folder / "ran"
    return ran.read_text().splitlines() if ran.exists() else []


def _next_job(lab: Lab) -> int:
    """Return the number of a job that is submitted now: all numbers before it were given out."""
    job = lab.run(["sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap=true"]).strip()
    lab.run(["scancel", job])
    return int(job)


def _start(folder: Path, count: int) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "tests.runtimes.slurm.many_jobs", str(folder), str(count)]
    with (folder / "controller.log").open("a") as log:
        return subprocess.Popen(words, stdout=log, stderr=log, text=True, cwd=Path.cwd())


@pytest.mark.parametrize(
    ("jobs", "kills"),
    [
        pytest.param(6, 5, marks=pytest.mark.e2e),
        pytest.param(500, 50, marks=[pytest.mark.soak, pytest.mark.timeout(4 * 3600)]),
    ],
)
def test_jobs_are_neither_doubled_nor_lost_whenever_their_controller_is_killed(
    lab, tmp_path, monkeypatch, jobs, kills
):
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    first = _next_job(lab)
    # as far as all of it: what was submitted, and the tasks that ran
    whole = jobs * (1 + TASKS)

    def done() -> int:
        return len(list(tmp_path.glob("runs/*/allocations/*/submitted.json"))) + len(
            _lines(tmp_path)
        )

    for number in range(kills):
        controller = _start(tmp_path, jobs)
        until = whole * (number + 1) // (kills + 2)
        wait_until(lambda: done() >= until, seen=done, patience=3600)  # noqa: B023 - it is over before the next
        os.kill(controller.pid, signal.SIGKILL)
        assert controller.wait() == -signal.SIGKILL, "it was killed at work"
    controller = _start(tmp_path, jobs)
    assert controller.wait() == 0, (tmp_path / "controller.log").read_text()[-3000:]
    ran = Counter(_lines(tmp_path))
    uids = [key_of(number).uid for number in range(jobs)]
    wanted = {f"{uid}.{index}.0" for uid in uids for index in range(TASKS)}
    assert set(ran) == wanted
    assert set(ran.values()) == {1}
    assert _next_job(lab) - first - 1 == jobs, "one allocation for each job"
    # who was killed before it took a run away leaves its allocation to its keeper
    wait_until(lambda: not lab.jobs(), patience=400)
