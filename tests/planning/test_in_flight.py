"""Micro-batches in flight: the formulas against schedules that are played through."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_training.planning.cost.in_flight import micro_batches_in_flight
from airflow_training.planning.view.strategy import Schedule


def most_kept(order: str) -> int:
    """Return the most forward passes (F) whose backward pass (B) has not run yet."""
    kept = np.cumsum([1 if step == "F" else -1 for step in order])
    assert kept[-1] == 0
    return int(kept.max())


def one_forward_one_backward(warm_up: int, passes: int) -> str:
    warm_up = min(warm_up, passes)
    return "F" * warm_up + "FB" * (passes - warm_up) + "B" * warm_up


def in_flight(
    schedule: Schedule, stage: int, stages: int, chunks: int, micro_batches: int
) -> float:
    found = micro_batches_in_flight(
        schedule,
        stage=stage,
        stages=stages,
        virtual_stages=np.array([chunks]),
        micro_batches=np.array([micro_batches]),
    )
    return float(found[0])


@given(st.integers(1, 12), st.integers(1, 40), st.data())
def test_gpipe_keeps_every_micro_batch(stages, micro_batches, data):
    stage = data.draw(st.integers(0, stages - 1))
    order = "F" * micro_batches + "B" * micro_batches
    assert in_flight("gpipe", stage, stages, 1, micro_batches) == most_kept(order)


@given(st.integers(1, 12), st.integers(1, 40), st.data())
def test_1f1b_keeps_what_its_schedule_keeps(stages, micro_batches, data):
    stage = data.draw(st.integers(0, stages - 1))
    order = one_forward_one_backward(stages - 1 - stage, micro_batches)
    assert in_flight("1f1b", stage, stages, 1, micro_batches) == most_kept(order)


@given(st.integers(2, 8), st.integers(2, 4), st.integers(1, 6), st.data())
def test_interleaved_keeps_what_its_schedule_keeps(stages, chunks, rounds, data):
    stage = data.draw(st.integers(0, stages - 1))
    micro_batches = rounds * stages
    warm_up = 2 * (stages - 1 - stage) + (chunks - 1) * stages
    order = one_forward_one_backward(warm_up, micro_batches * chunks)
    found = in_flight("interleaved", stage, stages, chunks, micro_batches)
    assert found * chunks == pytest.approx(most_kept(order))


def test_interleaving_costs_the_first_stage_what_korthikanti_says():
    assert in_flight("1f1b", 0, 8, 3, 64) == pytest.approx(8 * (1 + 7 / (8 * 3)))
