"""`ttlSecondsAfterFinished` on this machine: the folder goes, and nobody is left wondering why."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Answer, job_file

pytestmark = pytest.mark.e2e

Command = Callable[..., Answer]
TRAIN = ("sh", "-c", 'echo trained; echo model > "$TRAINING_OUTPUT_DIR/model"')


def folder_of(command: Command, home: Path, run_id: str) -> Path:
    rows = command("list", "-o", "json").json["runs"]
    uid = next(each["uid"] for each in rows if each["run_id"] == run_id)
    return home / "training" / str(uid)


def run(command: Command, home: Path, run_id: str, **spec: Any) -> Path:
    """Run a job to its end; return its folder."""
    path = job_file(Path(f"{run_id}.yaml"), command=TRAIN, **spec)
    done = command("run", str(path), "--run-id", run_id)
    assert done.code == 0, done.stderr
    return folder_of(command, home, run_id)


def logs(command: Command, run_id: str) -> Answer:
    return command("logs", "show", run_id, "--role", "worker")


def test_sweep_deletes_the_folder_and_everybody_says_so(command, home):
    kept = run(command, home, "kept")
    folder = run(command, home, "short", ttlSecondsAfterFinished=0)
    assert (folder / "worker-0" / "current" / "output" / "model").is_file()
    assert logs(command, "short").stdout == "trained\n"

    told = command("sweep", "--dry-run", "-o", "json").json["swept"]
    assert [(each["run_id"], each["why"]) for each in told] == [
        ("short", "ttlSecondsAfterFinished is over")
    ]
    assert (
        "what is left of it, with its logs would be deleted" in command("sweep", "--dry-run").stdout
    )
    assert folder.is_dir()
    swept = command("sweep", "-o", "json")
    assert [each["done"] for each in swept.json["swept"]] == [True]
    assert not folder.exists()
    assert list((home / "training" / ".deleting").iterdir()) == []
    assert kept.is_dir()

    reason = "its logs, and outputs that output.uri does not name, were deleted"
    answer = logs(command, "short")
    assert (answer.code, answer.stdout) == (2, "")
    assert reason in answer.stderr
    status = command("status", "short", "-o", "json")
    assert status.json["state"] == "Succeeded"
    assert reason in status.stderr
    assert reason not in command("status", "kept").stderr
    assert logs(command, "kept").code == 0
    assert command("sweep", "-o", "json").json == {"swept": []}


def test_the_next_run_on_this_machine_does_it_too(command, home):
    over = run(command, home, "over", ttlSecondsAfterFinished=0)
    not_yet = run(command, home, "not-yet", ttlSecondsAfterFinished=3600)
    assert not over.exists()
    assert not_yet.is_dir()
    run(command, home, "another")
    assert not_yet.is_dir()
    assert "were deleted" in command("status", "over").stderr
    assert command("sweep", "-o", "json").json == {"swept": []}


def test_a_run_that_is_not_over_keeps_its_folder(command, background, home):
    path = job_file(
        Path("long.yaml"), command=["sh", "-c", "touch up; sleep 300"], ttlSecondsAfterFinished=0
    )
    process = background("run", str(path), "--run-id", "long")
    process.until(Path("up").exists)
    folder = folder_of(command, home, "long")
    os.utime(home / "training" / ".expiring" / folder.name, (0, 0))  # whatever the marker says
    run(command, home, "another")
    assert command("sweep", "-o", "json").json == {"swept": []}
    assert (folder / "worker-0" / "current" / "log").exists()
    assert command("kill", "long").code == 0
    process.kill()
    process.wait()
    run(command, home, "later")
    command("sweep")
    assert not folder.exists()


def test_a_run_that_the_store_does_not_know_is_left_alone(command, home, monkeypatch):
    folder = run(command, home, "mine", ttlSecondsAfterFinished=0)
    other = home.parent / "other"
    other.mkdir()
    monkeypatch.setenv("AIRFLOW_HOME", str(other))
    monkeypatch.setenv("AIRFLOW__TRAINING__LOCAL_DIR", str(home / "training"))
    run(command, home, "theirs")
    assert command("sweep", "-o", "json").json == {"swept": []}
    assert (folder / "worker-0" / "current" / "output" / "model").is_file()


@pytest.mark.parametrize(
    ("spec", "warned"),
    [
        pytest.param({"ttlSecondsAfterFinished": 60}, True, id="nowhere-else"),
        pytest.param({"ttlSecondsAfterFinished": 60, "output": {"uri": "models"}}, False, id="uri"),
        pytest.param({}, False, id="kept"),
    ],
)
def test_a_model_that_would_go_is_told_beforehand(typed, home, spec, warned):
    path = job_file(Path("job.yaml"), command=TRAIN, **spec)
    (found,) = [
        each["warnings"] for each in typed("validate", str(path), "-o", "json").json["files"]
    ]
    assert [each["field"] for each in found] == ["spec.ttlSecondsAfterFinished"] * warned
