"""Tuning: which parameters are tried, what a DAG of it looks like, and who wins."""

from __future__ import annotations

import math
from typing import Any

import pytest
from airflow.sdk import DAG, task

from airflow_training import Range, tune
from airflow_training.compiler.search_space import trials_of
from airflow_training.documents.dag import Param
from airflow_training.errors import InputError
from airflow_training.operators.trials import Trial, winner
from tests.airflow.jobs import job
from tests.airflow.shapes import round_trip

DECLARED = {
    "lr": Param(type="number", default=0.1, exclusive_minimum=0, maximum=1),
    "layers": Param(type="integer", default=2, minimum=1),
    "optimizer": Param(type="string", default="sgd", enum=["sgd", "adam"]),
}


def tried(space, *, trials=None, seed=0):
    return trials_of(space, declared=DECLARED, trials=trials, seed=seed)


def test_without_a_number_of_trials_every_combination_is_tried():
    assert tried({"lr": [0.1, 0.2], "optimizer": ["sgd", "adam"]}) == [
        {"lr": 0.1, "optimizer": "sgd"},
        {"lr": 0.1, "optimizer": "adam"},
        {"lr": 0.2, "optimizer": "sgd"},
        {"lr": 0.2, "optimizer": "adam"},
    ]


def test_a_budget_takes_that_many_different_combinations_and_the_same_ones_again():
    space = {"lr": [0.1, 0.2, 0.3], "layers": [1, 2, 3]}
    chosen = tried(space, trials=5)
    assert len({tuple(each.items()) for each in chosen}) == 5
    assert chosen == tried(space, trials=5)
    assert chosen != tried(space, trials=5, seed=1)
    assert len(tried(space, trials=50)) == 9, "a budget above the grid is the grid"


def test_a_range_is_drawn_from_its_whole_width():
    chosen = tried({"lr": Range(1e-4, 1.0, log=True), "layers": Range(1, 4)}, trials=200)
    assert {each["layers"] for each in chosen} == {1, 2, 3, 4}
    assert all(1e-4 <= each["lr"] <= 1 for each in chosen)
    below = sum(each["lr"] < 0.01 for each in chosen)
    assert 70 < below < 130, "half of the powers of ten lie below 0.01"


@pytest.mark.parametrize(
    ("space", "trials", "field", "says"),
    [
        pytest.param({}, None, "space", "names no parameter", id="nothing"),
        pytest.param({"Lr": [1]}, None, "space.Lr", "did you mean 'lr'", id="unknown"),
        pytest.param({"lr": [0.1, 7]}, None, "space.lr[1]", "at most 1", id="refused-value"),
        pytest.param({"lr": []}, None, "space.lr", "at least one value", id="no-values"),
        pytest.param({"optimizer": "sgd"}, None, "space.optimizer", "a list", id="text"),
        pytest.param({"lr": Range(0.1, 0.2)}, None, "trials", "trials=20", id="endless"),
        pytest.param({"lr": Range(0.1, 3.0)}, 2, "space.lr.high", "at most 1", id="too-wide"),
        pytest.param({"lr": Range(0.2, 0.1)}, 2, "space.lr", "less than high", id="turned-round"),
        pytest.param({"layers": Range(0, 4, log=True)}, 2, "space.layers", "with log", id="log-0"),
        pytest.param({"lr": [0.1]}, 0, "trials", "between 1 and 1000", id="no-trials"),
        pytest.param({"layers": list(range(1, 1200))}, None, "space", "trials=50", id="too-many"),
    ],
)
def test_a_space_that_cannot_work_is_refused_when_the_dag_is_parsed(space, trials, field, says):
    with pytest.raises(InputError) as refused:
        tried(space, trials=trials)
    [problem] = refused.value.problems
    assert problem.field == field
    assert says in str(problem)


def trial(number: int, value: float | None, state: str = "Succeeded") -> Trial:
    return Trial(number=number, params={}, run="", state=state, value=value)


@pytest.mark.parametrize(
    ("trials", "goal", "expected"),
    [
        pytest.param([trial(0, 0.5), trial(1, 0.9)], "max", 1, id="more-is-better"),
        pytest.param([trial(0, 0.5), trial(1, 0.9)], "min", 0, id="less-is-better"),
        pytest.param([trial(0, 0.5), trial(1, 0.5)], "max", 0, id="the-first-of-equals"),
        pytest.param([trial(0, 0.5), trial(1, 9, "Failed")], "max", 0, id="failed-never-wins"),
        pytest.param([trial(0, 0.5), trial(1, math.nan)], "max", 0, id="nan-never-wins"),
        pytest.param([trial(0, -0.5), trial(1, -0.2)], "max", 1, id="negative"),
        pytest.param([trial(0, None), trial(1, 1, "Failed")], "max", None, id="nobody"),
    ],
)
def test_the_best_trial_is_one_that_succeeded(trials, goal, expected):
    best = winner(trials, goal=goal)
    assert (best.number if best else None) == expected


def test_the_winner_goes_to_the_next_task_and_one_failed_trial_fails_nothing():
    document = job("digits", dag={"params": {"lr": {"type": "number", "default": 0.1}}})
    with DAG("tuned", schedule=None) as dag:

        @task
        def deploy(best: dict[str, Any]) -> None: ...

        deploy(tune(document, space={"lr": [0.1, 0.2]}, metric="accuracy"))
    assert dag.get_task("deploy").upstream_task_ids == {"digits.best"}
    best = dag.get_task("digits.best")
    assert best.upstream_task_ids == {
        "digits.trials.reconcile",
        "digits.trials.master.run",
        "digits.trials.worker.run",
    }
    assert best.trigger_rule == "all_done"
    assert not dag.get_task("digits.trials.rollup").on_failure_fail_dagrun
    assert round_trip(dag).get_task("digits.trials.plan") is not None


def test_a_goal_that_is_neither_is_refused():
    document = job("digits", dag={"params": {"lr": {"type": "number", "default": 0.1}}})
    with DAG("x", schedule=None), pytest.raises(InputError, match="allowed: max, min"):
        tune(document, space={"lr": [0.1]}, metric="accuracy", goal="most")
