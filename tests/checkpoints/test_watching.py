"""Folders that scripts fill by themselves: when their content is whole, and how it comes back."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_training.agent.progress_tail import NewestProgress
from airflow_training.checkpoints import reading
from airflow_training.checkpoints.watching import (
    WatchedFolder,
    is_being_written,
    restore_folder,
    step_of,
)
from airflow_training.runtimes.progress import progress_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "out"
    made.mkdir()
    return made


def told(tmp_path: Path, **resume: Any) -> dict[str, Any]:
    return {
        "root": str(tmp_path / "ckpt"),
        "incarnation": "0.0.0",
        "order": 0,
        "keep": 3,
        "keep_every": None,
        "resume": {"kind": "latest", "not_after": None, **resume},
        "initial": None,
        "environment": "",
    }


def watching(folder: Path, tmp_path: Path, **resume: Any) -> WatchedFolder:
    watched = WatchedFolder(folder, told(tmp_path, **resume))
    watched.begin(commits=True, restores=True)
    return watched


def looks(watched: WatchedFolder, *, reported: int | None = None, last: bool = False) -> bool:
    """Look as the process does; this test is the only one that writes."""
    return watched.poll(reported=reported, processes=[os.getpid()], last=last)


def steps(tmp_path: Path) -> list[int]:
    return [each.step for each in reading.history(str(tmp_path / "ckpt"))]


def test_what_is_the_same_at_two_looks_is_committed_once(folder: Path, tmp_path: Path) -> None:
    watched = watching(folder, tmp_path)
    assert not looks(watched)
    (folder / "model").write_text("one")
    assert not looks(watched), "it may still grow"
    assert looks(watched, reported=7)
    assert not looks(watched, reported=8), "nothing is new"
    assert steps(tmp_path) == [7]


def test_a_file_that_is_open_for_writing_is_not_whole(folder: Path, tmp_path: Path) -> None:
    watched = watching(folder, tmp_path)
    with (folder / "model").open("w") as file:
        file.write("half")
        file.flush()
        assert is_being_written(folder, [os.getpid()])
        assert [looks(watched) for _ in range(3)] == [False] * 3
    assert not is_being_written(folder, [os.getpid()])
    assert looks(watched)


def test_reading_a_file_disturbs_nobody(folder: Path) -> None:
    (folder / "model").write_text("one")
    with (folder / "model").open():
        assert not is_being_written(folder, [os.getpid()])


def test_the_last_look_takes_what_is_there(folder: Path, tmp_path: Path) -> None:
    watched = watching(folder, tmp_path)
    (folder / "model").write_text("one")
    assert looks(watched, last=True)


@pytest.mark.parametrize(
    ("names", "reported", "last", "step"),
    [
        pytest.param(["a"], 12, 3, 12, id="as-reported"),
        pytest.param(["checkpoint-500/model-00001-of-00002"], None, 3, 500, id="by-its-name"),
        pytest.param(["a"], None, 3, 4, id="the-next"),
        pytest.param(["a-5"], 2, 9, 10, id="always-later"),
    ],
)
def test_the_step_of_new_files(
    names: list[str], reported: int | None, last: int, step: int
) -> None:
    assert step_of(names, reported=reported, last=last) == step


def test_the_folder_becomes_what_the_checkpoint_holds(folder: Path, tmp_path: Path) -> None:
    files = {"a": b"one", "deep/er/b": os.urandom(5 << 20), "empty": b""}
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    watched = watching(folder, tmp_path)
    assert watched.poll(reported=1, processes=[], last=True)
    (folder / "torn").write_text("half")
    (folder / "a").write_text("torn")
    assert WatchedFolder(folder, told(tmp_path)).begin(commits=True, restores=True) == 1
    found = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
    assert {name: path.read_bytes() for name, path in found.items()} == files


def test_what_was_restored_is_not_committed_again(folder: Path, tmp_path: Path) -> None:
    (folder / "a").write_text("one")
    assert looks(watching(folder, tmp_path), reported=1, last=True)
    again = watching(folder, tmp_path)
    assert [looks(again, reported=2) for _ in range(3)] == [False] * 3


def test_an_older_one_is_put_back_where_that_is_wanted(folder: Path, tmp_path: Path) -> None:
    watched = watching(folder, tmp_path)
    for step in (1, 2):
        (folder / "a").write_text(f"of step {step}")
        assert looks(watched, reported=step, last=True)
    watching(folder, tmp_path, not_after=1)
    assert (folder / "a").read_text() == "of step 1"


def test_a_damaged_one_is_passed_over(folder: Path, tmp_path: Path) -> None:
    watched = watching(folder, tmp_path)
    for step in (1, 2):
        (folder / "a").write_text(f"of step {step}")
        assert looks(watched, reported=step, last=True)
    (newest,) = [p for p in _shards(tmp_path) if b"of step 2" in p.read_bytes()]
    newest.write_bytes(newest.read_bytes().replace(b"step 2", b"step 3"))
    watching(folder, tmp_path)
    assert (folder / "a").read_text() == "of step 1"


def test_a_rank_that_only_restores_tells_what_it_passed_over(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = watching(folder, tmp_path)
    for step in (1, 2):
        (folder / "a").write_text(f"of step {step}")
        assert looks(watched, reported=step, last=True)
    (newest,) = [p for p in _shards(tmp_path) if b"of step 2" in p.read_bytes()]
    newest.write_bytes(newest.read_bytes().replace(b"step 2", b"step 3"))
    progress = tmp_path / "progress.jsonl"
    monkeypatch.setenv("TRAINING_PROGRESS_FILE", str(progress))
    monkeypatch.setenv("TRAINING_CHECKPOINT", json.dumps(told(tmp_path)))
    for number in (1, 2):
        other = tmp_path / f"of rank {number}"
        assert WatchedFolder(other, told(tmp_path)).begin(commits=False, restores=True) == 1
    watching(folder, tmp_path)  # the first rank, which commits
    said = progress_of(NewestProgress(progress).poll())
    assert said is not None
    found = [*said.rejected, *(each for line in said.subtasks for each in line.rejected)]
    assert [each.step for each in found] == [2, 2, 2]
    assert {newest.name in each.why for each in found} == {True}
    assert all(each.is_same(found[0]) for each in found)


def test_a_commit_says_which_one_it_is_of_all(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = tmp_path / "progress.jsonl"
    monkeypatch.setenv("TRAINING_PROGRESS_FILE", str(progress))
    newest = NewestProgress(progress)
    for step, number in ((10, 1), (20, 2), (30, 3)):
        watched = watching(folder, tmp_path)  # begun again, each time
        (folder / "a").write_text(f"of step {step}")
        assert looks(watched, reported=step, last=True)
        said = progress_of(newest.poll())
        assert said is not None
        assert said.checkpoint is not None
        assert (said.checkpoint.step, said.checkpoint.number) == (step, number)


def _shards(tmp_path: Path) -> Iterator[Path]:
    return (p for p in (tmp_path / "ckpt" / "shards").rglob("*") if p.is_file())


def test_a_restore_that_was_cut_short_leaves_nothing_behind(folder: Path, tmp_path: Path) -> None:
    (folder / "a").write_text("one")
    assert looks(watching(folder, tmp_path), reported=1, last=True)
    left = tmp_path / ".out.restoring"
    left.mkdir()
    (left / "junk").write_text("junk")
    root = str(tmp_path / "ckpt")
    manifest = reading.newest(root)
    assert manifest is not None
    restore_folder(folder, root, manifest)
    assert [p.name for p in folder.iterdir()] == ["a"]
    assert not left.exists()
