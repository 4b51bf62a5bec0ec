"""What runs measured, as later plans read it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_training.errors import InputError
from airflow_training.state.records import Measurement
from airflow_training.state.store import Store
from tests.state.samples import Clock, add_run

MEASURED = Measurement(
    plan="abc",
    subject="gpt on a100",
    strategy={"tp": 2, "stage_layers": None},
    step_seconds=0.25,
    steps=400,
    memory_bytes=3e10,
)


def test_what_was_measured_comes_back(store: Store):
    uid = add_run(store).uid
    store.measurements.save(uid, MEASURED)
    assert store.measurements.of_run(uid, plan="abc") == MEASURED
    assert store.measurements.of_run(uid, plan="other") is None
    assert store.measurements.about("gpt on a100") == [MEASURED]
    assert store.measurements.about("gpt on h100") == []


def test_a_run_has_one_measurement_for_each_of_its_plans(store: Store):
    uid = add_run(store).uid
    store.measurements.save(uid, MEASURED)
    store.measurements.save(uid, replace(MEASURED, step_seconds=0.5, memory_bytes=None))
    assert [each.step_seconds for each in store.measurements.about(MEASURED.subject)] == [0.5]
    store.measurements.save(uid, replace(MEASURED, plan="def"))
    assert {each.plan for each in store.measurements.about(MEASURED.subject)} == {"abc", "def"}


def test_the_newest_come_first_and_no_more_than_wanted(store: Store, clock: Clock):
    for number in range(4):
        clock.advance(1.0)
        uid = add_run(store, f"run-{number}").uid
        store.measurements.save(uid, replace(MEASURED, step_seconds=float(number + 1)))
    found = store.measurements.about(MEASURED.subject, limit=3)
    assert [each.step_seconds for each in found] == [4.0, 3.0, 2.0]


def test_a_run_that_is_not_there_measures_nothing(store: Store):
    with pytest.raises(InputError):
        store.measurements.save("none", MEASURED)
