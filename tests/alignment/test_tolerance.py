"""What rounding may do: more in coarser numbers, longer sums, deeper modules and later steps."""

from __future__ import annotations

import pytest

from airflow_training.alignment.tolerance import UNIT_ROUNDOFF, rounding_units, tolerance


def test_rounding_grows_with_sums_depth_and_steps():
    units = rounding_units(64)
    assert tolerance("fp64", units, step=0) == 16 * 2.0**-53 * 8
    assert tolerance("fp64", 2 * units, step=0) == 2 * tolerance("fp64", units, step=0)
    assert tolerance("fp64", units, step=1) == 4 * tolerance("fp64", units, step=0)
    assert tolerance("fp64", 0, step=0) == 16 * 2.0**-53


@pytest.mark.parametrize("precision", sorted(UNIT_ROUNDOFF))
def test_no_tolerance_lets_everything_pass(precision):
    assert tolerance(precision, 1000 * rounding_units(10**9), step=50) <= 0.5


def test_fp64_is_essentially_exact_for_a_deep_model():
    assert tolerance("fp64", 500 * rounding_units(4096), step=5) < 1e-7
