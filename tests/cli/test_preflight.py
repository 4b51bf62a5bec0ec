"""A job that says what its instances have to find before they start, with real agents on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_training.state.store import Store
from tests.cli.conftest import job_file

pytestmark = pytest.mark.e2e

TRAINS = ["sh", "-c", "sleep 2"]
"""Until the first record of the agent is there."""


def test_instances_measure_disk_and_network_before_they_start(command, home):
    path = job_file(
        Path("job.yaml"), ("master", 1), ("worker", 3), command=TRAINS,
        preflight={"disk": {"bandwidth": "1"}, "network": {"latencyMilliseconds": 10_000}},
    )  # fmt: skip
    done = command("run", str(path), "--run-id", "one", "-o", "json")
    assert done.code == 0, done.stderr
    store = Store(f"sqlite:///{home / 'airflow_training.db'}")
    told = {
        (each.event.role, each.event.index): each.event.message
        for each in store.events(store.find_run("one").uid)
        if each.event.reason == "PreflightPassed"
    }
    assert set(told) == {("master", 0), *(("worker", index) for index in range(3))}
    assert all(message.startswith("disk: ") for message in told.values())
    assert "network" not in told["master", 0], "it is alone in its role"
    for index in range(3):
        others = [f"to worker-{(index + step) % 3} " for step in (1, 2)]
        assert all(each in told["worker", index] for each in others), told


def test_what_is_not_found_fails_the_attempt_and_not_the_script(command, home):
    path = job_file(
        Path("job.yaml"), ("master", 1), command=["touch", str(home / "started")],
        preflight={"timeoutSeconds": 0.5, "disk": {"free": "1000Ti"}}, restart={"maxRestarts": 0},
    )  # fmt: skip
    done = command("run", str(path), "-o", "json")
    assert done.code == 1
    (master,) = done.json["instances"]
    assert master["reason"] == "EnvironmentNotReady"
    assert "are needed" in master["message"]
    assert not (home / "started").exists()
