"""A bare time is that of a step, unless it only grows: then it is the time since the start."""

from __future__ import annotations

import numpy as np
import pytest

from airflow_training.logs.metrics.clocks import since_start

NONE = float("nan")


@pytest.mark.parametrize(
    ("steps", "values", "clock"),
    [
        pytest.param([100, 200, 300], [30.1, 60.2, 90.1], True, id="proportional"),
        pytest.param([100, 200], [55.0, 110.1], True, id="two"),
        pytest.param([5000, 5100, 5200], [61.0, 90.5, 120.4], True, id="after-a-restart"),
        pytest.param([NONE] * 5, [10, 21, 29, 42, 50], True, id="no-steps"),
        pytest.param([38000], [38092.0], True, id="too-long-for-a-step"),
        pytest.param([100, 200, 300], [0.5, 0.52, 0.49], False, id="step-times"),
        pytest.param([1, 2, 3], [0.50, 0.51, 0.53], False, id="slightly-slower"),
        pytest.param([100], [0.5], False, id="one"),
        pytest.param([100, 200, 300], [12.5, 0.4, 0.4], False, id="compiled-first"),
        pytest.param([], [], False, id="none"),
    ],
)
def test_times_that_only_grow(steps, values, clock):
    assert since_start(np.array(steps, float), np.array(values, float)) is clock


def test_a_clock_may_be_set_back():
    epoch = np.arange(1.0, 31.0)
    times = np.concatenate([epoch, epoch, epoch])
    assert since_start(np.arange(1.0, 91.0), times)


def test_noise_is_no_clock():
    dice = np.random.default_rng(1)
    assert not since_start(np.arange(500.0), dice.normal(1.0, 0.1, 500))
