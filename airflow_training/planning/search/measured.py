"""The cost model of a search that knows what runs of the same model measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from airflow_training.errors import InputError
from airflow_training.planning.cost.constants import TimeConstants
from airflow_training.planning.cost.measurements import MeasuredStep, measured_estimate
from airflow_training.planning.cost.refining import value, with_values
from airflow_training.planning.search.calibrated import pricing_with
from airflow_training.planning.search.pricing import Floats, Pricing
from airflow_training.planning.view.cluster import ClusterView
from airflow_training.planning.view.plan import Estimate, StrategyTable, Workload
from airflow_training.planning.view.strategy import Strategy

__all__ = ["Correction", "measured_pricing"]

_SIZES = ("tp", "pp", "dp", "cp", "ep", "virtual_stages", "micro_batch")
_EQUAL = 1e-9
"""Relative difference of seconds that are the same but for rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """How far runs were from what had been worked out for them."""

    factor: float
    """Measured against estimated time: of all strategies that nobody measured."""
    strategies: int
    runs: int


def measured_pricing(
    constants: TimeConstants,
    workload: Workload,
    cluster: ClusterView,
    steps: Sequence[MeasuredStep],
) -> tuple[Pricing, Correction | None]:
    """Return the cost model with these constants, corrected by what was measured, and by how much.

    Strategies that were measured take what was measured. All others take the runtime's factor that
    the measured ones had: the geometric mean of measured against estimated time. It is not drawn to 1,
    as it would be in `refining`: then a split would be left only because it is the one that was
    measured. None is returned where nothing tells anything about this workload.

    Args:
        constants: of the cost model.
        workload: what is planned; steps of another precision do not count.
        cluster: what it is planned on.
        steps: one for each strategy (`measurements.steps_of`).
    """
    plain = pricing_with(constants)
    ratios: list[tuple[MeasuredStep, float]] = []
    for step in steps:
        if step.strategy.precision == workload.precision:
            estimated = _seconds(plain, workload, cluster, step.strategy)
            if estimated is not None:
                ratios.append((step, step.step_seconds / estimated))
    if not ratios:
        return plain, None
    factor = float(np.exp(np.mean([np.log(ratio) for _, ratio in ratios])))
    own = f"runtime_factors.{workload.runtime}"
    seen = {*constants.fitted_devices, *(group.device.name for group in cluster.groups)}
    corrected = replace(
        with_values(constants, {own: value(constants, own) * factor}),
        fitted_devices=tuple(sorted(seen)),
    )
    known = [step for step, _ in ratios]
    correction = Correction(
        factor=factor, strategies=len(known), runs=sum(step.runs for step in known)
    )
    apart = [step for step, ratio in ratios if abs(ratio / factor - 1.0) > _EQUAL]
    return _knowing(pricing_with(corrected), workload, known, apart), correction


def _seconds(
    pricing: Pricing, workload: Workload, cluster: ClusterView, strategy: Strategy
) -> float | None:
    """Return what a strategy is worked out to take; None where it cannot be laid out."""
    try:
        return pricing.estimate(workload, cluster, strategy).step_seconds
    except InputError:
        return None


def _knowing(
    pricing: Pricing,
    workload: Workload,
    steps: Sequence[MeasuredStep],
    apart: Sequence[MeasuredStep],
) -> Pricing:
    """Return the cost model in which strategies take what was measured.

    `apart` are those of the steps that the model does not meet: tables are changed for them alone.
    """
    by_strategy = {step.strategy: step for step in steps}
    in_tables = [
        step
        for step in apart
        if step.strategy.stage_layers is None
        and step.strategy.global_batch == workload.global_batch
    ]

    def estimate(workload: Workload, cluster: ClusterView, strategy: Strategy) -> Estimate:
        found = pricing.estimate(workload, cluster, strategy)
        step = by_strategy.get(strategy)
        if step is not None:
            return measured_estimate(found, step)
        corrected = [
            replace(part, origin="measured") if part.name == "runtime" else part
            for part in found.time
        ]
        return replace(found, time=corrected)

    def step_seconds(workload: Workload, cluster: ClusterView, table: StrategyTable) -> Floats:
        seconds = pricing.step_seconds(workload, cluster, table)
        for step in in_tables:
            same = _of_split(table, step.strategy) & (table.zero == step.strategy.zero)
            if _runs_on(step.strategy, cluster) and same.any():
                worked_out = pricing.estimate(workload, cluster, _alone(step.strategy)).step_seconds
                # also other spellings of this plan: modes that change nothing in it
                equal = np.isclose(seconds, worked_out, rtol=_EQUAL, atol=0.0)
                seconds = np.where(same & equal, step.step_seconds, seconds)
        return seconds

    def floors(
        workload: Workload, cluster: ClusterView, ways: StrategyTable
    ) -> Callable[[StrategyTable], Floats]:
        bound = pricing.floors(workload, cluster, ways)
        here = [step for step in in_tables if _runs_on(step.strategy, cluster)]

        def least(table: StrategyTable) -> Floats:
            seconds = bound(table)
            for step in here:
                # all modes of its split: a search first asks for the bound of the quickest mode
                lower = _of_split(table, step.strategy) & (seconds > step.step_seconds)
                seconds = np.where(lower, step.step_seconds, seconds)
            return seconds

        return least

    return replace(pricing, estimate=estimate, step_seconds=step_seconds, floors=floors)


def _of_split(table: StrategyTable, strategy: Strategy) -> npt.NDArray[np.bool_]:
    same = np.ones(len(table.tp), dtype=np.bool_)
    for name in _SIZES:
        same &= getattr(table, name) == getattr(strategy, name)
    return same


def _runs_on(strategy: Strategy, cluster: ClusterView) -> bool:
    """Return whether the equal nodes of a table are those of a strategy."""
    names = {group.name for group in cluster.groups}
    return strategy.stage_devices is None or set(strategy.stage_devices) == names


def _alone(strategy: Strategy) -> Strategy:
    """Return the strategy as a table on equal nodes has it."""
    return replace(strategy, stage_devices=None)
