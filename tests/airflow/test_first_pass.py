"""`plan` starts what may start, where a triggerer of the same machine takes it up."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_training.compiler.dag import job_to_dag
from airflow_training.compiler.group import training
from airflow_training.documents.instances import InstanceKey
from airflow_training.operators.first_pass import free_roles
from airflow_training.settings import load_settings
from airflow_training.state.store import Store
from airflow_training.supervise.runtimes import place_here
from tests.airflow.jobs import shell
from tests.airflow.worker_tasks import POOLED, context
from tests.runtimes.local_runs import alive
from tests.waiting import PATIENCE, wait_until


@pytest.fixture
def triggerer_here(store: Store, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give the store a living triggerer on this very machine; return its place."""
    # what takes longer is left to a triggerer, and here nobody would take it up
    monkeypatch.setattr("airflow_training.operators.first_pass._LIMIT_SECONDS", PATIENCE)
    for name in ("_FIRST_SECONDS", "_PAUSE_SECONDS"):
        monkeypatch.setattr(f"airflow_training.supervise.drive.{name}", PATIENCE)
    place = place_here(load_settings())
    store.airflow.save_triggerers(store.deployment.id(), ["here"])
    store.airflow.save_place(store.deployment.id(), host="here", place=place)
    return place


CHAIN = {
    "roles": [
        {"name": "first"},
        {"name": "second", "dependsOn": [{"role": "first"}]},
        {"name": "third", "dependsOn": [{"role": "second", "status": "Complete"}]},
    ]
}
STAYS = "echo $$$$ >> $MARKS; sleep 600"


def marks(folder: Path) -> dict[str, Any]:
    return {"env": [{"name": "MARKS", "value": str(folder / "marks")}]}


def lines(path: Path, count: int) -> list[str]:
    """Return the lines of a file as soon as there are so many."""
    wait_until(lambda: path.exists() and path.read_text().count("\n") >= count)
    return path.read_text().splitlines()


@pytest.mark.e2e
def test_plan_starts_what_may_start_and_rollup_and_cleanup_end_it_side_by_side(
    store: Store, triggerer_here: str, tmp_path: Path
):
    """The training is alive when `plan` has ended, and no lease keeps the reconciler waiting."""
    dag = job_to_dag(shell("hello", STAYS, **CHAIN, **marks(tmp_path)))
    uid = dag.get_task("plan").execute(context())["run"]
    try:
        pids = [int(each) for each in lines(tmp_path / "marks", 2)]
        assert all(alive(pid) for pid in pids)
        assert all(entry.activated for entry in store.ledger(uid).roles.values())
        assert store.ledger(uid).instances[InstanceKey("third", 0)].reason == "WaitingForDependency"
        assert store.lease(uid) is None
    finally:
        with ThreadPoolExecutor() as workers:
            rollup = workers.submit(dag.get_task("rollup").execute, context())
            workers.submit(dag.get_task("cleanup").execute, context()).result()
    with pytest.raises(AirflowFailException, match="Killed"):
        rollup.result()
    assert not any(alive(pid) for pid in pids)
    assert lines(tmp_path / "marks", 2) == [str(pid) for pid in pids]
    assert store.lease(uid) is None


@pytest.mark.e2e
def test_a_cleared_plan_begins_the_new_job_after_the_old_one_has_ended(
    store: Store, triggerer_here: str, tmp_path: Path
):
    dag = job_to_dag(shell("hello", STAYS, **marks(tmp_path)))
    plan = dag.get_task("plan")
    try:
        plan.execute(context())
        [old] = map(int, lines(tmp_path / "marks", 1))
        (tmp_path / "marks").unlink()
        plan.execute(context(try_number=2))
        [new] = map(int, lines(tmp_path / "marks", 1))
        assert (alive(old), alive(new)) == (False, True)
    finally:
        dag.get_task("cleanup").execute(context())
    assert not alive(new)


@pytest.mark.parametrize(
    "places",
    [
        pytest.param({}, id="nobody-told"),
        pytest.param({"there": "elsewhere"}, id="on-another-host"),
        pytest.param({"here": None, "there": "elsewhere"}, id="one-here-and-one-elsewhere"),
        pytest.param({"here": None, "there": ""}, id="one-did-not-tell"),
    ],
)
def test_what_a_triggerer_might_not_see_is_left_to_it(
    store: Store, triggerer_here: str, places: Mapping[str, str | None]
):
    """None: the place of this process."""
    store.airflow.save_triggerers(store.deployment.id(), list(places))
    for host, place in places.items():
        told = triggerer_here if place is None else place
        store.airflow.save_place(store.deployment.id(), host=host, place=told)
    uid = job_to_dag(shell("hello", "true")).get_task("plan").execute(context())["run"]
    record = store.run(uid)
    assert record is not None
    assert record.queued
    assert store.requests(uid) == []


def test_another_environment_is_another_place(airflow_home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AIRFLOW__TRAINING__ALLOW_LOCAL", "True")
    here = place_here(load_settings())
    assert here == place_here(load_settings())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    assert place_here(load_settings()) != here
    monkeypatch.setenv("AIRFLOW__TRAINING__ALLOW_LOCAL", "False")
    assert place_here(load_settings()) == ""


def test_a_group_that_waits_in_a_pool_is_begun_by_reconcile(store: Store, triggerer_here: str):
    store.airflow.save_pools(store.deployment.id(), {"small": 3})
    with DAG("mine", schedule=None) as dag:
        training(shell("hello", "true", **POOLED), default_args={"pool": "small"})
    uid = dag.get_task("hello.plan").execute(context())["run"]
    assert store.requests(uid) == []


@pytest.mark.parametrize(
    ("before", "free"),
    [
        pytest.param("", ["a", "b"], id="only-a-sensor"),
        pytest.param("hello.b.run", ["a"], id="before-the-role"),
        pytest.param("hello.b.await_a", ["a"], id="before-its-sensor"),
    ],
)
def test_a_role_behind_a_task_of_the_users_is_not_asked_for(before: str, free: list[str]):
    waits = {"name": "b", "dependsOn": [{"role": "a"}]}
    with DAG("mine", schedule=None) as dag:
        training(shell("hello", "true", roles=[{"name": "a"}, waits]))
        if before:
            EmptyOperator(task_id="before") >> dag.get_task(before)
    assert free_roles(dag, group_id="hello", roles=["a", "b"]) == free
