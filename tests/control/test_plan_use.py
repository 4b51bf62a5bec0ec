"""Which trainings count as ignoring their plan."""

from __future__ import annotations

import pytest

from airflow_training.control.plan_use import judge_plan_use, wants_split


def record(on: str = "interval", step: int | None = 3, **plan: object) -> dict[str, object]:
    seen = {"carried_out": False, "mentions": [], "files": 2, **plan}
    return {"on": on, "step": step, "plan": seen}


@pytest.mark.parametrize(
    ("given", "state"),
    [
        ({"on": "interval", "step": 3}, "open"),  # of an agent that records nothing of plans
        (record(), "ignored"),
        (record(step=None), "open"),
        (record(step=0), "open"),
        (record("exit", step=None), "settled"),
        (record(carried_out=True), "settled"),
        (record(mentions=None), "settled"),
        (record(mentions=["MEGATRON_ARGS"]), "settled"),
        (record(mentions=["PLAN_FILE", "airflow_training.execution"]), "settled"),
        (record(mentions=["airflow_training.execution"]), "open"),
        (record("exit", mentions=["airflow_training.execution"]), "ignored"),
        (record("exit", step=None, mentions=["airflow_training.execution"]), "open"),
    ],
)
def test_only_a_training_that_trains_and_shows_nothing_of_its_plan_ignores_it(given, state):
    verdict = judge_plan_use(given)
    assert verdict.state == state
    assert bool(verdict.why) == (state == "ignored")


@pytest.mark.parametrize(
    ("strategy", "wants"),
    [
        ({"dp": 8, "tp": 1}, False),
        ({"dp": 8, "zero": 1}, True),
        ({"tp": 2}, True),
        ({"pp": 2, "zero": 0}, True),
    ],
)
def test_plain_replicas_are_what_scripts_make_without_a_plan(strategy, wants):
    assert wants_split(strategy) is wants
