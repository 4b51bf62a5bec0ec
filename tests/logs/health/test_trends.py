"""A training that does not learn is told early, one that does is left alone."""

from __future__ import annotations

import numpy as np
import pytest

from airflow_training.logs.health import assess
from tests.logs.health.simulation import a_series, a_training


def kinds(metric: str, values: object) -> list[str]:
    return [each.kind for each in assess([a_series(metric, np.asarray(values, dtype=float))])]


def noise(count: int, by: float, seed: int = 1) -> np.ndarray:
    return by * np.random.default_rng(seed).standard_normal(count)


@pytest.mark.parametrize("metric", ["loss", "eval_loss"])
@pytest.mark.parametrize(
    "values",
    [
        pytest.param(2.3 + 0.1 * np.arange(12), id="without-noise"),
        pytest.param(2.3 + 0.1 * np.arange(12) + noise(12, 0.03), id="with-noise"),
        pytest.param(2.3 * np.exp(0.002 * np.arange(2000)) * np.exp(noise(2000, 0.2)), id="long"),
    ],
)
def test_a_loss_that_only_rises_is_found(metric, values):
    (found,) = assess([a_series(metric, values)])
    assert (found.kind, found.severity, found.line) == ("loss-rising", "warning", 1)
    assert f"{metric} has only risen since the beginning" in found.message


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(2.3 + 0.1 * np.arange(9), id="too-few"),
        pytest.param(2.3 + noise(40, 0.1), id="noise"),
        pytest.param([*np.linspace(3, 1, 10), *np.linspace(1, 2.9, 30)], id="overfits-later"),
        pytest.param(2.3 + 0.001 * np.arange(20), id="hardly"),
        pytest.param(-1.0 - 0.1 * np.arange(20), id="falls-below-zero"),
    ],
)
def test_a_loss_that_may_still_fall_is_not(values):
    assert "loss-rising" not in kinds("loss", values)


@pytest.mark.parametrize("metric", ["accuracy", "eval_accuracy"])
@pytest.mark.parametrize(
    "values",
    [
        pytest.param(np.full(10, 0.1), id="constant"),
        pytest.param(0.1 + noise(30, 0.01), id="noise"),
        pytest.param(10 + noise(3000, 1.0), id="percent-and-long"),
    ],
)
def test_an_accuracy_that_stays_is_found(metric, values):
    (found,) = assess([a_series(metric, values)])
    assert (found.kind, found.severity) == ("accuracy-unchanged", "info")
    assert "stays at" in found.message


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(np.full(9, 0.1), id="too-few"),
        pytest.param([0.1, 0.5, 0.8, 0.85, 0.88, 0.89, 0.9, 0.9, 0.9, 0.9], id="saturates"),
        pytest.param(np.linspace(0.1, 0.4, 20) + noise(20, 0.02), id="grows"),
        pytest.param(np.full(20, 1.0), id="perfect"),
        pytest.param(99.5 + noise(20, 0.1), id="nearly-perfect-in-percent"),
    ],
)
def test_an_accuracy_that_grows_or_is_there_is_not(values):
    assert kinds("accuracy", values) == []


@pytest.mark.parametrize("seed", range(20))
def test_a_healthy_training_has_no_such_finding(seed):
    found = {each.kind for each in assess(a_training(seed=seed))}
    assert not found & {"loss-rising", "accuracy-unchanged"}
