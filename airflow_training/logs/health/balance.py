"""How evenly samples and files are spread over instances, and samples over files. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from airflow_training.logs.model import Finding

__all__ = ["ValueDistribution", "distribution", "imbalance"]

_MOST = 1.5
"""Times the median: the slowest reader waits so much longer than the others."""
_FEWEST = 100
"""Samples in all; a few are never spread evenly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueDistribution:
    """Counts of something, each of a named place."""

    places: int
    total: float
    least: float
    median: float
    p95: float
    most: float
    fullest: str
    emptiest: str


def distribution(counts: Mapping[str, float]) -> ValueDistribution:
    """Return how counts are spread; raises ValueError for none."""
    if not counts:
        raise ValueError("no counts")
    values = np.array(list(counts.values()), dtype=np.float64)
    return ValueDistribution(
        places=len(values),
        total=float(values.sum()),
        least=float(values.min()),
        median=float(np.median(values)),
        p95=float(np.percentile(values, 95)),
        most=float(values.max()),
        fullest=max(counts, key=lambda place: counts[place]),
        emptiest=min(counts, key=lambda place: counts[place]),
    )


def imbalance(
    counts: Mapping[str, float], *, of: str, per: str, fewest: int = _FEWEST
) -> Finding | None:
    """Return a finding where one place has half as much again as the middle one, or half of it.

    `of`, `per`: for people (`samples`, `instance`). Counts that differ by one are as even as they
    can be.
    """
    if len(counts) < 2:
        return None
    found = distribution(counts)
    uneven = found.most > _MOST * found.median or found.least * _MOST < found.median
    if found.total < fewest or not uneven or found.most - found.least <= 1:
        return None
    message = (
        f"{of} per {per} are uneven: {found.fullest} has {found.most:g},"
        f" {found.emptiest} {found.least:g}, the middle one {found.median:g}"
    )
    return Finding(kind="imbalance", message=message, metric=of)
