"""The frozen constants give the published step times, as closely as docs/planner.md says."""

from __future__ import annotations

import numpy as np
import pytest

from airflow_training.planning.cost.constants import FROZEN
from airflow_training.planning.cost.refining import value
from benchmarks.fit_planner import FREE, errors
from benchmarks.planner_rows import by_set, calibration, h200, published


@pytest.mark.parametrize(
    ("rows", "kind", "mean", "worst"),
    [
        pytest.param(calibration, "one node, GPT", 0.065, 0.40, id="one-node"),
        pytest.param(calibration, "64 to 512 GPUs, GPT", 0.06, 0.25, id="many-nodes"),
        pytest.param(calibration, "FSDP on A100 and H100", 0.05, 0.15, id="fsdp"),
        pytest.param(calibration, "nanotron on H100", 0.11, 0.30, id="nanotron"),
        pytest.param(calibration, "mixed V100 and T4", 0.15, 0.45, id="mixed"),
        pytest.param(published, "Megatron SC'21 table 1", 0.05, 0.09, id="sc21-table-1"),
        pytest.param(published, "Megatron SC'21 table 2, 3D", 0.04, 0.07, id="sc21-3d"),
        pytest.param(published, "Megatron SC'21 table 2, ZeRO-3", 0.15, 0.25, id="sc21-zero-3"),
        pytest.param(published, "Korthikanti table 5", 0.035, 0.07, id="korthikanti"),
        pytest.param(published, "MT-NLG 530B", 0.16, 0.20, id="mt-nlg"),
        pytest.param(h200, "h200", 0.25, 0.70, id="h200"),
        pytest.param(h200, "h200, after choices", 0.42, 0.85, id="h200-after-choices"),
        pytest.param(h200, "h200, predicted before", 0.18, 0.51, id="h200-predicted-before"),
    ],
)
def test_step_times_are_as_close_as_documented(rows, kind, mean, worst):
    """Mean and worst relative error of a set of measured rows."""
    chosen = [row for row in rows() if row.kind == kind]
    error = np.abs(errors(chosen, FROZEN))
    assert error.mean() <= mean
    assert error.max() <= worst


def test_constants_are_physical():
    """Every fitted constant lies where its meaning lets it."""
    for each in FREE:
        assert each.low * 0.999 <= value(FROZEN, each.name) <= each.high * 1.001, each.name


def test_every_set_of_rows_is_judged():
    """Rows are told apart by their sets, and none of those is empty."""
    assert {len(places) for places in by_set(calibration()).values()} == {144, 27, 20, 6, 8}
