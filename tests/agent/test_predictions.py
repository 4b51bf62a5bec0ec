"""Which of the files that a script writes are published, and that nothing else ever is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from airflow_training.agent import predictions
from airflow_training.agent.predictions import NewPredictions, publish


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "predictions"
    made.mkdir()
    return made


def test_a_file_is_complete_once_it_stays_as_it_is(folder: Path):
    new = NewPredictions(str(folder), say=print)
    (folder / "step-1.csv").write_text("label,prediction\n")
    assert not new.complete(at_end=False)
    ready = new.complete(at_end=False)
    assert [*ready] == ["step-1.csv"]
    assert new.complete(at_end=False) == ready, "nobody said that it was brought away"
    new.published(ready)
    assert not new.complete(at_end=True)
    (folder / "step-1.csv").write_text("label,prediction\n1,1\n")
    assert not new.complete(at_end=False)
    assert [*new.complete(at_end=False)] == ["step-1.csv"]


def test_what_is_there_at_the_end_is_complete(folder: Path):
    (folder / "step-2.png").write_bytes(b"x")
    assert [*NewPredictions(str(folder), say=print).complete(at_end=True)] == ["step-2.png"]


def test_a_file_that_changed_while_it_was_brought_away_is_brought_again(folder: Path):
    new = NewPredictions(str(folder), say=print)
    path = folder / "step-1.csv"
    path.write_text("a")
    new.complete(at_end=False)
    ready = new.complete(at_end=False)
    path.write_text("a longer one")
    new.complete(at_end=False)
    new.published(ready)
    assert [*new.complete(at_end=False)] == ["step-1.csv"]


@pytest.mark.parametrize("name", [".step-1.csv", "step-1.csv.tmp", "step-1.csv.part", "a.csv~"])
def test_names_of_files_that_are_not_complete_are_passed_over_in_silence(folder: Path, name: str):
    (folder / name).write_text("x")
    said: list[str] = []
    assert not NewPredictions(str(folder), say=said.append).complete(at_end=True)
    assert said == []


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("a.html", "its name"),
        ("a.csv.exe", "its name"),
        ("-x.csv", "its name"),
        ("a b.csv", "its name"),
        ("<img src=x>.csv", "its name"),
        ("a\nb.csv", "its name"),
        ("\u00e4.csv", "its name"),
        ("x" * 200 + ".csv", "its name"),
    ],
)
def test_other_names_are_refused_once(folder: Path, name: str, why: str):
    (folder / name).write_text("x")
    said: list[str] = []
    new = NewPredictions(str(folder), say=said.append)
    for _ in range(3):
        assert not new.complete(at_end=True)
    (line,) = said
    assert why in line
    assert "\n" not in line


def test_links_folders_and_pipes_are_refused(folder: Path, tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text("token")
    (folder / "link.csv").symlink_to(secret)
    (folder / "folder.csv").mkdir()
    os.mkfifo(folder / "pipe.csv")
    said: list[str] = []
    assert not NewPredictions(str(folder), say=said.append).complete(at_end=True)
    assert len(said) == 3
    assert all("no plain file" in line for line in said)


def test_a_file_that_is_too_large_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch):
    with (folder / "big.csv").open("wb") as file:
        file.truncate(predictions.MOST_BYTES + 1)
    said: list[str] = []
    assert not NewPredictions(str(folder), say=said.append).complete(at_end=True)
    assert "67108865 bytes" in said[0]
    monkeypatch.setattr(predictions, "MOST_BYTES", 3)
    (folder / "grown.csv").write_text("four")
    assert [*publish(str(folder), ["grown.csv"], str(folder / "out"))] == [False]


def test_there_are_not_more_files_than_a_page_can_list(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(predictions, "MOST_FILES", 2)
    said: list[str] = []
    new = NewPredictions(str(folder), say=said.append)
    for number in range(3):
        (folder / f"{number}.csv").write_text("x")
        new.published(new.complete(at_end=True))
    assert len(said) == 1
    (folder / "0.csv").write_text("another")
    assert [*new.complete(at_end=True)] == ["0.csv"], "one of those may change"


def test_files_reach_an_address_whole(folder: Path, tmp_path: Path):
    (folder / "a.csv").write_text("1")
    done = [*publish(str(folder), ["a.csv", "gone.csv"], f"{tmp_path}/there/worker-0/")]
    assert done == [True, False]
    assert [each.name for each in (tmp_path / "there/worker-0").iterdir()] == ["a.csv"]


def test_a_link_that_took_a_files_place_or_the_folders_is_not_followed(
    folder: Path, tmp_path: Path
):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "a.csv").write_text("token")
    (folder / "a.csv").symlink_to(secret / "a.csv")
    os.mkfifo(folder / "b.csv")
    (folder / "c.csv").mkdir()
    names = ["a.csv", "b.csv", "c.csv"]
    assert [*publish(str(folder), names, str(tmp_path / "out"))] == [False, False, False]
    link = tmp_path / "link"
    link.symlink_to(secret)
    with pytest.raises(OSError, match="link"):
        [*publish(str(link), ["a.csv"], str(tmp_path / "out"))]
    assert not (tmp_path / "out").exists()
