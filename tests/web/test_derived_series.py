"""Samples as an axis, the time of a step where nobody tells it, and what instances use as curves."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from airflow_training.agent import progress_tail
from airflow_training.control import system_metrics
from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.runtimes.progress import progress_of
from airflow_training.state.store import MetricPoint, open_store
from airflow_training.web.derived_series import counters_of, shown_names, step_times, with_samples
from airflow_training.web.series import StoredSeries
from tests.web.conftest import a_run

MINUTE = 1_700_000_040.0
"""A full one."""


def series_of(client: Any, uid: str, **query: Any) -> dict[str, Any]:
    found: dict[str, Any] = client.get(
        f"/api/dags/digits/trainings/{uid}/series", params=query
    ).json()
    return found


def report(uid: str, *lines: ProgressReport, index: int = 0) -> None:
    for line in lines:
        open_store().progress.save(uid, {InstanceKey("worker", index): line})


def a_line(step: int, samples: int | None = None, **metrics: float) -> ProgressReport:
    return ProgressReport(step=step, time=100.0 + step, samples=samples, metrics=metrics)


def told(steps: Sequence[float], times: Sequence[float]) -> StoredSeries:
    return StoredSeries(
        role="worker",
        index=0,
        rank=None,
        name="loss",
        at=np.array(times, float),
        steps=np.array(steps, float),
        values=np.ones(len(times)),
    )


def a_point(
    name: str, *, index: int = 0, step: int | None = 1, rank: int | None = None
) -> MetricPoint:
    return MetricPoint(
        role="worker", index=index, rank=rank, name=name, at=1.0, step=step, value=1.0
    )


def test_samples_are_an_axis_and_no_metric(client: Any):
    uid = a_run().uid
    report(uid, a_line(1, 64, loss=3), a_line(2, 128, loss=2), a_line(3, loss=1))
    report(uid, a_line(1, loss=5), index=1)
    page = series_of(client, uid, name="loss")
    assert page["names"] == ["loss", "step_time_seconds"]
    assert [each["x_samples"] for each in page["series"]] == [[64, 128, None], []]
    assert open_store().metrics.newest(uid) == {
        ("worker", 0): {"loss": 1},
        ("worker", 1): {"loss": 5},
    }
    assert {each.name for each in open_store().metrics.series(uid)} == {"loss"}


def test_samples_between_two_reports_are_interpolated(client: Any):
    uid = a_run().uid
    report(uid, a_line(1, 100), a_line(2, loss=3), a_line(3, 300))
    [found] = series_of(client, uid, name="loss")["series"]
    assert found["x_samples"] == [200]


@pytest.mark.parametrize(
    "counted",
    [
        pytest.param([64, 128, 192, 64, 128], id="since-it-was-restored"),
        pytest.param([64, 128, 192, 128, 192], id="since-the-beginning"),
    ],
)
def test_samples_go_on_where_a_script_was_restored(counted: list[int]):
    series = dataclasses.replace(
        told([1, 2, 3, 2, 3], [1, 2, 3, 10, 11]), values=np.array(counted, float)
    )
    found = with_samples(series, series).samples
    assert found is not None
    assert found.tolist() == [64, 128, 192, 128, 192]


def test_an_agent_tells_samples_of_every_line(client: Any, tmp_path: Any):
    assert progress_tail._SAMPLES == system_metrics.SAMPLES
    path = tmp_path / "progress.jsonl"
    path.write_text(
        "".join(
            f'{{"step": {each}, "time": {100 + each}, "samples": {32 * each}, "metrics": {{"loss": 1}}}}\n'
            for each in (1, 2, 3)
        )
    )
    uid = a_run().uid
    newest = progress_of(progress_tail.NewestProgress(path).poll())
    assert newest is not None
    report(uid, newest)
    [found] = series_of(client, uid, name="loss")["series"]
    assert found["x_samples"] == [32, 64, 96]


def test_a_band_along_samples_begins_where_samples_do(client: Any):
    uid = a_run().uid
    for index in range(2):
        report(uid, a_line(1, 64, loss=index), a_line(2, 128, loss=index), index=index)
    page = series_of(client, uid, name="loss", most=1, axis="samples")
    assert [band["x"] for band in page["bands"]] == [[64, 128]]
    heat = client.get(
        f"/api/dags/digits/trainings/{uid}/heat", params={"name": "loss", "axis": "samples"}
    ).json()
    assert heat["x"] == [64, 128]


@pytest.mark.parametrize(
    ("steps", "times", "expected"),
    [
        pytest.param([1, 2, 4], [10, 12, 13], [(2, 2), (4, 0.5)], id="by-the-steps-between"),
        pytest.param([1, 2, 3, 2, 3], [1, 2, 3, 9, 10], [(2, 1), (3, 1), (3, 1)], id="done-again"),
        pytest.param(
            [1, 2, 3, 4, 5],
            [5, 10, 10 + 1e-6, 10 + 2e-6, 20],
            [(4, 5 / 3), (5, 10)],
            id="read-from-a-log-at-once",
        ),
        pytest.param([np.nan, 1], [1, 2], [], id="one-step"),
        pytest.param([], [], [], id="nothing"),
    ],
)
def test_the_time_of_a_step_is_that_since_the_one_before(steps, times, expected):
    found = step_times(told(steps, times))
    pairs = zip(found.steps.tolist(), found.values.tolist(), strict=True)
    assert [*pairs] == [(step, pytest.approx(seconds)) for step, seconds in expected]


def test_the_time_of_a_step_is_shown_where_nobody_tells_it(client: Any):
    uid = a_run().uid
    report(uid, *(a_line(step, loss=1) for step in (1, 2, 4)))
    [found] = series_of(client, uid, name="step_time_seconds")["series"]
    assert (found["x_step"], found["y"]) == ([2, 4], [1, 1])
    assert series_of(client, uid, name="step_time_seconds", start=103)["series"][0]["x_step"] == [4]


@pytest.mark.parametrize(
    "name", ["step_time", "batch/seconds", "ms_per_iteration", "train step time"]
)
def test_where_somebody_tells_the_time_of_a_step_it_is_not_made_up(name: str):
    points = [a_point("loss"), a_point(name)]
    assert {*shown_names(points)} == {"loss", name}


def test_steps_are_those_of_the_metric_that_is_told_at_most_steps():
    points = [a_point("accuracy", step=10), a_point("lr", step=12), a_point("loss", step=12)]
    assert counters_of(points)[InstanceKey("worker", 0)].steps == points[2]
    assert counters_of([a_point("loss", step=None)])[InstanceKey("worker", 0)].steps is None


def test_what_an_instance_uses_is_a_curve_with_a_point_a_minute(client: Any):
    uid = a_run().uid
    report(
        uid,
        *(
            ProgressReport(step=each, time=MINUTE + 20 * each, metrics={"loss": 1.0})
            for each in range(1, 9)
        ),
    )
    store = open_store()
    for number in range(1, 14):
        at = MINUTE + 10 * number
        record = {
            "number": number,
            "at": at,
            "on": "time",
            "cgroup": "own",
            "cpu": {"used_seconds": 15 * number},
            "memory": {"used_bytes": number},
        }
        store.environments.save(uid, {InstanceKey("worker", 0): [json.dumps(record)]})
    page = series_of(client, uid, name=["system/memory_bytes", "system/cpu_cores"])
    assert [*page["names"]] == [
        "loss",
        "step_time_seconds",
        "system/cpu_cores",
        "system/memory_bytes",
    ]
    cores, memory = page["series"]
    assert (cores["x_time"], cores["y"]) == ([MINUTE + 60, MINUTE + 120], [1.5, 1.5])
    assert memory["x_time"] == [MINUTE + 10, MINUTE + 60, MINUTE + 120]
    assert memory["y"] == [1, 6, 12], "the first of each minute"
    assert memory["x_step"] == [1, 3, 6]
    assert store.metrics.newest(uid) == {("worker", 0): {"loss": 1}}


def test_an_exit_is_no_point(client: Any):
    uid = a_run().uid
    record = {"number": 1, "at": MINUTE, "on": "exit", "cgroup": "own", "memory": {"used_bytes": 7}}
    open_store().environments.save(uid, {InstanceKey("worker", 0): [json.dumps(record)]})
    assert series_of(client, uid)["names"] == []


def test_a_scripts_own_metric_may_have_a_name_of_that_kind(client: Any):
    uid = a_run().uid
    report(uid, ProgressReport(step=1, time=1.0, metrics={"system/gpu_temp": 70.0}))
    assert open_store().metrics.newest(uid) == {("worker", 0): {"system/gpu_temp": 70.0}}
    assert [each.name for each in open_store().metrics.series(uid)] == ["system/gpu_temp"]


@pytest.mark.parametrize(
    "odd", [{"devices": 5}, {"at": 10**400}, {"memory": [1]}], ids=["devices", "at", "memory"]
)
def test_an_odd_record_is_kept_and_makes_no_point(client: Any, odd: dict[str, Any]):
    uid = a_run().uid
    record = json.dumps({"number": 1, "at": MINUTE, "on": "time", **odd})
    open_store().environments.save(uid, {InstanceKey("worker", 0): [record]})
    assert len(open_store().environments.of_run(uid)[InstanceKey("worker", 0)]) == 1
    assert series_of(client, uid)["names"] == []
