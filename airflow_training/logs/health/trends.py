"""Does a training learn at all: losses that only rise, accuracies that stay where they began. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from airflow_training.logs.health.ranks import Rank, finding_at, series_of
from airflow_training.logs.model import Finding, Series

if TYPE_CHECKING:
    from airflow_training.logs.model import Floats

__all__ = ["rising_losses", "unchanged_accuracies"]

_FEWEST = 10
_MOST_POINTS = 200
"""All pairs are compared: of more reports the medians of so many parts."""
_RISES = 3.0
_UNCHANGED = 2.0
"""Deviations of Mann-Kendall's test: how far the order of values is from that of chance."""
_LEAST_RISE = 0.05
_PERFECT = (0.99, 99.0)
"""Accuracies, as a share or in percent, that have nowhere to go."""


def rising_losses(ranks: Sequence[Rank]) -> list[Finding]:
    """Return losses that were never better than at their beginning, and rose beyond noise."""
    found = []
    for series, values in _described(ranks, ("loss", "eval_loss")):
        parts = [float(np.median(part)) for part in np.array_split(values, 5)]
        rise = parts[-1] - parts[0]
        rises = all(a < b for a, b in pairwise(parts))
        if rises and rise > _LEAST_RISE * abs(parts[0]) and _trend(values) > _RISES:
            message = (
                f"{series.metric} has only risen since the beginning,"
                f" from {parts[0]:.4g} to {parts[-1]:.4g} over {len(values)} reports"
            )
            found.append(finding_at(series, 0, kind="loss-rising", message=message))
    return found


def unchanged_accuracies(ranks: Sequence[Rank]) -> list[Finding]:
    """Return accuracies that have not changed beyond their noise since the beginning."""
    found = []
    for series, values in _described(ranks, ("accuracy", "eval_accuracy")):
        level = float(np.median(values))
        perfect = _PERFECT[0] <= level <= 1.0 or level >= _PERFECT[1]
        if not perfect and abs(_trend(values)) < _UNCHANGED:
            message = f"{series.metric} stays at {level:.4g} over {len(values)} reports"
            found.append(
                finding_at(series, 0, kind="accuracy-unchanged", message=message, severity="info")
            )
    return found


def _described(ranks: Sequence[Rank], names: Sequence[str]) -> Iterator[tuple[Series, Floats]]:
    """Yield the series of these names that say enough, with their finite values."""
    for series in series_of(ranks, *names):
        values = series.values[np.isfinite(series.values)]
        if len(values) >= _FEWEST:
            yield series, values


def _trend(values: Floats) -> float:
    """Return Mann-Kendall's statistic: 0 for no trend, in deviations of what chance gives."""
    if len(values) > _MOST_POINTS:
        values = np.array([np.median(part) for part in np.array_split(values, _MOST_POINTS)])
    count = len(values)
    later = np.triu(np.sign(values[None, :] - values[:, None]), k=1)
    return float(later.sum() / np.sqrt(count * (count - 1) * (2 * count + 5) / 18))
