"""What the story of a run says of ranks that formed their group again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_training.agent.progress import report_regroup
from airflow_training.agent.progress_tail import NewestProgress
from airflow_training.control.regrouping import regrouped_event
from airflow_training.control.reports import Regrouping
from airflow_training.documents.instances import InstanceKey
from airflow_training.runtimes.progress import progress_of

LINE = {"ranks": 4, "step": 17, "source": "rank 0", "lost_steps": 0, "seconds": 1.25, "revision": 2}
TOLD = Regrouping(at=9.0, ranks=4, step=17, source="rank 0", lost_steps=0, seconds=1.25, revision=2)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (TOLD, "4 ranks went on after step 17, with the state of rank 0: 0 steps lost, 1.2 s"),
        (
            Regrouping(at=9, ranks=3, step=1200, source="checkpoint", lost_steps=1, seconds=6.0),
            "3 ranks went on after step 1,200, with the state of the newest checkpoint: 1 step lost, 6.0 s",
        ),
    ],
)
def test_an_event_says_what_it_cost(told, words):
    event = regrouped_event(InstanceKey("worker", 1), told, now=10)
    assert event.message.startswith(words)
    assert (event.reason, event.role, event.index) == ("Regrouped", "worker", 1)
    assert event.data["lost_steps"] == told.lost_steps


def test_what_a_revision_was_expected_to_cost_stands_beside_it():
    moves = [
        {"revision": 1, "lost_steps": 4, "seconds": 9.0, "moved_bytes": 7},
        {"revision": 2, "lost_steps": 0, "seconds": 5.0, "moved_bytes": 2048},
    ]
    told = replace(TOLD, moved_bytes=2000)
    event = regrouped_event(InstanceKey("worker", 1), told, moves=moves, now=10)
    assert event.data["expected"] == moves[1]
    assert event.data["moved_bytes"] == 2000
    assert "the state of rank 0, 2,000 bytes of it moved: 0 steps lost" in event.message
    assert event.message.endswith(
        "revision 2 was expected to lose 0 steps, 5.0 s and to move 2,048 bytes"
    )
    plain = regrouped_event(InstanceKey("worker", 1), TOLD, moves=moves[:1], now=10)
    assert "expected" not in plain.data


def test_what_a_script_tells_is_read_with_its_time_and_the_newest_eight_count(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("TRAINING_PROGRESS_FILE", str(tmp_path / "progress"))
    for step in range(10):
        report_regroup(
            ranks=4,
            step=step,
            source="rank 0",
            lost_steps=0,
            seconds=1.0,
            revision=0,
            moved_bytes=step or None,
        )
    found = progress_of(NewestProgress(tmp_path / "progress").poll())
    assert found is not None
    assert [each.step for each in found.regrouped] == [*range(2, 10)]
    assert all(each.at > 0 for each in found.regrouped)
    assert [each.moved_bytes for each in found.regrouped] == [*range(2, 10)]


def test_what_makes_no_sense_is_left_out():
    good = {**LINE, "at": 9.0}
    wrong = [{**good, "step": -1}, {**good, "seconds": "1"}, {**good, "source": 4}, "x", {}]
    found = progress_of({"regrouped": [*wrong, good]})
    assert found is not None
    assert found.regrouped == (TOLD,)
    assert progress_of({"regrouped": "x"}) == progress_of({})
