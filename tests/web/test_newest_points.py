"""What is costly to look up is looked up seldom, and what was just said is shown at once."""

from __future__ import annotations

import pytest

from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.state.store import MetricPoint
from airflow_training.web import run_cache
from airflow_training.web.newest_points import NewestPoints


class SlowStore:
    """A store that takes a second per look, on a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.looks = 0
        self.metrics = self

    def newest_points(self, uid: str) -> list[MetricPoint]:
        self.now += 1
        self.looks += 1
        return [
            MetricPoint(role="worker", index=0, name=name, at=1.0, step=1, value=self.looks)
            for name in ("loss", "accuracy")
        ]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> SlowStore:
    found = SlowStore()
    monkeypatch.setattr(run_cache, "steady_now", lambda: found.now)
    return found


def test_a_look_that_takes_a_second_is_taken_once_a_minute(store: SlowStore):
    points = NewestPoints(store)  # type: ignore[arg-type]  # what they use of it
    while store.now < 200:
        points.of("run")
        store.now += 0.5
    assert store.looks == 4


def test_each_run_is_looked_at_for_itself(store: SlowStore):
    points = NewestPoints(store)  # type: ignore[arg-type]  # what they use of it
    for _ in range(3):
        points.of("one")
        points.of("two")
    assert store.looks == 2


def test_what_a_script_says_now_counts_before_an_older_look(store: SlowStore):
    points = NewestPoints(store)  # type: ignore[arg-type]  # what they use of it
    said = {
        InstanceKey("worker", 0): ProgressReport(metrics={"loss": 0.5}),
        InstanceKey("worker", 1): ProgressReport(step=3),
    }
    assert points.metrics("run", said) == {
        InstanceKey("worker", 0): {"loss": 0.5, "accuracy": 1},
        InstanceKey("worker", 1): {},
    }
