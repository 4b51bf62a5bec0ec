"""The time of a step, from what scripts say of how far they are."""

from __future__ import annotations

import pytest

from airflow_training.control.step_pace import Pace


def pace(*said: tuple[int, float]) -> Pace:
    found = Pace()
    for step, at in said:
        found = found.after(step, at)
    return found


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        pytest.param([(1, 10.0), (2, 12.0), (3, 14.0)], None, id="two-intervals-are-too-few"),
        pytest.param([(1, 10.0), (2, 12.0), (3, 14.0), (4, 16.0)], 2.0, id="every-step"),
        pytest.param([(10, 10.0), (30, 20.0), (40, 25.0), (60, 35.0)], 0.5, id="now-and-then"),
        pytest.param(
            [(1, 0.0), (2, 2.0), (3, 4.0), (4, 600.0), (5, 602.0)], 2.0, id="an-evaluation-between"
        ),
        pytest.param([(8, 0.0), (9, 2.0), (3, 50.0), (4, 52.0), (5, 54.0)], 2.0, id="begun-again"),
        pytest.param([(1, 0.0), (1, 0.0), (1, 5.0), (2, 7.0)], None, id="the-same-step-again"),
        pytest.param([(1, 5.0), (2, 4.0), (3, 3.0), (4, 2.0)], None, id="a-clock-that-goes-back"),
    ],
)
def test_a_step_takes_the_median_of_the_intervals(said, seconds):
    assert pace(*said).step_seconds == seconds


def test_the_newest_intervals_count():
    slow = [(n, n * 4.0) for n in range(50)]
    quick = [(50 + n, 200.0 + n) for n in range(100)]
    found = pace(*slow, *quick)
    assert found.step_seconds == 1.0
    assert found.steps == 64
