"""Of very many ranks a band is shown, in which nothing that stands out is lost."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_training.web.bands import band_of, heat_map_of
from airflow_training.web.series import StoredSeries
from tests.examples import examples


def series(index: int, steps: object, values: object) -> StoredSeries:
    steps, values = np.asarray(steps, float), np.asarray(values, float)
    return StoredSeries(
        role="worker", index=index, rank=None, name="loss", at=steps * 2, steps=steps, values=values
    )


def test_median_quantiles_and_extremes_of_each_step():
    ranks = [series(index, [1, 2], [index, 10 * index]) for index in range(101)]
    band = band_of(ranks, axis="step", buckets=50, worst=0)
    assert band.x.tolist() == [1, 2]
    assert band.median.tolist() == [50, 500]
    assert (band.low.tolist(), band.high.tolist()) == ([5, 50], [95, 950])
    assert (band.minimum.tolist(), band.maximum.tolist()) == ([0, 0], [100, 1000])


def test_the_rank_that_is_off_all_the_time_is_the_worst():
    steps = np.arange(5000)
    ranks = [
        series(index, steps, np.full(5000, 50 if index == 7 else index / 100))
        for index in range(100)
    ]
    assert band_of(ranks, axis="time", buckets=1000, worst=3).worst[0] == 7


@settings(max_examples=examples(1000), deadline=None)
@given(
    ranks=st.integers(2, 70),
    points=st.integers(3, 700),
    buckets=st.integers(1, 200),
    axis=st.sampled_from(["step", "time"]),
    seed=st.integers(0, 99),
    spike=st.sampled_from([9.0, -9.0]),
)
def test_a_spike_of_one_sample_is_in_the_band_and_in_the_heat_map(
    ranks, points, buckets, axis, seed, spike
):
    dice = np.random.default_rng(seed)
    rank, place = int(dice.integers(ranks)), int(dice.integers(points))
    all_values = dice.random((ranks, points))
    all_values[rank, place] = spike
    found = [series(index, np.arange(points), all_values[index]) for index in range(ranks)]
    band = band_of(found, axis=axis, buckets=buckets, worst=3)
    assert spike in (band.minimum if spike < 0 else band.maximum)
    assert len(band.x) <= buckets
    heat = heat_map_of(found, axis=axis, columns=buckets, rows=20)
    row = rank // heat.per_row
    [column] = np.flatnonzero(heat.values[row] == spike)
    assert abs(heat.distances[row, column]) == pytest.approx(np.nanmax(np.abs(heat.distances)))
    assert spike * heat.distances[row, column] > 0
    assert len(heat.values) <= 20
    assert len(heat.x) == heat.values.shape[1] <= buckets


def test_a_step_that_was_done_again_counts_once_with_its_newest_value():
    found = [series(0, [1, 2, 3, 2, 3, 4], [9, 8, 7, 6, 5, 4])]
    band = band_of(found, axis="step", buckets=100, worst=1)
    assert (band.x.tolist(), band.maximum.tolist()) == ([1, 2, 3, 4], [9, 6, 5, 4])


@pytest.mark.parametrize("axis", ["step", "time"])
def test_what_is_no_number_is_in_no_bucket(axis):
    found = [series(0, [1, math.nan, 3], [1, 2, math.nan]), series(1, [], [])]
    band = band_of(found, axis=axis, buckets=10, worst=3)
    assert band.maximum.tolist() == [1]
    assert band.worst == [0]
    assert np.isnan(heat_map_of(found, axis=axis, columns=10, rows=10).values[1]).all()


def test_of_nothing_there_is_nothing():
    assert band_of([], axis="step", buckets=10, worst=3).x.tolist() == []
    assert heat_map_of([], axis="time", columns=10, rows=10).values.size == 0


@pytest.mark.parametrize("axis", ["step", "time"])
@pytest.mark.parametrize("delay", [0.0, 0.3], ids=["together", "each-at-a-time-of-its-own"])
def test_a_trend_that_all_have_is_no_distance_and_the_rank_that_is_off_stands_out(axis, delay):
    steps = np.arange(1000)
    ranks = [
        dataclasses.replace(
            series(index, steps, 100 - steps / 10 - delay / 10 * index / 2 + (index == 3) * 0.5),
            at=steps * 2 + delay * index,
        )
        for index in range(10)
    ]
    heat = heat_map_of(ranks, axis=axis, columns=10, rows=20)
    others = np.delete(heat.distances, 3, axis=0)
    assert np.nanmax(np.abs(others)) < 0.2
    assert heat.distances[3].tolist() == pytest.approx([0.5] * 10, abs=0.2)


def test_a_step_at_which_all_are_off_is_no_distance_of_any():
    values = np.where(np.arange(1000) % 50 == 7, 9.0, 1.0)
    ranks = [series(index, np.arange(1000), values + index / 100) for index in range(11)]
    heat = heat_map_of(ranks, axis="step", columns=10, rows=20)
    assert heat.distances[10].tolist() == pytest.approx([0.05] * 10)
