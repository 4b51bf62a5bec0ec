"""Airflow's processes are killed while jobs run: the training processes never notice."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_training.supervise.owners import Owner
from tests.airflow.stack import Airflow
from tests.ports import free_port
from tests.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

DATABASES = ("airflow", "airflow_training")


def holder(airflow: Airflow, uid: str) -> int | None:
    """Return the pid of the process that drives a run; None while nobody does."""
    lease = airflow.store.lease(uid)
    if lease is None or lease.expires_at < airflow.store.now():
        return None
    owner = Owner.parse(lease.owner)
    return owner.pid if owner is not None else None


@pytest.mark.parametrize(
    "components",
    [
        pytest.param(("triggerer", "scheduler", "api-server"), id="all"),
        *(
            pytest.param((each,), id=each, marks=pytest.mark.soak)
            for each in ("triggerer", "scheduler", "api-server")
        ),
    ],
)
def test_killing_airflow_costs_the_training_nothing(airflow: Airflow, components: tuple[str, ...]):
    """SIGKILL in the middle, and start again: the same processes, and the run ends right."""
    job = f"survives-{components[0] if len(components) == 1 else 'all'}"
    airflow.write(airflow.document(job, {"name": "worker", "replicas": 2}))
    run_id = airflow.trigger(job)
    before = airflow.wait_started(job, count=2)
    airflow.wait_task(job, run_id, "reconcile", "deferred")
    uid = airflow.uid(job, run_id)
    driver = wait_until(lambda: holder(airflow, uid), "somebody drives the run")
    airflow.crash(*components)
    if "triggerer" in components:
        wait_until(
            lambda: holder(airflow, uid) not in (None, driver), "another process drives the run"
        )
    assert airflow.pids(job) == before
    assert all(pid in airflow.alive(job) for (pid,) in before.values())
    airflow.end(job)
    assert airflow.wait_run(job, run_id) == "success"
    assert airflow.pids(job) == before
    ledger = airflow.ledger(job, run_id)
    assert (ledger.job.state, ledger.job.restarts) == ("Succeeded", ())


@pytest.fixture
def second_triggerer(airflow: Airflow) -> Iterator[subprocess.Popen[bytes]]:
    """Give another triggerer of the same Airflow."""
    port = str(free_port())
    with (airflow.stack.home / "triggerer-2.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "airflow", "triggerer"],
            env={
                **airflow.stack.environment_of("triggerer"),
                "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": port,
            },
            cwd=airflow.stack.home,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.soak
def test_two_triggerers_share_the_runs(airflow: Airflow, second_triggerer: subprocess.Popen[bytes]):
    job = "shared"
    airflow.write(airflow.document(job))
    runs: list[str] = []
    drivers: set[int] = set()
    while len(runs) < 4 or len(drivers) < 2:
        assert len(runs) < 16, f"all runs are driven by {drivers}"
        if len(runs) >= 4:
            time.sleep(4)  # the second triggerer may still be starting
        runs.append(airflow.trigger(job))
        uid = airflow.uid(job, runs[-1])
        airflow.wait_task(job, runs[-1], "plan", "success")  # it made the first pass
        drivers.add(wait_until(lambda: holder(airflow, uid), "somebody drives the run"))  # noqa: B023 - called here
    assert len(drivers) == 2
    airflow.end(job)
    for run_id in runs:
        assert airflow.wait_run(job, run_id) == "success"
        assert airflow.ledger(job, run_id).job.restarts == ()
    assert len(airflow.pids(job)["worker-0"]) == len(runs)


def stall(airflow: Airflow, group: int) -> None:
    """SIGSTOP processes between two writes: amid one, SQLite would let nobody else go on."""
    while True:
        os.killpg(group, signal.SIGSTOP)
        wait_until(lambda: states(group) <= {"T", "Z"}, "all are stopped")
        if not any(locked(airflow.stack.home / f"{name}.db") for name in DATABASES):
            return
        os.killpg(group, signal.SIGCONT)


def states(group: int) -> set[str]:
    """Return the letters of the states that the processes of a group are in (man 5 proc_pid_stat)."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, of = path.read_text().rpartition(")")[2].split()[:3]
            if int(of) == group:
                found.add(state)
    return found


def locked(database: Path) -> bool:
    """Return whether somebody keeps others from writing for as long as a second."""
    with contextlib.closing(sqlite3.connect(database, timeout=1, isolation_level=None)) as opened:
        try:
            opened.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        opened.execute("ROLLBACK")
        return False


@pytest.mark.soak  # what its cancelled triggers do: triggers/test_reconcile.py
def test_a_triggerer_that_stalls_and_wakes_up_stops_nothing(
    airflow: Airflow, second_triggerer: subprocess.Popen[bytes]
):
    """Its triggers are then cancelled like those of a user's action, while the task is deferred."""
    job = "stalled"
    airflow.write(airflow.document(job))
    run_id = airflow.trigger(job)
    before = airflow.wait_started(job)
    airflow.wait_task(job, run_id, "reconcile", "deferred")
    uid = airflow.uid(job, run_id)
    driver = wait_until(lambda: holder(airflow, uid), "somebody drives the run")
    stalled = os.getpgid(driver)
    try:
        stall(airflow, stalled)
        wait_until(
            lambda: holder(airflow, uid) not in (None, driver),
            f"the other triggerer ({second_triggerer.pid}) drives the run",
        )
    finally:
        os.killpg(stalled, signal.SIGCONT)
    wait_until(
        lambda: "has a future elsewhere" in airflow.log(job, run_id, "reconcile"),
        "the one that woke up let go",
    )
    assert airflow.pids(job) == before
    assert not [r for r in airflow.store.requests(uid) if r.kind == "stop"]
    airflow.end(job)
    assert airflow.wait_run(job, run_id) == "success"
    assert airflow.pids(job) == before
