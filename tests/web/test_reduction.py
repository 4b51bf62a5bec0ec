"""Charts with fewer points show what all points would."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_training.web.reduction import kept_points
from tests.examples import examples

LENGTHS = st.integers(1, 5000)
POINTS = st.integers(4, 300)


@settings(max_examples=examples(1000), deadline=None)
@given(count=LENGTHS, points=POINTS, data=st.data())
def test_a_spike_of_one_sample_is_never_lost(count, points, data):
    noise = np.random.default_rng(data.draw(st.integers(0, 99))).random(count)
    at = data.draw(st.integers(0, count - 1))
    noise[at] = data.draw(st.sampled_from([7.0, -7.0, math.nan, math.inf, -math.inf]))
    assert at in kept_points(noise, points)


@settings(max_examples=200, deadline=None)
@given(count=LENGTHS, points=POINTS, gaps=st.lists(st.integers(0, 4999), max_size=30))
def test_points_stay_in_order_with_both_ends_and_are_about_so_many(count, points, gaps):
    values = np.linspace(0, 1, count)
    values[[gap for gap in gaps if gap < count]] = math.nan
    kept = kept_points(values, points)
    assert (np.diff(kept) > 0).all()
    assert kept[0] == 0
    assert kept[-1] == count - 1
    assert len(kept) <= points * 5 / 4 + 5


def test_few_points_are_all_kept():
    assert kept_points(np.array([3.0, math.nan, 1.0]), 4).tolist() == [0, 1, 2]
    assert kept_points(np.array([]), 4).tolist() == []


def test_points_that_are_no_numbers_alone_are_kept_as_a_gap():
    kept = kept_points(np.full(100, math.nan), 8)
    assert kept[0] == 0
    assert kept[-1] == 99
