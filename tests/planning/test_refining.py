"""A user's own rows move the constants, as far as they say so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_training.planning.cost import estimate
from airflow_training.planning.cost.constants import FROZEN
from airflow_training.planning.cost.refining import StepTiming, refine, value, with_values
from tests.planning.test_cost import PLAIN, cluster, workload

STRATEGIES = (
    PLAIN,
    replace(PLAIN, recompute="full", micro_batch=4),
    replace(PLAIN, tp=1, pp=1, dp=32, micro_batch=1),
    replace(PLAIN, tp=8, pp=1, dp=4, sequence_parallel=True),
)


def rows(constants, factor=1.0, runtime="own"):
    """Return rows that took `factor` times what constants say."""
    found = []
    for strategy in STRATEGIES:
        job = workload(strategy, runtime=runtime)
        seconds = estimate(job, cluster(), strategy, constants).step_seconds * factor
        found.append(
            StepTiming(workload=job, cluster=cluster(), strategy=strategy, step_seconds=seconds)
        )
    return found


def worst(measured, constants):
    """Return the greatest relative error over rows."""
    return max(
        abs(
            estimate(row.workload, row.cluster, row.strategy, constants).step_seconds
            / row.step_seconds
            - 1.0
        )
        for row in measured
    )


def test_rows_that_agree_change_nothing():
    """Constants that already fit stay."""
    found = refine(rows(FROZEN), FROZEN)
    assert found.matmul_efficiency == pytest.approx(FROZEN.matmul_efficiency, rel=1e-3)
    assert found.runtime_factor("own") == pytest.approx(1.0, rel=1e-3)


def test_no_rows_change_nothing():
    """Without rows the constants are those given."""
    assert refine([], FROZEN) is FROZEN


def test_a_runtime_that_takes_longer_gets_its_factor():
    """A constant overhead of a user's own runtime is learnt, and only for that runtime."""
    measured = rows(FROZEN, factor=1.3)
    found = refine(measured, FROZEN)
    assert worst(measured, found) < 0.05 < worst(measured, FROZEN)
    assert found.runtime_factor("own") > 1.1
    assert found.runtime_factor("fsdp") == FROZEN.runtime_factor("fsdp")


def test_one_wild_row_is_not_believed():
    """An outlier hardly moves what the other rows say."""
    measured = rows(FROZEN)
    wild = [replace(measured[0], step_seconds=measured[0].step_seconds * 3), *measured[1:]]
    assert worst(measured, refine(wild, FROZEN)) < 0.12


def test_constants_have_names():
    """Constants of a mapping are named by a dot; one that is missing reads as the usual."""
    changed = with_values(FROZEN, {"k_half": 50.0, "runtime_factors.mine": 1.2})
    assert (value(changed, "k_half"), value(changed, "runtime_factors.mine")) == (50.0, 1.2)
    assert value(FROZEN, "runtime_host_seconds.mine") == FROZEN.host_seconds
