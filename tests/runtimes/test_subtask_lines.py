"""Lines about single processes: the newest of each is kept, and what makes no sense is left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_training.agent.progress_tail import NewestProgress
from airflow_training.control.reports import ProcessReport, RejectedCheckpoint
from airflow_training.runtimes.progress import progress_of

GOOD = {"rank": 1, "generation": 2, "sequence": 3, "state": "SAVED", "verified": [10]}


def told(*lines: object) -> list[ProcessReport]:
    found = progress_of({"subtasks": list(lines)})
    assert found is not None
    return [*found.subtasks]


def test_a_whole_line_is_taken():
    line = {**GOOD, "step": 10, "world": 4, "group": "worker-0", "environment": "sha256:0"}
    assert told(line) == [
        ProcessReport(
            rank=1,
            generation=2,
            sequence=3,
            state="SAVED",
            step=10,
            verified=(10,),
            world=4,
            group="worker-0",
            environment="sha256:0",
        )
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"rank": None},
        {"rank": -1},
        {"rank": True},
        {"rank": 1.0},
        {"generation": "2"},
        {"sequence": 1 << 63},
        {"state": "ASLEEP"},
        {"state": ["SAVED"]},
        {"step": "x"},
        {"world": -4},
        {"group": 7},
        {"environment": {}},
    ],
    ids=str,
)
def test_a_line_that_makes_no_sense_is_left_out(change):
    assert told({**GOOD, **change}, GOOD) == told(GOOD)


@pytest.mark.parametrize("lines", [None, 7, {"rank": 1}, "x", [None, 3, "x", []]], ids=str)
def test_what_is_no_list_of_lines_says_nothing(lines):
    found = progress_of({"step": 1, "subtasks": lines})
    assert found is not None
    assert (found.step, found.subtasks) == (1, ())


def test_only_steps_that_are_steps_are_verified_and_the_newest_of_them():
    [line] = told({**GOOD, "verified": [-1, "x", 1, 2, 3, 4, 5]})
    assert line.verified == (2, 3, 4, 5)


def test_what_was_rejected_is_taken_as_far_as_it_makes_sense():
    good = {"at": 1.5, "step": 30, "why": "shards/x is missing"}
    nonsense = [None, 3, {}, {**good, "at": "now"}, {**good, "step": -1}, {**good, "why": 7}]
    more = {"at": 2, "step": None, "why": "y" * 1000 + "\ud800"}
    [line] = told({**GOOD, "rejected": [*nonsense, good, more]})
    assert line.rejected == (
        RejectedCheckpoint(at=1.5, step=30, why="shards/x is missing"),
        RejectedCheckpoint(at=2, why="y" * 300),
    )
    [line] = told({**GOOD, "rejected": [{**good, "step": step} for step in range(20)]})
    assert [each.step for each in line.rejected] == [*range(12, 20)]
    assert told({**GOOD, "rejected": "x"}) == told(GOOD)


def test_the_newest_line_of_each_process_outlives_many_steps(tmp_path: Path):
    path = tmp_path / "progress.jsonl"
    following = NewestProgress(path)
    with path.open("a") as file:
        for rank in (0, 1):
            for sequence in (1, 2):
                line = {**GOOD, "rank": rank, "sequence": sequence}
                file.write(json.dumps({"subtask": line}) + "\n")
        file.flush()
        following.poll()
        for step in range(5000):
            file.write(json.dumps({"step": step, "time": 1.0}) + "\n")
    found = progress_of(following.poll())
    assert found is not None
    assert found.step == 4999
    assert [(each.rank, each.sequence) for each in found.subtasks] == [(0, 2), (1, 2)]


def test_an_instance_can_tell_of_so_many_processes_only_as_fit_into_a_report(tmp_path: Path):
    path = tmp_path / "progress.jsonl"
    long = {**GOOD, "group": "g" * 80, "environment": "e" * 71, "verified": [10**15] * 4}
    rejected = {"rejected": [{"at": 1e9 / 7, "step": 10**15, "why": "w" * 300}] * 8}
    path.write_text(
        json.dumps({"subtask": {**long, "rank": 0, **rejected}})
        + "\n"
        + "".join(json.dumps({"subtask": {**long, "rank": n}}) + "\n" for n in range(1, 150))
    )
    document = NewestProgress(path).poll()
    assert 100 < len(document["subtasks"]) <= 150
    assert len(json.dumps(document)) + 8192 < 1 << 16
