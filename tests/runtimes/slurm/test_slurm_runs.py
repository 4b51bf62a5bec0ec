"""Jobs of the command line on Slurm, as people run them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.runtimes.slurm.lab import Lab
from tests.waiting import wait_until

pytestmark = pytest.mark.soak

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


def test_a_gang_trains_and_restarts_a_member_in_its_allocation(home, lab):
    (home / "job.yaml").write_text(ECHO % FAILS_ONCE)
    run = start("run", "job.yaml", "--run-id", "one")
    said = run.communicate()[0]
    assert run.returncode == 0, said
    assert "InstanceRestarted" in said
    printed = logs(home)
    assert set(printed) == {
        "master-0 attempt-0.0.0",
        "worker-0 attempt-0.0.0",
        "worker-0 attempt-0.0.1",
        "worker-1 attempt-0.0.0",
    }
    assert "rank 1 of 3, master at 127.0.0.1" in printed["worker-0 attempt-0.0.1"]
    jobs = {re.findall(r"job (\d+)", text)[0] for text in printed.values()}
    assert len(jobs) <= 2  # components have numbers of their own
    wait_until(lambda: not lab.jobs())


def test_a_driver_that_is_killed_again_and_again_doubles_nothing(home, lab):
    (home / "job.yaml").write_text(ECHO % "sleep 15")
    began = time.monotonic()
    for number in range(8):
        run = start("run", "job.yaml", "--run-id", "one")
        time.sleep(0.6 + 0.35 * number)  # at another point each time: that is what is tried out
        run.send_signal(signal.SIGKILL)
        run.communicate()
    run = start("run", "job.yaml", "--run-id", "one")
    said = run.communicate()[0]
    assert run.returncode == 0, said
    assert set(logs(home)) == {
        f"{name} attempt-0.0.0" for name in ("master-0", "worker-0", "worker-1")
    }
    submitted = list(home.glob("training/slurm/*/allocations/*/submitted.json"))
    assert len(submitted) == 1, (said, time.monotonic() - began)
    wait_until(lambda: not lab.jobs())


def test_who_stops_a_run_leaves_nothing(home, lab):
    (home / "job.yaml").write_text(ECHO % "sleep 600")
    run = start("run", "job.yaml", "--run-id", "one")
    wait_until(lambda: sum("rank" in text for text in logs(home).values()) == 3)
    run.send_signal(signal.SIGINT)
    said = run.communicate()[0]
    assert "Stopped" in said
    wait_until(lambda: not lab.jobs())
    left = subprocess.run(
        ["pgrep", "-f", f"{home}.*/attempt-"], capture_output=True, text=True, check=False
    )
    assert left.stdout.split() == [], os.environ["AIRFLOW_HOME"]
