"""SIGKILL of `airflow-training run --runtime kubernetes` at random moments, and the run goes on.

The cluster is a process of its own whose containers are processes: every start and end of an
instance leaves a mark. TRAINING_SEED as in tests/supervise/test_kill_run.py.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kubernetes.emulator import Control, remote_control
from tests.supervise.test_kill_run import (
    KILLS,
    KILLS_PER_RUN,
    SEED,
    check_marks,
    kill_some_time,
    write_job,
)
from tests.waiting import PATIENCE


@dataclass(frozen=True)
class Remote:
    """A cluster in another process."""

    kubeconfig: Path
    control: Control


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Remote]:
    kubeconfig = tmp_path / "kubeconfig"
    command = [sys.executable, "-m", "tests.kubernetes.emulator", "--kubelet", "processes"]
    process = subprocess.Popen(
        [*command, "--kubeconfig", str(kubeconfig)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        word, url = process.stdout.readline().split()
        assert word == "ready"
        yield Remote(kubeconfig, remote_control(url))
    finally:
        process.terminate()
        process.wait(PATIENCE)
        process.stdout.close()


def start(job: Path, home: Path, cluster: Remote) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "airflow_training.cli", "run", str(job)]
    command += ["--runtime", "kubernetes", "--set", "spec.image=busybox"]
    with (home / "stdout").open("wb") as stdout, (home / "stderr").open("ab") as stderr:
        return subprocess.Popen(
            [*command, "--run-id", home.name, "--output", "json"],
            env={**os.environ, "AIRFLOW_HOME": str(home), "KUBECONFIG": str(cluster.kubeconfig)},
            stdout=stdout,
            stderr=stderr,
        )


@pytest.mark.e2e
@KILLS
def test_killed_and_continued_runs_end_as_if_nothing_had_happened(tmp_path, cluster, kills):
    moments = random.Random(SEED)
    print(f"TRAINING_SEED={SEED}")
    killed = number = 0
    while killed < kills:
        number += 1
        home = tmp_path / f"run{number}"
        home.mkdir()
        job = write_job(home)
        for _ in range(KILLS_PER_RUN):
            process = start(job, home, cluster)
            if not kill_some_time(process, moments, home / "marks"):
                break
            killed += 1
        process = start(job, home, cluster)
        process.wait(PATIENCE)
        stderr = (home / "stderr").read_text()
        assert process.returncode == 0, f"seed {SEED}: {stderr}"
        status = json.loads((home / "stdout").read_text())
        assert status["state"] == "Succeeded"
        assert sum(status["restarts"].values()) == 1, f"seed {SEED}: {stderr}"
        assert "Traceback" not in stderr
        check_marks(home / "marks")
        pods = cluster.control.list(plural="pods")
        assert {pod["status"]["phase"] for pod in pods} <= {"Succeeded", "Failed"}
        assert len({pod["metadata"]["name"] for pod in pods}) == 3 * number
    print(f"{killed} kills in {number} runs")
