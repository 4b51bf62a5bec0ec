"""What is brought away of an output while more of it is written: whole files, whatever happens to the others."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from airflow_training.agent import upload
from airflow_training.agent.early_output import _Away
from airflow_training.agent.order import Order


@pytest.fixture
def away(tmp_path: Path) -> _Away:
    (tmp_path / "output").mkdir()
    return _Away(Order(output_dir=str(tmp_path / "output"), output_uri=str(tmp_path / "there")))


def look(away: _Away) -> None:
    away.bring(away.found(), others=[])


def test_a_file_is_brought_once_it_has_stayed_the_same(away, tmp_path):
    (tmp_path / "output" / "model.pt").write_text("whole")
    look(away)
    assert not (tmp_path / "there").exists()
    look(away)
    assert (tmp_path / "there" / "model.pt").read_text() == "whole"


def test_what_changes_while_it_is_copied_never_takes_the_place_of_what_was_there(
    away, tmp_path, monkeypatch
):
    model = tmp_path / "output" / "model.pt"
    model.write_text("whole")
    look(away)
    look(away)
    model.write_text("new and whole")
    look(away)
    copy = shutil.copy2

    def copy_half(source, target):
        copy(source, target)
        model.write_text("half")

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copy2", copy_half)
        look(away)
    assert [each.read_text() for each in (tmp_path / "there").iterdir()] == ["whole"]
    model.write_text("the newest")
    look(away)
    look(away)
    assert [each.read_text() for each in (tmp_path / "there").iterdir()] == ["the newest"]


def test_one_that_cannot_be_brought_holds_no_other_up(away, tmp_path):
    (tmp_path / "there" / "a.pt").mkdir(parents=True)  # in the way
    for name in ("a.pt", "b.pt", "c.pt"):
        (tmp_path / "output" / name).write_text(name)
    look(away)
    found = away.found()
    (tmp_path / "output" / "b.pt").unlink()
    with pytest.raises(OSError, match=r"a\.pt"):
        away.bring(found, others=[])
    assert (tmp_path / "there" / "c.pt").read_text() == "c.pt"


def test_a_folder_that_is_removed_during_a_look_is_no_mistake(away, tmp_path, monkeypatch):
    def gone(_):
        yield "a.pt", tmp_path / "output" / "a.pt"
        raise FileNotFoundError(2, "No such file or directory", "checkpoint-1")

    monkeypatch.setattr(upload, "output_files", gone)
    assert away.found() in ({}, {"a.pt": tmp_path / "output" / "a.pt"})


def test_what_was_left_half_copied_is_nothing_to_fail_for(tmp_path):
    upload.remove_parts(str(tmp_path / "nowhere"), 1)
    (tmp_path / ".model.pt.17.part").mkdir()
    upload.remove_parts(str(tmp_path), 17)
