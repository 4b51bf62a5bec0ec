"""When instances were heard from, how fast they are, what was asked and is not done yet, how far lists say a run is."""

from __future__ import annotations

import math
from typing import Any

import pytest

from airflow_training.control.data_readings import DataReading, ReadingPoint
from airflow_training.control.model import InstanceEntry, Request
from airflow_training.control.reports import ProgressReport
from airflow_training.control.rollup import timestamp
from airflow_training.documents.instances import InstanceKey
from airflow_training.state.records import MetricPoint
from airflow_training.state.store import open_store
from airflow_training.web.answers import asked_of
from airflow_training.web.instance_reports import last_heard, listed_progress, sample_rates
from airflow_training.web.instance_usage import InstanceUsage
from tests.state.samples import a_ledger, take, worker
from tests.web.conftest import a_run
from tests.web.test_phrases import overview

NOW = 1000.0
KEY = InstanceKey("worker", 0)


def point(at: float) -> MetricPoint:
    return MetricPoint(role="worker", index=0, name="loss", at=at, step=1, value=1.0)


def usage(at: float) -> InstanceUsage:
    told: dict[str, Any] = dict.fromkeys(InstanceUsage.model_fields)
    return InstanceUsage(**{**told, "at": timestamp(at), "gpus": 0, "gpu_errors": []})


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        pytest.param({}, 100.0, id="its-change-of-state"),
        pytest.param({"progress": {KEY: ProgressReport(time=200.5)}}, 200.5, id="its-progress"),
        pytest.param(
            {"progress": {KEY: ProgressReport(step=1)}}, 100.0, id="progress-without-a-time"
        ),
        pytest.param({"points": [point(300), point(250)]}, 300.0, id="a-metric-of-its-log"),
        pytest.param({"usage": {KEY: usage(400)}}, 400.0, id="its-agent"),
        pytest.param({"points": [point(5000)]}, NOW, id="a-clock-that-is-ahead"),
    ],
)
def test_an_instance_is_heard_by_whatever_it_does(told: Any, expected: float):
    entry = worker(0, state="running", started_at=90.0, last_transition_at=100.0)
    sources: dict[str, Any] = {"progress": {}, "points": [], "usage": {}, **told}
    assert last_heard([entry], now=NOW, **sources) == {KEY: timestamp(expected)}


def test_what_never_began_was_never_heard():
    waits = worker(0, last_transition_at=100.0)
    gone = worker(1, started_at=90.0, retired=True)
    assert last_heard([waits, gone], progress={}, points=[], usage={}, now=NOW) == {}


def test_a_rate_is_counted_and_else_what_the_script_says():
    points = (ReadingPoint(at=10, samples=0), ReadingPoint(at=20, samples=640))
    readings = {
        InstanceKey("worker", 0): DataReading(since=20, points=points),
        InstanceKey("worker", 1): DataReading(since=20, points=points[:1]),
    }
    said = {InstanceKey("worker", index): {"samples_per_second": 8.0} for index in range(3)}
    said |= {
        InstanceKey("worker", 3): {"samples_per_second": math.nan},
        InstanceKey("worker", 4): {"loss": 1.0},
    }
    rates = {
        index: rate
        for (_, index), rate in sample_rates(
            readings, said, entries=running(5), state="Running"
        ).items()
    }
    assert rates == {0: 64.0, 1: 8.0, 2: 8.0}
    assert sample_rates(readings, said, entries=running(5), state="Paused") == {}


def running(count: int) -> dict[Any, InstanceEntry]:
    return {("worker", index): worker(index, state="running") for index in range(count)}


@pytest.mark.parametrize(
    ("state", "expected"), [("Running", {0}), ("Restarting", {0}), ("Failed", {0, 1, 2, 3})]
)
def test_only_what_runs_has_a_rate_and_of_a_run_that_is_over_all_that_belonged_to_it(
    state: Any, expected: set[int]
):
    entries = {
        **running(1),
        ("worker", 1): worker(1),
        ("worker", 2): worker(2, state="failed"),
        ("worker", 3): worker(3, state="succeeded"),
        ("worker", 4): worker(4, state="running", retired=True),
    }
    said: dict[Any, Any] = {("worker", index): {"samples_per_second": 8.0} for index in range(5)}
    rates = sample_rates({}, said, entries=entries, state=state)
    assert {index for _, index in rates} == expected


def asks(*kinds: str) -> list[Request]:
    return [
        Request(id=number, kind=kind, by="ann", at=5.0)  # type: ignore[arg-type]  # words of a table
        for number, kind in enumerate(kinds, 1)
    ]


@pytest.mark.parametrize(
    ("run", "requests", "expected"),
    [
        pytest.param(overview("Running"), asks("pause"), "pause", id="waits"),
        pytest.param(overview("Running"), asks("pause", "stop"), "stop", id="the-newest"),
        pytest.param(overview("Running"), asks("pause", "activate"), "pause", id="of-users"),
        pytest.param(overview("Running"), asks("activate", "reopen"), None, id="none-of-users"),
        pytest.param(overview("Stopped", drained=True), asks("kill"), None, id="it-is-over"),
        pytest.param(overview("Failed"), asks("kill"), "kill", id="it-ends"),
        pytest.param(overview("Pending", tombstone=True), asks("stop"), None, id="never-begins"),
    ],
)
def test_what_was_asked_is_told_until_the_loop_has_taken_it_up(
    run: Any, requests: list[Request], expected: str | None
):
    asked = asked_of(run, requests)
    assert (None if asked is None else asked.action) == expected
    if asked is not None:
        assert (asked.by, asked.at) == ("ann", timestamp(5.0))


def test_whoever_looks_sees_what_was_asked_until_it_is_done(client: Any):
    run = a_run()
    path = f"/api/dags/digits/trainings/{run.uid}"

    def asked(user: str) -> Any:
        return client.get(path, headers={"user": user}).json()["asked"]

    assert asked("op") is None
    client.post(
        f"{path}/actions",
        json={"action": "scale", "seen": "0.0", "role": "worker", "replicas": 3},
        headers={"Idempotency-Key": "a"},
    ).raise_for_status()
    for user in ("op", "viewer", "admin"):  # in another browser, or after a reload
        told = asked(user)
        assert (told["action"], told["role"], told["replicas"], told["by"]) == (
            "scale",
            "worker",
            3,
            "op",
        )
    store = open_store()
    lease, old = take(store, run.uid), store.ledger(run.uid)
    seen = a_ledger(*old.instances.values(), state="Running", seen_request=1)
    store.commit(run.uid, lease=lease, old=old, new=seen, events=[])
    assert asked("viewer") is None


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        pytest.param([], None, id="nothing-told"),
        pytest.param([(worker(0), ProgressReport(metrics={"loss": 1.0}))], None, id="no-step"),
        pytest.param(
            [
                (worker(0), ProgressReport(step=9, total_steps=10)),
                (worker(1), ProgressReport(step=5)),
            ],
            (5, 10, 0.5, None),
            id="the-slowest-counts",
        ),
        pytest.param(
            [
                (worker(0, retired=True), ProgressReport(step=1)),
                (worker(1), ProgressReport(step=5)),
            ],
            (5, None, None, None),
            id="of-those-that-belong-to-it",
        ),
        pytest.param(
            [
                (
                    worker(0, state="running", started_at=900.0),
                    ProgressReport(step=50, total_steps=100, time=950.0),
                )
            ],
            (50, 100, 0.5, 0.0),
            id="and-when-it-ends",
        ),
    ],
)
def test_a_list_says_how_far_a_run_is(told: Any, expected: Any):
    found = listed_progress(told, now=NOW)
    shown = found and (found.step, found.total_steps, found.fraction, found.eta_seconds)
    assert shown == expected
