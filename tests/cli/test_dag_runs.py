"""All runs of a DAG run: one line says how far they are, one command stops them and those to come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import update

from airflow_training.admission.launch import launch
from airflow_training.cli import dag_runs
from airflow_training.cli.output import OutputFormat
from airflow_training.control.model import JobState, KeptInstance
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import RunKey
from airflow_training.state.models import RunRow
from airflow_training.state.store import RunRecord, Store, open_store
from tests.builders import job, role


def mapped(
    store: Store,
    number: int,
    *,
    run_id: str = "tuesday",
    source: str = "airflow-1",
) -> str:
    key = RunKey(source=source, dag_id="search", run_id=run_id, group_id="each", map_index=number)
    spec = job(role("worker", 1), runtime="local")
    return launch(spec, key=key, store=store, controller=source, activate_all=False).uid


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
    stop = store.airflow.stop_of("airflow-1", dag_id="search", run_id="tuesday")
    assert stop is not None
    assert stop["reason"] == "wrong data"
    again = typed("kill", "--dag-run", "search", "tuesday")
    assert again.stdout == "stop of DAG run tuesday of search: 5 runs (5 Stopped)\n"


def test_only_asking_waits_for_nothing(typed, store):
    uid = mapped(store, 0)
    done = typed("kill", "--dag-run", "search", "tuesday", "--wait", "0", "--now")
    assert done.stdout == "kill of DAG run tuesday of search: 1 run (1 Pending)\n"
    assert [each.kind for each in store.requests(uid)] == ["kill"]


NOWHERE = "elsewhere"


def without_runtime(store: Store, *uids: str) -> None:
    """As if the package of their runtime had been removed since."""
    with store._db.write() as connection:
        chosen = RunRow.uid.in_(uids)
        connection.execute(update(RunRow).where(chosen).values(runtime=NOWHERE))


@pytest.mark.e2e
def test_one_that_cannot_be_ended_keeps_no_other_from_its_end(typed, store):
    lost, *runs = (mapped(store, number) for number in range(4))
    without_runtime(store, lost)
    done = typed("kill", "--dag-run", "search", "tuesday")
    assert done.code == 1
    assert done.stdout == "stop of DAG run tuesday of search: 4 runs (3 Stopped, 1 Pending)\n"
    assert f"1 of 4 runs did not end: run {lost}: " in done.stderr
    assert NOWHERE in done.stderr
    assert all(store.ledger(uid).job.drained for uid in runs)


def test_each_that_cannot_be_ended_is_told(typed, store):
    runs = [mapped(store, number) for number in range(2)]
    without_runtime(store, *runs)
    done = typed("kill", "--dag-run", "search", "tuesday")
    assert (done.code, done.stdout) == (
        1,
        "stop of DAG run tuesday of search: 2 runs (2 Pending)\n",
    )
    assert all(f"run {uid}: " in done.stderr for uid in runs)
    assert "Traceback" not in done.stderr


# deployments that share a store -------------------------------------------------------------------
@pytest.mark.parametrize("verb", ["kill", "status"])
def test_a_dag_run_of_two_deployments_is_refused_with_both(typed, store, verb):
    runs = [mapped(store, 0, source=source) for source in ("airflow-1", "airflow-2")]
    done = typed(verb, "--dag-run", "search", "tuesday")
    assert (done.code, done.stdout) == (2, "")
    assert "allowed: airflow-1, airflow-2" in done.stderr
    assert [store.requests(uid) for uid in runs] == [[], []]
    assert store.airflow.stop_of("airflow-1", dag_id="search", run_id="tuesday") is None


def test_only_the_runs_of_the_named_deployment_are_stopped(typed, store):
    other, own = (mapped(store, 0, source=source) for source in ("airflow-1", "airflow-2"))
    words = ("--dag-run", "search", "tuesday", "--source", "airflow-2")
    assert typed("status", *words).stdout == "0 of 1 run ended: 1 Pending\n"
    done = typed("kill", *words, "--wait", "0")
    assert done.stdout == "stop of DAG run tuesday of search: 1 run (1 Pending)\n"
    assert (len(store.requests(other)), len(store.requests(own))) == (0, 1)
    assert store.airflow.stop_of("airflow-1", dag_id="search", run_id="tuesday") is None
    assert store.airflow.stop_of("airflow-2", dag_id="search", run_id="tuesday") is not None


def test_a_deployment_without_such_runs_is_refused(typed, store):
    mapped(store, 0)
    done = typed("kill", "--dag-run", "search", "tuesday", "--source", "airflow-9")
    assert done.code == 2
    assert "no run of DAG run tuesday of DAG search is known in airflow-9" in done.stderr


@pytest.mark.parametrize("verb", ["kill", "status"])
def test_a_deployment_is_named_for_a_dag_run_only(typed, store, verb):
    done = typed(verb, "some", "--source", "airflow-1")
    assert done.code == 2
    assert "--source" in done.stderr


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


def test_a_run_that_drains_while_its_failed_instance_stays_is_ended_once(store, monkeypatch):
    uid = mapped(store, 0)
    put(store, uid, "Failed")
    lease = store.acquire(uid, owner="test")
    old = store.ledger(uid)
    kept = KeptInstance(state="stays", key=InstanceKey("worker", 0), until=store.now() + 600)
    new = replace(old, job=replace(old.job, kept=kept))
    store.commit(uid, lease=lease, old=old, new=new, events=[])
    ended: list[str] = []

    async def see_to_end(records: Sequence[RunRecord], **_: Any) -> Sequence[str]:
        ended.extend(each.uid for each in records)
        return ()

    monkeypatch.setattr(dag_runs, "_see_to_end", see_to_end)
    dag_runs.stop_dag_run(
        "search", "tuesday", source="airflow-1", kind="kill", reason="", by="me",
        wait_seconds=5.0, output=OutputFormat.table,
    )  # fmt: skip
    assert ended == [uid]
