"""Constants of time that fit measured steps, held near those they start from.

Pure: rows in, constants out. A user's own rows move the frozen constants only as far as the rows say so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cost.constants import TimeConstants
from airflow_training.planning.cost.step import strategy_seconds
from airflow_training.planning.view.cluster import ClusterView
from airflow_training.planning.view.plan import Workload
from airflow_training.planning.view.strategy import Strategy

Array = npt.NDArray[np.float64]

_TYPICAL_ERROR = 0.05
"""Relative error from which a row counts less and less: measurements have outliers."""
_STEP = 1e-3
_MOST_STEPS = 8
_ENOUGH = 1e-3
"""Change of the logarithm of every constant below which a fit is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTiming:
    """One strategy and the seconds that a step of it took."""

    workload: Workload
    cluster: ClusterView
    strategy: Strategy
    step_seconds: float
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeConstant:
    """A constant that a fit may move: `matmul_efficiency`, or `runtime_factors.fsdp`."""

    name: str
    low: float
    high: float
    spread: float
    """Standard deviation of the logarithm of what it may be, before any row is seen."""


USUAL = (
    FreeConstant(name="matmul_efficiency", low=0.3, high=1.0, spread=0.1),
    FreeConstant(name="bandwidth_efficiency", low=0.2, high=1.0, spread=0.1),
    FreeConstant(name="network_efficiency", low=0.1, high=1.0, spread=0.2),
)
"""What differs between clusters of the same devices: clocks, power, network."""


def refine(rows: Sequence[StepTiming], constants: TimeConstants) -> TimeConstants:
    """Return constants that fit a user's own rows, drawn to those given.

    `USUAL` and a factor for each runtime of the rows may move. Few rows move little:
    each constant stays near its start by its `spread`.
    """
    if not rows:
        return constants
    runtimes = sorted({row.workload.runtime for row in rows})
    factors = (
        FreeConstant(name=f"runtime_factors.{name}", low=0.5, high=3.0, spread=0.2)
        for name in runtimes
    )
    return fit(rows, constants, (*USUAL, *factors))


def fit(
    rows: Sequence[StepTiming],
    constants: TimeConstants,
    free: Sequence[FreeConstant],
    *,
    predict: Callable[[Sequence[StepTiming], TimeConstants], Array] | None = None,
) -> TimeConstants:
    """Return the constants with the least robust squared log error, and a ridge to those given.

    Levenberg's damped Gauss-Newton steps on the logarithms of the constants, with the weights of the
    soft L1 loss renewed at every step (iteratively reweighted least squares, Holland and Welsch 1977).
    """
    predict = predict or predicted
    target = np.log([row.step_seconds for row in rows])
    weight = np.array([row.weight for row in rows])
    start = np.log([value(constants, each.name) for each in free])
    spread = np.array([each.spread for each in free])
    low, high = (np.log([getattr(each, end) for each in free]) for end in ("low", "high"))

    def at(point: Array) -> TimeConstants:
        names = [each.name for each in free]
        return with_values(constants, dict(zip(names, np.exp(point), strict=True)))

    def errors(point: Array) -> Array:
        return np.log(predict(rows, at(point))) - target

    def loss(error: Array, point: Array) -> float:
        scaled = (error / _TYPICAL_ERROR) ** 2
        ridge = ((point - start) / spread) ** 2
        return float((weight * 2.0 * (np.sqrt(1.0 + scaled) - 1.0)).sum() + ridge.sum())

    point, damping = start, 1e-3
    error = errors(point)
    for _ in range(_MOST_STEPS):
        jacobian = np.stack(
            [(errors(point + _STEP * axis) - error) / _STEP for axis in np.eye(len(free))], axis=1
        )
        robust = weight / np.sqrt(1.0 + (error / _TYPICAL_ERROR) ** 2) / _TYPICAL_ERROR**2
        slope = jacobian.T @ (robust * error) + (point - start) / spread**2
        curve = (jacobian.T * robust) @ jacobian + np.diag(1.0 / spread**2)
        better, there, error_there = False, point, error
        while damping < 1e6 and not better:
            damped = curve + damping * np.diag(np.diag(curve))
            there = np.clip(point - np.linalg.solve(damped, slope), low, high)
            error_there = errors(there)
            better = loss(error_there, there) < loss(error, point)
            damping *= 0.2 if better else 10.0
        if not better or np.abs(there - point).max() < _ENOUGH:
            return at(there if better else point)
        point, error = there, error_there
    return at(point)


def predicted(rows: Sequence[StepTiming], constants: TimeConstants) -> Array:
    """Return the estimated seconds of each row."""
    return np.array(
        [strategy_seconds(row.workload, row.cluster, row.strategy, constants) for row in rows]
    )


def value(constants: TimeConstants, name: str) -> float:
    """Return a constant by its name; one of a mapping that is not there is that of all others."""
    name, _, key = name.partition(".")
    found = getattr(constants, name)
    if not isinstance(found, Mapping):
        return float(found)
    usual = {
        "runtime_host_seconds": constants.host_seconds,
        "runtime_handover_seconds": 0.0,
        "runtime_factors": 1.0,
    }
    return float(found.get(key, usual.get(name, found.get("", 1.0))))


def with_values(constants: TimeConstants, values: Mapping[str, float]) -> TimeConstants:
    """Return the constants with some replaced, by their names."""
    changed: dict[str, Any] = {}
    for dotted, number in values.items():
        name, dot, key = dotted.partition(".")
        if dot:
            changed[name] = {**changed.get(name, getattr(constants, name)), key: float(number)}
        else:
            changed[name] = float(number)
    return replace(constants, **changed)
