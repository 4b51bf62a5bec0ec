"""SIGKILL of `airflow-training run --runtime kubernetes` at random moments, and the run goes on.

The cluster is a process of its own whose containers are processes: every start and end of an
instance leaves a mark. TRAINING_SEED as in tests/supervise/test_kill_run.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kubernetes.emulator import Control, remote_control
from tests.supervise.test_kill_run import KILLS, kill_and_continue
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
    runs = kill_and_continue(tmp_path, kills, lambda job, home: start(job, home, cluster))
    pods = cluster.control.list(plural="pods")
    assert {pod["status"]["phase"] for pod in pods} <= {"Succeeded", "Failed"}
    assert len({pod["metadata"]["name"] for pod in pods}) == 3 * runs
