"""What a script says of its files, line by line, and what becomes of it in a report."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from airflow_training.agent.data_files import MOST_TOLD, DataFiles
from airflow_training.agent.progress import report
from airflow_training.agent.progress_tail import NewestProgress
from airflow_training.control.reports import FileRead, FilesReport
from airflow_training.runtimes.progress import progress_of


def told(*lines: Any) -> dict[str, Any]:
    files = DataFiles()
    for line in lines:
        files.add(line)
    return files.document()


def a_file(name: Any, read: Any, total: Any = 10) -> dict[str, Any]:
    return {"name": name, "read": read, "total": total}


def test_the_newest_of_each_file_is_told_and_what_was_read_last_comes_first():
    found = told([a_file("a", 5), a_file("b", 1)], [a_file("a", 10)], [a_file("b", 1, 20)])
    assert found == {
        "read": 11,
        "known": 2,
        "done": 1,
        "newest": [a_file("a", 10), a_file("b", 1, 20)],
    }


def test_a_file_that_is_read_again_counts_again():
    assert told([a_file("a", 10)], [a_file("a", 4)], [a_file("a", 6)])["read"] == 16


@pytest.mark.parametrize(
    "line",
    [
        None,
        "a",
        {"name": "a"},
        [None, 7, "a", []],
        [a_file("", 1)],
        [a_file(3, 1)],
        [a_file("a", -1)],
        [a_file("a", math.nan)],
        [a_file("a", math.inf)],
        [a_file("a", 1 << 70)],
        [a_file("a", True)],
        [a_file("a", "1")],
        [{"name": "a"}],
    ],
)
def test_what_is_no_file_with_a_number_read_is_left_out(line):
    assert told(line) == {}


def test_a_total_that_is_no_number_is_not_known():
    assert told([a_file("a", 1, "many")])["newest"] == [a_file("a", 1, None)]


def test_many_files_and_long_names_leave_a_report_small():
    many = told([a_file(f"{number}", 1) for number in range(10_000)])
    assert len(many["newest"]) == MOST_TOLD
    assert many["newest"][0]["name"] == "9999"
    assert many["read"] == 10_000
    long = told([a_file("\U0001f600" * 1000 + str(number), 1) for number in range(500)])
    assert len(json.dumps(long)) < 1 << 15
    assert long["newest"][0]["name"].endswith("499")


def test_a_script_tells_of_files_and_the_report_has_them(tmp_path: Path, monkeypatch):
    path = tmp_path / "progress.jsonl"
    monkeypatch.setenv("TRAINING_PROGRESS_FILE", str(path))
    report(step=1, samples=64, files=[{"name": "a.npz", "read": 5, "total": 10}])
    report(step=2, samples=128)
    found = progress_of(NewestProgress(path).poll())
    assert found is not None
    assert (found.step, found.samples) == (2, 128)
    assert found.files == FilesReport(
        read=5, known=1, done=0, newest=(FileRead(name="a.npz", read=5, total=10),)
    )


@pytest.mark.parametrize(
    "files",
    [
        [],
        "a",
        {"read": 1},
        {"read": -1, "known": 1, "done": 1},
        {"read": math.nan, "known": 1, "done": 1},
        {"read": 1, "known": True, "done": 1},
        {"read": 1, "known": 1, "done": 0.5},
    ],
)
def test_files_of_a_pod_that_make_no_sense_are_no_files(files):
    found = progress_of({"step": 1, "files": files})
    assert found is not None
    assert (found.step, found.files) == (1, None)


def test_of_files_of_a_pod_what_makes_sense_is_kept():
    newest = [None, {"name": 3}, *(a_file("\ud800" + "x" * 300, 1, math.nan) for _ in range(500))]
    found = progress_of({"files": {"read": 1, "known": 1, "done": 1, "newest": newest}})
    assert found is not None
    assert found.files is not None
    assert len(found.files.newest) == MOST_TOLD - 2
    assert {(len(each.name), each.total) for each in found.files.newest} == {(200, None)}
    surrogate = {"read": 1, "known": 1, "done": 1, "newest": [a_file("\ud800.npz", 1)]}
    found = progress_of({"files": surrogate})
    assert found is not None
    assert found.files is not None
    assert found.files.newest[0].name == "?.npz"
