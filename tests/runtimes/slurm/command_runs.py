"""Jobs of the command line on the cluster of the tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtimes.slurm.lab import Lab

ECHO = """\
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {name: echo}
spec:
  framework: pytorch
  command: [sh, -c, 'echo rank $RANK of $WORLD_SIZE, master at $MASTER_ADDR, job $SLURM_JOB_ID; %s']
  restart: {scope: Instance, backoff: {initialSeconds: 0}}
  runtime: {name: slurm, options: {partition: main, time: "30"}}
  schedulingPolicy: {gang: slurm}
  roles:
    - {name: master}
    - {name: worker, replicas: 2}
"""
FAILS_ONCE = "test $RANK.$TRAINING_ATTEMPT != 1.0 || exit 7; sleep 2"


@pytest.fixture
def home(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def start(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "airflow_training.cli", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def logs(home: Path) -> dict[str, str]:
    """Instance and attempt -> what it printed."""
    found = home.glob("training/slurm/*/*/attempt-*/log")
    return {f"{path.parts[-3]} {path.parts[-2]}": path.read_text() for path in found}
