"""The model lands where the script would have saved it, and never over what changed here meanwhile."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

import pytest

from airflow_training.cloud.journal import SubmittedRun
from airflow_training.cloud.returning import put_in_place


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def a_run(folder: Path, digests: dict[str, str] | None = None) -> SubmittedRun:
    return SubmittedRun(
        run_id="train-1",
        target="here",
        root=str(folder),
        returns="model",
        at_ns=time.time_ns(),
        digests=digests or {},
    )


def arrived(folder: Path) -> Path:
    part = folder / ".model.pt.part"
    part.write_text("new")
    return part


def later(path: Path, run: SubmittedRun, text: str) -> None:
    """Write a file until its file system's clock has gone on."""
    while not path.exists() or path.stat().st_ctime_ns <= run.at_ns:
        path.write_text(text)


def test_a_new_file_takes_its_place(folder):
    place = folder / "model.pt"
    assert put_in_place(arrived(folder), place, a_run(folder)) == place
    assert place.read_text() == "new"
    assert [each.name for each in folder.iterdir()] == ["model.pt"]


def test_an_old_file_that_nobody_touched_is_replaced(folder):
    place = folder / "model.pt"
    place.write_text("old")
    while time.time_ns() <= place.stat().st_ctime_ns:
        pass
    assert put_in_place(arrived(folder), place, a_run(folder)) == place
    assert place.read_text() == "new"


def test_a_file_that_travelled_and_is_the_same_is_replaced(folder):
    place, run = folder / "model.pt", a_run(folder)
    later(place, run, "old")
    known = a_run(folder, {"model.pt": hashlib.sha256(b"old").hexdigest()})
    assert put_in_place(arrived(folder), place, known) == place


@pytest.mark.parametrize("travelled", [True, False])
def test_a_file_that_was_changed_meanwhile_stays(folder, travelled):
    place = folder / "model.pt"
    run = a_run(folder, {"model.pt": "0" * 64} if travelled else {})
    later(place, run, "mine")
    found = put_in_place(arrived(folder), place, run)
    assert found == folder / "model.pt.cloud-train-1"
    assert (place.read_text(), found.read_text()) == ("mine", "new")


@pytest.mark.parametrize("name", ["model.pt", "model.pt.cloud-train-1"])
def test_what_has_come_before_is_not_taken_for_a_change(folder, name):
    run = a_run(folder)
    later(folder / "model.pt", run, "mine")
    (folder / name).write_text("new")
    assert put_in_place(arrived(folder), folder / "model.pt", run) == folder / name
    assert {each.name for each in folder.iterdir()} == {"model.pt", name}


def test_a_link_is_somebody_elses_and_stays(folder):
    place = folder / "model.pt"
    place.symlink_to("elsewhere")
    assert put_in_place(arrived(folder), place, a_run(folder)).name == "model.pt.cloud-train-1"
    assert place.is_symlink()
