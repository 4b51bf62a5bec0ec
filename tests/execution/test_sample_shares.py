"""Samples are dealt out by speed, so that the slowest replica is as quick as can be."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_training.execution.sample_shares import deal_samples, imbalance, rebalance_samples


def test_who_takes_twice_as_long_gets_half():
    assert deal_samples(12, [1.0, 2.0]) == (8, 4)
    assert deal_samples(16, [1.0, 1.0, 1.0, 2.0]) == (5, 5, 4, 2)


@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=3), st.integers(3, 9))
def test_no_other_shares_are_quicker(speeds, total):
    dealt = deal_samples(total, speeds)
    every = [
        shares
        for shares in product(range(1, total + 1), repeat=len(speeds))
        if sum(shares) == total
    ]
    least = min(max(map(lambda n, s: n * s, shares, speeds)) for shares in every)
    assert max(map(lambda n, s: n * s, dealt, speeds)) == pytest.approx(least)


def test_nobody_gets_more_than_memory_holds():
    assert deal_samples(16, [1.0, 4.0], most=[10, 16]) == (10, 6)


def test_shares_change_above_the_limit_only():
    assert imbalance([1.0, 1.5]) == pytest.approx(0.2)
    assert rebalance_samples((8, 8), (1.0, 1.4), limit=0.2) is None
    assert rebalance_samples((8, 8), (1.0, 2.0), limit=0.2) == (11, 5)
    assert rebalance_samples((11, 5), (1.375, 1.25), limit=0.2) is None


def test_shares_that_gain_nothing_stay():
    assert rebalance_samples((1, 1), (1.0, 3.0), limit=0.2) is None
    assert rebalance_samples((8, 8), (0.0, 1.0), limit=0.2) is None
