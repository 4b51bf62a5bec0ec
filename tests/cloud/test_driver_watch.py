"""A run whose driver dies before it has begun is driven again, or ends: it waits for nobody for ever."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from airflow_training.admission.launch import controller_id, launch
from airflow_training.cloud.service import driver_watch, launching
from airflow_training.cloud.service.driver_watch import DRIVER_FAILED, watch_driver
from airflow_training.settings import load_settings
from airflow_training.state.store import RunRecord, open_store
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

DOCUMENT = {
    "apiVersion": "airflow-training/v1",
    "kind": "TrainingJob",
    "metadata": {"name": "train"},
    "spec": {
        "framework": "custom",
        "runtime": {"name": "local"},
        "command": ["true"],
        "roles": [{"name": "worker", "restartPolicy": "Never"}],
    },
}


@pytest.fixture
def run(tmp_path: Path, airflow_home: Path, monkeypatch: pytest.MonkeyPatch) -> RunRecord:
    monkeypatch.setattr(driver_watch, "_WAITS_SECONDS", (0.0, 0.0))
    store, settings = open_store(), load_settings()
    job = launching._resolved(DOCUMENT, run_id="one", folder=tmp_path, by="me")
    key = launching._key("one")
    return launch(
        job, key=key, store=store, controller=controller_id(store, settings), activate_all=True
    )


class Drivers:
    """Processes that end as they are told, and are counted."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.said = folder / "host.log"
        self.count = 0
        self._words = words

    def start(self) -> subprocess.Popen[bytes]:
        self.count += 1
        with self.said.open("ab") as said:
            return subprocess.Popen(["/bin/sh", "-c", *self._words], stdout=said, stderr=said)


def state(run: RunRecord) -> str:
    found = open_store().run(run.uid)
    assert found is not None
    return found.state


def test_a_driver_that_never_starts_is_tried_again_and_its_words_end_the_run(run, tmp_path):
    drivers = Drivers(tmp_path, "echo no space left; exit 3")
    watch_driver(run.uid, drivers.start, said=drivers.said)
    wait_until(lambda: state(run) == "Failed", "the run has ended")
    assert drivers.count == 3
    job = open_store().ledger(run.uid).job
    assert job.is_over
    assert job.reason == DRIVER_FAILED
    assert "exit code 3: no space left" in job.message


def test_what_the_driver_refuses_is_refused_once(run, tmp_path):
    drivers = Drivers(tmp_path, "echo spec.image; exit 2")
    watch_driver(run.uid, drivers.start, said=drivers.said)
    wait_until(lambda: state(run) == "Failed", "the run has ended")
    assert drivers.count == 1


def test_a_run_that_is_submitted_ends_when_its_driver_was_killed_at_its_start(
    tmp_path, airflow_home, monkeypatch
):
    monkeypatch.setattr(driver_watch, "_WAITS_SECONDS", (0.0, 0.0))
    real = launching._drive
    killed: list[int] = []

    def drive(*words: Path, **more: object) -> subprocess.Popen[bytes]:
        process = real(*words, **more)  # type: ignore[arg-type]  # as it was given
        if not killed:
            killed.append(process.pid)
            os.kill(process.pid, signal.SIGKILL)
        return process

    monkeypatch.setattr(launching, "_drive", drive)
    launching.ProcessLauncher().begin(
        DOCUMENT, run_id="two", folder=tmp_path / "run", state_folder=tmp_path, by="me", events=[]
    )
    record = open_store().run(launching._key("two").uid)
    assert record is not None
    wait_until(lambda: state(record) == "Succeeded", "the run was driven again")
    assert killed
