"""What device time of a cluster costs, and how a table of step times scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airflow_training.errors import InputError, Problem
from airflow_training.planning.search.objectives import MoneyObjective, Objective, TokenObjective
from airflow_training.planning.view.cluster import ClusterView
from airflow_training.planning.view.computation import ComputationView

Floats = npt.NDArray[np.float64]
_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What `devices` devices of each group cost and lose, per hour."""

    known: bool
    """False: the cluster says no prices, and money is counted in device-hours."""
    price: Floats
    """Per group, of one device."""
    restarts: Floats
    """Per group, of one device: 0 unless it is bought on the spot market."""


def rates(cluster: ClusterView, objective: Objective) -> Rates:
    """Return the rates of a cluster's groups.

    Raises:
        InputError: the objective is about money and a group has no price.
    """
    spot = objective.purchase == "spot"
    prices = [
        group.spot_price_per_device_hour if spot else group.price_per_device_hour
        for group in cluster.groups
    ]
    key = "spot_price_per_device_hour" if spot else "price_per_device_hour"
    if None in prices and (spot or isinstance(objective, MoneyObjective | TokenObjective)):
        raise InputError(
            [
                Problem(
                    code="missing",
                    field=f"cluster.nodes[{number}].{key}",
                    message=f"the objective counts money, and '{group.name}' has no price",
                    hint=f"give {key}, or choose the objective 'time'",
                )
                for number, (group, price) in enumerate(zip(cluster.groups, prices, strict=True))
                if price is None
            ]
        )
    known = None not in prices
    return Rates(
        known=known,
        price=np.asarray([price if known else 1.0 for price in prices], dtype=np.float64),
        restarts=np.asarray(
            [group.spot_restarts_per_device_hour if spot else 0.0 for group in cluster.groups]
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveScores:
    """How a table of step times on some devices counts."""

    wall_seconds: Floats
    """Per step, with the restarts that are expected."""
    money: Floats
    """Per step."""
    score: Floats
    """What the objective minimises."""
    over_budget: Floats
    """The share by which the budget is exceeded; 0 within it, and where there is none."""


def scores(
    objective: Objective,
    rates: Rates,
    *,
    step_seconds: Floats,
    devices: Floats,
    tokens_per_step: float,
) -> ObjectiveScores:
    """Return the scores of steps; `devices` has a column per group: shape (rows, groups)."""
    wall = _wall_seconds(objective, step_seconds, devices @ rates.restarts)
    money = wall * (devices @ rates.price) / _HOUR
    score, over = wall, np.zeros_like(wall)
    if isinstance(objective, MoneyObjective):
        score = money
    elif isinstance(objective, TokenObjective):
        steps = objective.tokens / tokens_per_step
        over = np.maximum(money * steps / objective.budget - 1.0, 0.0)
        score = np.where(over > 0, np.inf, wall * steps)
    return ObjectiveScores(wall_seconds=wall, money=money, score=score, over_budget=over)


def _wall_seconds(objective: Objective, step_seconds: Floats, restarts_per_hour: Floats) -> Floats:
    """Return the expected wall time of steps, restarts included.

    Of every wall hour `restarts_per_hour * restart_seconds` are lost, so a step takes
    t / (1 - rate * loss) (renewal reward: the long-run share of useful time of a process that restarts
    at a constant rate); a rate that eats up all time gives infinity.
    """
    useful = 1.0 - restarts_per_hour * objective.restart_seconds / _HOUR
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(useful > 0, step_seconds / np.maximum(useful, 0.0), np.inf)


def tokens_per_sample(view: ComputationView) -> int:
    """Return the length of a sample: the longest `sequence` axis of the view's inputs, else 1."""
    return max(
        (
            size
            for tensor in view.tensors.values()
            if tensor.kind == "input"
            for axis, size in zip(tensor.axes, tensor.shape, strict=True)
            if axis == "sequence"
        ),
        default=1,
    )
