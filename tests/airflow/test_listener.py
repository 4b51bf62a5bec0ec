"""The listener: nothing for other DAGs, and no waiting for a store that is away."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.bases.operator import BaseOperator

from airflow_training import listener
from airflow_training.compiler.dag import job_to_dag
from airflow_training.state import store as stores
from airflow_training.state.store import open_store
from airflow_training.supervise import runtimes
from tests.airflow.jobs import shell
from tests.airflow.shapes import round_trip


def started(dag: DAG) -> Any:
    """Return a DAG run as the scheduler hands it to listeners."""
    return SimpleNamespace(dag=round_trip(dag))


TRIGGERERS = ["one", "two"]


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Return what Airflow's database says."""
    found: dict[str, int] = {}
    monkeypatch.setattr(listener, "_known", lambda dag_run: (found, TRIGGERERS))
    return found


def test_a_run_with_a_training_group_tells_the_store_the_pools(
    airflow_home: Path, pools: dict[str, int]
):
    dag_run = started(job_to_dag(shell("hello", "true")))
    for now in ({"small": 2}, {"small": 3}, {}):
        pools.clear()
        pools.update(now)
        listener.on_dag_run_running(dag_run)
        store = open_store()
        assert store.airflow.pools(store.deployment.id()) == now
        assert store.airflow.places(store.deployment.id()) == ["", ""]


@pytest.mark.parametrize(
    ("component", "places"), [("triggerer", ["here", ""]), ("scheduler", ["", ""])]
)
def test_a_triggerer_tells_its_place_when_it_starts(
    airflow_home: Path, monkeypatch: pytest.MonkeyPatch, component: str, places: list[str]
):
    monkeypatch.setattr(sys, "argv", ["bin/airflow", component])
    monkeypatch.setattr(runtimes, "place_here", lambda settings: "here")
    listener.on_starting(SimpleNamespace(hostname="one"))
    listener.on_starting(SimpleNamespace())  # what a task starts with
    store = open_store()
    store.airflow.save_triggerers(store.deployment.id(), TRIGGERERS)
    assert store.airflow.places(store.deployment.id()) == places


def test_a_run_without_one_costs_no_question_and_no_store(monkeypatch: pytest.MonkeyPatch):
    asked: list[Any] = []
    monkeypatch.setattr(listener, "_known", asked.append)
    with DAG("other", schedule=None) as dag:
        BaseOperator(task_id="one")
    listener.on_dag_run_running(started(dag))
    listener.on_dag_run_running(SimpleNamespace(dag=None))
    assert asked == []


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Give a store that does not answer until the test is over; returns its callers."""
    over = threading.Event()
    callers: list[int] = []

    def open_slowly() -> Any:
        callers.append(1)
        over.wait(30)
        raise OSError("away")

    monkeypatch.setattr(stores, "open_store", open_slowly)
    monkeypatch.setattr(listener, "_WAIT_SECONDS", 0.2)
    yield callers
    over.set()
    listener._saving.join(30)


def test_a_store_that_is_away_holds_the_scheduler_only_for_a_moment(
    airflow_home: Path, pools: dict[str, int], stuck: list[int]
):
    dag_run = started(job_to_dag(shell("hello", "true")))
    for _ in range(5):
        listener.on_dag_run_running(dag_run)
    assert listener._saving.is_alive(), "the store still has not answered"
    assert len(stuck) == 1, "attempts do not pile up"
