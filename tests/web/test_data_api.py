"""What instances have read, as the page gets it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from airflow_training.control.data_readings import DataReading, ReadingPoint
from airflow_training.control.reports import FileRead, FilesReport, ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.state.store import open_store
from airflow_training.web.data import imbalance_of, stalled_seconds
from tests.state.samples import a_ledger, worker
from tests.web.conftest import a_run
from tests.web.test_configuration import RANKER, resolved
from tests.web.test_runs_api import get

POINTS = tuple(ReadingPoint(at=float(at), samples=at) for at in range(0, 20, 2))


def tell(run: Any, index: int, **fields: Any) -> None:
    open_store().progress.save(run.uid, {InstanceKey("worker", index): ProgressReport(**fields)})


def files_of(*files: tuple[str, float, float | None]) -> FilesReport:
    newest = tuple(FileRead(name=name, read=read, total=total) for name, read, total in files)
    done = sum(each.read == each.total for each in newest)
    return FilesReport(
        read=sum(each.read for each in newest), known=len(newest), done=done, newest=newest
    )


@pytest.fixture
def run(airflow_home: Any) -> Any:
    workers = [worker(index, state="running", node=f"n{index}") for index in range(3)]
    return a_run(ledger=a_ledger(*workers, state="Running", started_at=1.0))


def test_each_rank_is_told_with_its_rates(client, run):
    now = open_store().now()
    for second in range(-10, 1, 2):
        at, done = now + second, 10 + second
        tell(run, 0, time=at, step=done, samples=100 * done, files=files_of(("a", done, 10.0)))
        tell(run, 1, time=at, step=done, samples=50 * done)
    found = get(client, f"dags/digits/trainings/{run.uid}/data")
    first, second, third = found["instances"]
    assert (first["node"], first["rank"], first["samples"], first["step"]) == ("n0", 0, 1000, 10)
    assert first["samples_per_second"] == pytest.approx(100)
    assert (first["read_per_second"], first["read"]) == (pytest.approx(1), 10)
    assert (first["files_known"], first["files_done"]) == (1, 1)
    assert (second["read"], second["files_known"], third["samples"]) == (None, 0, None)
    assert found["samples"] == 1500
    assert found["samples_per_second"] == pytest.approx(150)
    assert found["imbalance"]["percent"] == pytest.approx(200 / 3)
    assert (found["imbalance"]["most"], found["imbalance"]["least"]) == ("worker-0", "worker-1")
    assert found["imbalances"]["worker"] == found["imbalance"]
    assert found["stalls"] == []


def test_who_waits_is_told_and_has_no_rate(client, run):
    now = open_store().now()
    for second in (-200, -198, -196, -100, -98, -96):
        tell(run, 0, time=now + second, step=second + 200, samples=second + 200)
    found = get(client, f"dags/digits/trainings/{run.uid}/data")
    first = found["instances"][0]
    assert first["stalled_seconds"] == pytest.approx(96, abs=5)
    assert (first["samples_per_second"], first["stall_count"]) == (0, 2)
    assert [(each["over"], each["step"]) for each in found["stalls"]] == [(False, 104), (True, 4)]
    assert found["stalls"][1]["seconds"] == pytest.approx(96)


@pytest.mark.parametrize(
    ("state", "more"),
    [
        pytest.param("succeeded", {}, id="it-has-ended"),
        pytest.param("running", {"section": "eval"}, id="it-evaluates"),
        pytest.param("running", {"over": True}, id="it-has-made-its-last-step"),
        pytest.param("running", {"points": POINTS[:2]}, id="it-has-hardly-begun"),
    ],
)
def test_who_has_nothing_to_wait_for_does_not(state, more):
    known: dict[str, Any] = {"since": 18.0, "points": POINTS}
    assert stalled_seconds(DataReading(**known), "running", now=60) == 42
    assert stalled_seconds(DataReading(**{**known, **more}), state, now=60) is None


def test_nobody_waits_in_a_training_that_is_over(client):
    run = a_run(ledger=a_ledger(worker(0, state="running"), state="Failed", started_at=1.0))
    now = open_store().now()
    for second in (-200, -198, -196):
        tell(run, 0, time=now + second, samples=second + 200)
    found = get(client, f"dags/digits/trainings/{run.uid}/data")
    assert found["instances"][0]["stalled_seconds"] is None


@pytest.mark.parametrize(
    ("samples", "percent"),
    [
        ({}, None),
        ({"a": 5}, None),
        ({"a": 0, "b": 0}, None),
        ({"a": 5, "b": 5}, 0),
        ({"a": 30, "b": 10, "c": 20}, 100),
        ({f"w{i}": 100 + (i == 7) * 50 for i in range(1000)}, pytest.approx(49.975, abs=1e-3)),
    ],
)
def test_imbalance_is_how_far_the_most_and_the_least_are_apart(samples, percent):
    found = imbalance_of(samples)
    assert (None if found is None else found.percent) == percent


def test_files_are_those_of_all_or_of_one_and_are_found_by_name(client, run):
    tell(run, 0, files=files_of(("b.npz", 1.0, 2.0), ("<img src=x>", 3.0, None)))
    tell(run, 2, files=files_of(("c.npz", 1.0, 2.0)))
    path = f"dags/digits/trainings/{run.uid}/data/files"

    def names(**query: Any) -> list[str]:
        return [each["name"] for each in get(client, path, **query)["files"]]

    assert names() == ["b.npz", "<img src=x>", "c.npz"]
    assert names(role="worker", index=2) == ["c.npz"]
    assert names(role="nobody") == []
    assert names(text="NPZ") == ["b.npz", "c.npz"]
    first = get(client, path, limit=1)
    assert (len(first["files"]), first["more"]) == (1, True)
    assert first["files"][0] == {
        "name": "b.npz",
        "role": "worker",
        "index": 0,
        "node": "n0",
        "read": 1,
        "total": 2,
    }


def test_files_that_the_job_gives_are_told_before_the_script_speaks(client, run, monkeypatch):
    monkeypatch.setattr("airflow_training.web.data.data_files", lambda *_, **__: ["a.npz", "b.npz"])
    tell(run, 0, files=files_of(("/mnt/a.npz", 1.0, 2.0)))
    found = get(client, f"dags/digits/trainings/{run.uid}/data/files", role="worker")["files"]
    assert [(each["name"], each["read"]) for each in found] == [("/mnt/a.npz", 1), ("b.npz", None)]


def test_of_our_trainer_only_files_are_told_in_which_samples_of_a_rank_lie(client, airflow_home):
    text = RANKER.replace("uri: s3://lists/2026", "uri: s3://lists, files: [a.libsvm, b.libsvm]")
    workers = [worker(index, state="running") for index in range(2)]
    run = a_run(job=resolved(text), ledger=a_ledger(*workers, state="Running", started_at=1.0))
    tell(run, 0, files=files_of(("a.libsvm", 1.0, 2.0)))
    found = get(client, f"dags/digits/trainings/{run.uid}/data/files")["files"]
    assert [(each["index"], each["name"], each["read"]) for each in found] == [
        (0, "a.libsvm", 1),
        (1, "a.libsvm", None),
        (1, "b.libsvm", None),
    ]


def test_a_thousand_ranks_are_told_at_once(client):
    count = 1000
    run = a_run(ledger=a_ledger(*(worker(i) for i in range(count)), state="Running"))
    lines = {InstanceKey("worker", i): ProgressReport(samples=i, time=1.0) for i in range(count)}
    open_store().progress.save(run.uid, lines)
    found = get(client, f"dags/digits/trainings/{run.uid}/data")
    assert [each["samples"] for each in found["instances"]] == [*range(count)]


def test_samples_are_compared_within_each_role_too(client, airflow_home):
    store = open_store()
    entries = [worker(index, state="running") for index in range(2)]
    servers = [dataclasses.replace(each, key=InstanceKey("ps", each.index)) for each in entries]
    found_run = a_run(ledger=a_ledger(*entries, *servers, state="Running", started_at=1.0))
    samples = {("worker", 0): 100, ("worker", 1): 300, ("ps", 0): 0, ("ps", 1): 0}
    for key, count in samples.items():
        store.progress.save(found_run.uid, {InstanceKey(*key): ProgressReport(samples=count)})
    found = get(client, f"dags/digits/trainings/{found_run.uid}/data")
    assert found["imbalance"]["percent"] == 300
    assert {role: each["percent"] for role, each in found["imbalances"].items()} == {"worker": 100}
