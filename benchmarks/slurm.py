"""Slurm, a real one of this machine: from a failure to the next attempt, and what is asked of it where nothing changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.report import figure, heading, median, quantile
from tests.runtimes.slurm.lab import SEARCH, Lab, missing, put_counted_commands, running_lab
from tests.runtimes.slurm.ssh_server import running_ssh_server

FAILURES = 40
RUNS = 5
SETTLE_SECONDS = 90.0
"""After the start of runs: until the pause between two looks at the queue is as long as it gets."""
QUIET_SECONDS = 120.0

FAILS = """
import json, os, sys, time
from pathlib import Path

attempt, moments = int(os.environ["TRAINING_ATTEMPT"]), Path(os.environ["MOMENTS"])
if os.environ["TRAINING_INDEX"] == "0":
    while not Path(os.environ["MOMENTS"] + ".done").exists():
        time.sleep(0.1)
    sys.exit()
with moments.open("a") as file:
    print(json.dumps({"began": time.time()}), file=file)
if attempt == FAILURES:
    Path(os.environ["MOMENTS"] + ".done").touch()
    sys.exit()
time.sleep(0.5)
with moments.open("a") as file:
    print(json.dumps({"failed": time.time()}), file=file)
sys.exit(7)
"""


def job(name: str, command: list[str], **spec: Any) -> str:
    options = {"partition": "main", "time": "30"}
    runtime = {"name": "slurm", "options": options, **spec.pop("runtime", {})}
    document = {
        "apiVersion": "airflow-training/v1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {
            "framework": "custom",
            "command": command,
            "runtime": runtime,
            "schedulingPolicy": {"gang": "slurm"},
            "roles": [{"name": "worker", "replicas": 2}],
            **spec,
        },
    }
    return json.dumps(document)


def start(home: Path, *words: str, **env: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "airflow_training.cli", *words],
        cwd=home,
        env={**os.environ, "AIRFLOW_HOME": str(home), **env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def seconds_to_the_next_attempt(home: Path, **runtime: str) -> list[float]:
    """Return, for each of many failures, the seconds from the end of a script to the start of the one in its place."""
    home.mkdir()
    script, moments = home / "fails.py", home / "moments"
    script.write_text(FAILS.replace("FAILURES", str(FAILURES)))
    restart = {"scope": "Instance", "maxRestarts": FAILURES, "backoff": {"initialSeconds": 0}}
    env = [{"name": "MOMENTS", "value": str(moments)}]
    role = {"name": "worker", "replicas": 2, "backoffLimit": FAILURES}
    text = job(
        "fails",
        [sys.executable, str(script)],
        roles=[role],
        restart=restart,
        env=env,
        runtime=runtime,
    )
    (home / "job.yaml").write_text(text)
    if start(home, "run", "job.yaml", "--run-id", "fails").wait() != 0:
        raise RuntimeError("the run has failed")
    told = [json.loads(line) for line in moments.read_text().splitlines()]
    began = [each["began"] for each in told if "began" in each]
    failed = [each["failed"] for each in told if "failed" in each]
    return [after - before for before, after in zip(failed, began[1:], strict=True)]


def requests_a_minute(home: Path, lab: Lab) -> float:
    """Return how often one process that drives several runs asks Slurm, while all of them only train."""
    home.mkdir()
    (home / "job.yaml").write_text(job("sleeps", ["sleep", "900"]))
    path, asked = put_counted_commands(home)
    words = ("run", "job.yaml", "--run-id")
    runs = [start(home, *words, f"r{each}", PATH=path) for each in range(RUNS)]
    time.sleep(SETTLE_SECONDS)
    before = len(asked.read_text().splitlines())
    time.sleep(QUIET_SECONDS)
    count = len(asked.read_text().splitlines()) - before
    for each in range(RUNS):
        start(home, "kill", f"r{each}").wait()
    for run in runs:
        run.wait()
    while lab.jobs():
        time.sleep(0.5)
    return count / RUNS * 60 / QUIET_SECONDS


def main() -> None:
    heading("Slurm: three nodes of one machine")
    if missing():
        print(f"(left out: {missing()})")
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with running_lab(folder / "lab") as lab:
            here = seconds_to_the_next_attempt(folder / "here")
            env = {"SLURM_CONF": str(lab.conf), "PATH": SEARCH}
            (folder / "login").mkdir()
            with running_ssh_server(folder / "login", env) as server:
                address = server.address(folder / "shared")
                away = seconds_to_the_next_attempt(folder / "away", connection=address)
            asked = requests_a_minute(folder / "quiet", lab)
    note = f"{FAILURES} failures; from the end of the script to the first line of the next"
    figure(
        "failure to restart in its allocation, p95",
        quantile(here, 0.95),
        "s",
        target="<= 1.5 s",
        note=note,
    )
    figure("the same, median", median(here), "s")
    figure("by SSH, p95", quantile(away, 0.95), "s", target="<= 1.5 s")
    figure("by SSH, median", median(away), "s")
    note = f"{RUNS} processes with a run of 2 instances each, {QUIET_SECONDS:g} s"
    figure(
        "requests a minute of a process, where nothing changes", asked, "", target="2", note=note
    )
