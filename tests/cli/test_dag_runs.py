"""All runs of a DAG run: one line says how far they are, one command stops them and those to come."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_training.admission.launch import launch
from airflow_training.control.model import JobState
from airflow_training.documents.resolved import RunKey
from airflow_training.state.store import Store, open_store
from tests.builders import job, role


def mapped(store: Store, number: int, *, run_id: str = "tuesday") -> str:
    key = RunKey(
        source="airflow-1", dag_id="search", run_id=run_id, group_id="each", map_index=number
    )
    spec = job(role("worker", 1), runtime="local")
    return launch(spec, key=key, store=store, controller="airflow-1", activate_all=False).uid


def put(store: Store, uid: str, state: JobState) -> None:
    lease = store.acquire(uid, owner="test")
    assert lease is not None
    old = store.ledger(uid)
    new = replace(old, job=replace(old.job, state=state))
    store.commit(uid, lease=lease, old=old, new=new, events=[])


@pytest.fixture
def store(home) -> Store:
    return open_store()


@pytest.mark.e2e  # the runtime listens for what its agents tell
def test_all_runs_of_the_dag_run_end_and_no_other(typed, store):
    runs = [mapped(store, number) for number in range(5)]
    other = mapped(store, 0, run_id="wednesday")
    done = typed("kill", "--dag-run", "search", "tuesday", "--reason", "wrong data", "-o", "json")
    assert (done.code, done.json) == (
        0,
        {"dag_id": "search", "run_id": "tuesday", "request": "stop", "runs": {"Stopped": 5}},
    )
    assert done.stderr.splitlines() == ["5 of 5 runs ended"]
    assert all(store.ledger(uid).job.drained for uid in runs)
    assert store.ledger(other).job.state == "Pending"
    stop = store.stop_of("airflow-1", dag_id="search", run_id="tuesday")
    assert stop is not None
    assert stop["reason"] == "wrong data"
    again = typed("kill", "--dag-run", "search", "tuesday")
    assert again.stdout == "stop of DAG run tuesday of search: 5 runs (5 Stopped)\n"


def test_only_asking_waits_for_nothing(typed, store):
    uid = mapped(store, 0)
    done = typed("kill", "--dag-run", "search", "tuesday", "--wait", "0", "--now")
    assert done.stdout == "kill of DAG run tuesday of search: 1 run (1 Pending)\n"
    assert [each.kind for each in store.requests(uid)] == ["kill"]


def test_one_line_says_how_far_they_are(typed, store):
    runs = [mapped(store, number) for number in range(3)]
    put(store, runs[0], "Succeeded")
    put(store, runs[1], "Running")
    found = typed("status", "--dag-run", "search", "tuesday").stdout
    assert found.startswith("1 of 3 runs ended: ")
    assert set(found.strip().partition(": ")[2].split(", ")) == {
        "1 Succeeded",
        "1 Running",
        "1 Pending",
    }
    assert typed("status", "--dag-run", "search", "tuesday", "-o", "json").json == {
        "dag_id": "search",
        "run_id": "tuesday",
        "ended": 1,
        "restarts": 0,
        "runs": {"Succeeded": 1, "Running": 1, "Pending": 1},
    }


@pytest.mark.parametrize("verb", ["kill", "status"])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dag-run", "search", "monday"], "no run of DAG run monday of DAG search is known"),
        ([], "RUN: name one"),
        (["some", "--dag-run", "search", "tuesday"], "RUN: name one"),
    ],
)
def test_what_names_no_runs_is_refused(typed, store, verb, words, message):
    mapped(store, 0)
    done = typed(verb, *words)
    assert done.code == 2
    assert message in done.stderr
