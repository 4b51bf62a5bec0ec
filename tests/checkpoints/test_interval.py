"""When a save is due, and what the interval costs and loses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_training.checkpoints.errors import CheckpointError
from airflow_training.checkpoints.interval import (
    AutoInterval,
    SaveCost,
    StepInterval,
    TimeInterval,
    auto_seconds,
    daly_seconds,
    fits_in_grace,
    grace_needed,
    parse_every,
    seconds_between_failures,
    steps_between_looks,
    young_seconds,
)
from airflow_training.checkpoints.pace import StepPace
from benchmarks.recovery_goodput import bound, goodput, simulate


def cost(stall: float = 0.1, slowed: float = 0.0, total: float = 1.0) -> SaveCost:
    return SaveCost(stall_seconds=stall, slowed_seconds=slowed, total_seconds=total)


@pytest.mark.parametrize(
    ("given_", "meant"),
    [
        ({"steps": 500}, StepInterval(500)),
        ({"seconds": 600}, TimeInterval(600.0)),
        ({"auto": True}, AutoInterval()),
        ("auto", AutoInterval()),
        (StepInterval(5), StepInterval(5)),
    ],
)
def test_an_interval_is_read(given_, meant):
    assert parse_every(given_) == meant


@pytest.mark.parametrize(
    "wrong",
    [
        "500",
        5,
        {},
        {"minutes": 3},
        {"steps": 0},
        {"steps": 1.5},
        {"steps": True},
        {"seconds": -1},
        {"seconds": float("inf")},
        {"auto": False},
        {"steps": 1, "seconds": 1},
    ],
)
def test_what_is_no_interval_is_said_to_be_none(wrong):
    with pytest.raises(CheckpointError, match=r"every: .* is none of"):
        parse_every(wrong)


@given(st.floats(0.01, 100), st.floats(300, 1e6))
def test_dalys_interval_is_the_best_of_its_model_and_young_is_near(cost_seconds, mean_seconds):
    """The cross-check: no interval a tenth away keeps more, and for cheap saves the two agree."""
    best = daly_seconds(cost_seconds=cost_seconds, mean_seconds=mean_seconds)

    def kept(interval: float) -> float:
        return goodput(
            interval_seconds=interval,
            cost_seconds=cost_seconds,
            mean_seconds=mean_seconds,
            restart_seconds=60,
        )

    assert kept(best) >= max(kept(0.9 * best), kept(1.1 * best))
    if cost_seconds < mean_seconds / 1000:
        young = young_seconds(cost_seconds=cost_seconds, mean_seconds=mean_seconds)
        assert young == pytest.approx(best, rel=0.03)


def test_a_save_that_costs_more_than_failures_do_is_made_once_in_between():
    assert daly_seconds(cost_seconds=300, mean_seconds=100) == 100


@pytest.mark.parametrize(
    ("measured", "mean_seconds", "expected"),
    [
        pytest.param(None, 3600, 60, id="unknown-cost"),
        pytest.param(cost(0.1), 1800, 20, id="the-stall-cap-binds"),
        pytest.param(cost(0.0, 1.0), 1800, 100, id="the-total-cap-binds"),
        pytest.param(cost(0.5), 1e9, 600, id="at-most-ten-minutes"),
        pytest.param(cost(5.0), 1e9, 1000, id="unless-the-cap-asks-for-more"),
        pytest.param(cost(0.0, 0.0, 45.0), 1800, 45, id="never-before-the-last-is-committed"),
    ],
)
def test_auto_chooses(measured, mean_seconds, expected):
    assert auto_seconds(measured, mean_seconds=mean_seconds) == pytest.approx(expected)


@given(st.floats(0, 10), st.floats(0, 10), st.floats(0, 1000), st.floats(60, 1e7))
def test_auto_holds_the_caps_whatever_is_measured(stall, slowed, total, mean_seconds):
    seconds = auto_seconds(cost(stall, slowed, total), mean_seconds=mean_seconds)
    assert stall / seconds <= 0.005 * 1.0001 if seconds else stall == 0
    assert (stall + slowed) / seconds <= 0.01 * 1.0001 if seconds else slowed == 0


def test_what_fails_often_is_learned():
    assert seconds_between_failures(trained_seconds=0, failures=0) == 4 * 3600
    half_hours = [seconds_between_failures(trained_seconds=n * 1800, failures=n) for n in range(99)]
    assert half_hours == sorted(half_hours, reverse=True)
    assert half_hours[-1] == pytest.approx(1800, rel=0.1)


@pytest.mark.parametrize(
    ("left", "save", "fits"),
    [(30, 10, True), (30, 25, False), (0.1, None, True), (-1, None, False), (-1, 0, False)],
)
def test_a_save_is_begun_where_the_grace_is_long_enough(left, save, fits):
    assert fits_in_grace(left_seconds=left, save_seconds=save) is fits


def test_the_grace_that_is_needed_covers_the_step_and_the_save():
    assert grace_needed(step_seconds=4, save_seconds=10) == 19


@pytest.mark.parametrize(
    ("step", "look", "grace", "steps"),
    [
        pytest.param(2.0, 0.001, 30, 1, id="long-steps-every-one"),
        pytest.param(0.01, 0.0002, 30, 50, id="short-steps-every-half-second"),
        pytest.param(0.01, 0.005, 60, 500, id="a-slow-network-more-seldom"),
        pytest.param(0.01, 0.1, 30, 750, id="four-times-in-the-grace"),
        pytest.param(0.0, 0.0, 30, 1, id="no-step-measured-yet"),
    ],
)
def test_ranks_ask_each_other(step, look, grace, steps):
    found = steps_between_looks(step_seconds=step, look_seconds=look, grace_seconds=grace)
    assert found == steps


def test_steps_during_a_save_are_compared_with_the_others():
    pace = StepPace()
    for seconds in (1.0, 1.0, 9.0):  # one with an evaluation
        pace.step(seconds, saving=False)
    for seconds in (1.2, 1.2, 30.0):
        pace.step(seconds, saving=True)
    assert pace.step_seconds == 1.0
    assert pace.take_slowed_seconds() == pytest.approx(0.6)
    assert pace.take_slowed_seconds() == 0


def test_goodput_is_near_what_no_interval_could_beat():
    """One failure per half hour, steps of a second, a restart of a minute."""
    found = simulate(failure_seconds=1800, step_seconds=1, restart_seconds=60, days=14, seed=1)
    best = bound(failure_seconds=1800, restart_seconds=60)
    assert found >= 0.95
    assert found >= best - 0.01
