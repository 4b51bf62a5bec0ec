"""`logs diagnose` of a run whose processes have not ended: who gets nowhere, and who only takes long."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from airflow_training.cli.run_logs import find_logs
from airflow_training.cli.running_instances import running_instances
from airflow_training.documents.instances import InstanceKey
from airflow_training.logs.model import FileScan, Origin
from airflow_training.state.store import LogPosition, LogValue, Store
from tests.cli.conftest import COMMAND, job_file
from tests.logs.health.simulation import a_series
from tests.state.samples import a_job, a_key, a_ledger, take, worker
from tests.waiting import PATIENCE, wait_until

SCRIPT = """\
import datetime, json, os, time

now = datetime.datetime.now(datetime.timezone.utc)
index = os.environ["TRAINING_INDEX"]
silent = 1 if index == "1" else 90
for step in range(60):
    at = now - datetime.timedelta(seconds=60 + silent - step)
    print(f"{at:%Y-%m-%d %H:%M:%S} step: {step} loss: 0.5 lr: 0.1", flush=True)
if index == "2":
    print("Running evaluation", flush=True)
if index == "3":
    with open(os.environ["TRAINING_PROGRESS_FILE"], "a") as file:
        print(json.dumps({"section": "eval"}), file=file)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.e2e
def test_who_gets_nowhere_hangs_and_who_is_busy_does_not(command, home):
    Path("train.py").write_text(SCRIPT)
    path = job_file(Path("job.yaml"), ("worker", 4), command=[sys.executable, "train.py"])
    words = [*COMMAND, "run", str(path), "--run-id", "one"]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL, env=os.environ) as run:
        try:
            wait_until(lambda: shown(command).count("ready") == 4)
            wait_until(lambda: told_section(home))
            found = command("logs", "diagnose", "one", "-o", "json").json
        finally:
            command("kill", "one")
            run.wait(timeout=PATIENCE)
    (cause,) = found["causes"]
    assert (cause["id"], cause["file"], cause["line"]) == ("hang", "worker-0", 61)
    assert "its last line: ready" in cause["evidence"]
    assert "its process has not ended" in cause["evidence"]
    assert "stopped first" not in cause["evidence"], "the other three do not hang"
    assert cause["confidence"] > 0.8


def shown(command) -> str:
    """Return what the instances printed, empty before they exist."""
    return str(command("logs", "show", "one", "--merge").stdout)


def told_section(home: Path) -> bool:
    store = Store(f"sqlite:///{home / 'airflow_training.db'}")
    said = store.progress.newest(store.find_run("one").uid).get(InstanceKey("worker", 3))
    store.close()
    return said is not None and said.section == "eval"


# lines without a time: the store knows when they came ----------------------------------------------
NAME = "worker-0"


@pytest.fixture
def store(home):
    made = Store(f"sqlite:///{home / 'airflow_training.db'}")
    yield made
    made.close()


def running(store: Store, *, started: float, reports: int, last: float, driven: bool = True) -> str:
    """Add a run of which one instance runs and reported a loss every second, the last one so long ago."""
    now = store.now()
    entry = worker(0, state="running", desired=True, was_running=True, started_at=now - started)
    uid = store.create_run(
        a_key("one"), a_job(), a_ledger(entry), controller="here", queue=False
    ).uid
    position = LogPosition(epoch=0, job_attempt=0, attempt=0, done=1)
    values = [
        LogValue(name="loss", at=now - last - reports + 1 + step, step=step, value=0.5)
        for step in range(reports)
    ]
    assert store.log_values.save(
        uid, InstanceKey("worker", 0), before=None, after=position, values=values, progress=None
    )
    if driven:
        take(store, uid)
    return uid


def logged(steps: int, *tail: str) -> list[FileScan]:
    """Return a log whose lines tell a step and no time."""
    series = a_series("loss", np.ones(steps), rank=None, role="worker", file=NAME)
    series.times[:] = np.nan
    origin = Origin(file=NAME, role="worker")
    return [FileScan(origin=origin, series=(series,), tail=tail, tail_offsets=(0,) * len(tail))]


@pytest.mark.parametrize(
    ("case", "scans", "hangs"),
    [
        pytest.param({"started": 300, "last": 90}, logged(60), 1, id="silent"),
        pytest.param({"started": 300, "last": 20}, logged(60), 0, id="shortly"),
        pytest.param({"started": 300, "last": 90}, logged(75), 0, id="got further than stored"),
        pytest.param({"started": 300, "last": 90}, logged(60, "compiling"), 0, id="compiles"),
        pytest.param({"started": 80, "last": 90}, logged(60), 0, id="began after that"),
        pytest.param({"started": 300, "last": 90, "driven": False}, logged(60), 0, id="not driven"),
    ],
)
def test_lines_without_a_time_have_that_of_the_store(store, case, scans, hangs):
    running(store, reports=60, **case)
    found = running_instances(find_logs("one"), scans)
    assert [(each.role, each.index) for each in found.facts] == [("worker", 0)]
    assert [each.kind for each in found.hangs] == ["hang"] * hangs


def test_an_instance_that_ended_does_not_run(store):
    entry = worker(0, state="failed", was_running=True, started_at=store.now() - 300)
    store.create_run(a_key("one"), a_job(), a_ledger(entry), controller="here", queue=False)
    found = running_instances(find_logs("one"), logged(60))
    assert (found.facts, found.hangs) == ((), ())
