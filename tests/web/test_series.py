"""Of a run that pages look at again and again only new points are read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from airflow_training.control.reports import ProgressReport, ReportedValue
from airflow_training.documents.instances import InstanceKey
from airflow_training.state.store import MetricColumns, MetricPoint, open_store
from airflow_training.web import series
from airflow_training.web.series import SeriesMemory
from tests.web.conftest import a_run


class CountingStore:
    """The store, with how many points were read from it."""

    def __init__(self) -> None:
        self.store = open_store()
        self.read = 0
        self.metrics = self

    def columns(self, uid: str, of: Any, *, most: int) -> Sequence[MetricColumns]:
        found = self.store.metrics.columns(uid, of, most=most)
        self.read += sum(len(each.at) for each in found)
        return found


@pytest.fixture
def store(airflow_home: Path) -> CountingStore:
    return CountingStore()


def report(uid: str, *times: float, index: int = 0) -> None:
    for time in times:
        line = ProgressReport(step=int(time), time=time, metrics={"loss": time})
        open_store().progress.save(uid, {InstanceKey("worker", index): line})


def times(memory: SeriesMemory, uid: str, *indexes: int) -> list[list[float]]:
    points = [
        MetricPoint(role="worker", index=index, name="loss", at=0.0, step=None, value=0.0)
        for index in indexes
    ]
    return [each.at.tolist() for each in memory.of(uid, points)]


def test_a_second_look_reads_what_is_new(store: CountingStore):
    uid, memory = a_run().uid, SeriesMemory(store)  # type: ignore[arg-type]  # what they use of it
    report(uid, 1, 2, 3)
    report(uid, 1, index=1)
    assert times(memory, uid, 0, 1) == [[1, 2, 3], [1]]
    report(uid, 4, 5)
    report(uid, 2, index=1)
    assert times(memory, uid, 1, 0) == [[1, 2], [1, 2, 3, 4, 5]]
    assert store.read == 7
    assert times(memory, uid, 2) == [[]]


def test_a_point_that_comes_late_is_there_after_a_minute(
    store: CountingStore, monkeypatch: pytest.MonkeyPatch
):
    now = [0.0]
    monkeypatch.setattr(series, "steady_now", lambda: now[0])
    uid, memory = a_run().uid, SeriesMemory(store)  # type: ignore[arg-type]  # what they use of it
    report(uid, 5)
    assert times(memory, uid, 0) == [[5]]
    report(uid, 1)
    now[0] = 61.0
    assert times(memory, uid, 0) == [[1, 5]]


def test_what_was_asked_for_longest_ago_is_forgotten_first(store: CountingStore):
    memory = SeriesMemory(store, points=5)  # type: ignore[arg-type]  # what they use of it
    first, second = a_run("first").uid, a_run("second").uid
    report(first, 1, 2, 3)
    report(second, 1, 2)
    for uid in (first, second, first):
        times(memory, uid, 0)
    assert store.read == 5
    report(second, 3)
    assert times(memory, second, 0) == [[1, 2, 3]]
    assert store.read == 6, "it was kept"
    times(memory, first, 0)
    assert store.read == 9


def test_a_run_that_is_too_large_to_keep_is_told_too(store: CountingStore):
    memory = SeriesMemory(store, points=2)  # type: ignore[arg-type]  # what they use of it
    uid = a_run().uid
    report(uid, 1, 2, 3)
    assert times(memory, uid, 0) == times(memory, uid, 0) == [[1, 2, 3]]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(None, None, [1, 2, 3]), (2, None, [2, 3]), (None, 2, [1, 2]), (1.5, 2.5, [2]), (9, None, [])],
)
def test_a_window_has_both_its_ends(
    store: CountingStore, start: float | None, end: float | None, expected: list[float]
):
    uid, memory = a_run().uid, SeriesMemory(store)  # type: ignore[arg-type]  # what they use of it
    report(uid, 1, 2, 3)
    point = MetricPoint(role="worker", index=0, name="loss", at=0.0, step=None, value=0.0)
    [whole] = memory.of(uid, [point])
    assert np.array_equal(whole.between(start, end).steps, expected)


def test_a_long_series_is_read_slice_by_slice(
    store: CountingStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(series, "_SLICE", 3)
    uid, memory = a_run().uid, SeriesMemory(store)  # type: ignore[arg-type]  # what they use of it
    report(uid, *range(1, 9))
    report(uid, 1, 2, 3, index=1)
    assert times(memory, uid, 0, 1) == [[*range(1, 9)], [1, 2, 3]]
    assert store.read == 11


def test_of_more_than_can_be_held_the_extremes_are_kept_and_a_window_is_read_whole(
    store: CountingStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(series, "_SLICE", 50)
    monkeypatch.setattr(series, "_LEAST_OF_SERIES", 40)
    uid = a_run().uid
    memory = SeriesMemory(store, most_read=40)  # type: ignore[arg-type]  # what they use of it
    lines = [(step, 99.0 if step == 77 else step / 1000) for step in range(200)]
    points = {"loss": tuple(ReportedValue(step, float(step), value) for step, value in lines)}
    report = ProgressReport(time=199.0, points=points)
    open_store().progress.save(uid, {InstanceKey("worker", 0): report})
    point = MetricPoint(role="worker", index=0, name="loss", at=0.0, step=None, value=0.0)
    [whole] = memory.of(uid, [point])
    assert len(whole.at) <= 50
    assert len(whole.at) + whole.left_out == 200
    assert (whole.at[0], whole.at[-1], whole.values.max()) == (0, 199, 99)
    [part] = memory.of(uid, [point], start=70, end=80)
    assert part.between(70, 80).at.tolist() == [*range(70, 81)]
    assert not part.left_out
