"""Throughput that falls and stays low, and memory that only grows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from airflow_training.logs.health.ranks import Rank, finding_at
from airflow_training.logs.model import Finding, Series

if TYPE_CHECKING:
    from airflow_training.logs.model import Floats

__all__ = ["drops", "memory_growth"]

_WINDOW = 10
"""Reports; the median of a window forgets an evaluation or a checkpoint in it."""
_FEWEST_WINDOWS = 10
_MOST_WINDOWS = 400
_BEFORE = 6
"""Windows that make a norm."""
_LASTING = 3
_DROP = 0.75
"""Of the usual throughput."""
_DEVIATIONS = 6.0
_WARM_UP = 0.1
_PARTS = 8
_LEAST_GROWTH = 0.10
_SETTLING = 0.2
"""Of the reports: allocators and caches fill at first."""


def drops(ranks: Sequence[Rank]) -> list[Finding]:
    """Return where ranks began to get through less, for three windows or more."""
    found = []
    for rank in ranks:
        series = _throughput(rank)
        if series is None:
            continue
        windows = min(len(series.values) // _WINDOW, _MOST_WINDOWS)
        if windows < _FEWEST_WINDOWS:
            continue
        medians = _medians(series.values, windows)
        warm = max(1, int(_WARM_UP * windows))
        # what it did before is its norm: a run that gets faster has not dropped at its start
        for at in range(warm + _BEFORE, windows - _LASTING + 1):
            before = medians[warm:at]
            usual = float(np.median(before))
            spread = 1.4826 * float(np.median(np.abs(before - usual)))
            limit = min(_DROP * usual, usual - _DEVIATIONS * spread)
            if (medians[at : at + _LASTING] < limit).all():
                after = medians[at:]
                lost = 1 - float(np.median(after[:_LASTING])) / usual
                again = "" if (after < limit).all() else ", and rose again later"
                message = f"{rank.name}: {series.metric} fell by {lost:.0%} from {usual:.4g}{again}"
                where = at * len(series.values) // windows
                found.append(finding_at(series, where, kind="throughput-drop", message=message))
                break
    return found


def _throughput(rank: Rank) -> Series | None:
    for name in ("tokens_per_second", "samples_per_second", "tflops_per_gpu"):
        series = rank.metrics.get(name)
        if series is not None and np.isfinite(series.values).sum() >= _WINDOW * _FEWEST_WINDOWS:
            return series
    return None


def memory_growth(ranks: Sequence[Rank]) -> list[Finding]:
    """Return ranks whose memory rises through the whole run: a leak ends in an out-of-memory."""
    found = []
    for rank in ranks:
        series = rank.metrics.get("memory_bytes")
        if series is None or len(series.values) < _WINDOW * _PARTS:
            continue
        start = int(_SETTLING * len(series.values))
        medians = _medians(series.values[start:], _PARTS)
        first, last = float(medians[0]), float(medians[-1])
        # eight parts in rising order are one of 40,320 by chance
        if (np.diff(medians) > 0).all() and last > (1 + _LEAST_GROWTH) * first:
            message = f"{rank.name}: memory grows steadily, from {first / 2**30:.2f} to {last / 2**30:.2f} GiB"
            found.append(finding_at(series, start, kind="memory-growth", message=message))
    return found


def _medians(values: Floats, parts: int) -> Floats:
    blocks = np.array_split(values, parts)
    return np.array([np.nanmedian(block) if np.isfinite(block).any() else 0.0 for block in blocks])
