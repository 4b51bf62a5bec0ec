"""Ranks that are slower than the others, and stay so. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from airflow_training.logs.health.ranks import Rank, finding_at, intervals
from airflow_training.logs.model import Finding, Series

if TYPE_CHECKING:
    from airflow_training.logs.model import Floats

__all__ = ["stragglers"]

_WINDOW = 20
"""Reports of a window. Its median forgets pauses (evaluation, checkpoints) that few reports hold."""
_WARM_UP = 1
"""Windows: compilation and cold caches hit the ranks unequally."""
_LASTING = 3
"""Windows in a row: a neighbour on the network slows a rank for a while."""
_DEVIATIONS = 6.0
_LEAST = 1.10
"""Less than 10 % is not worth a person's time."""
_FLOOR = 0.02
"""Of the step time: ranks in step agree to the millisecond, and any jitter would be many deviations."""


def stragglers(ranks: Sequence[Rank]) -> list[Finding]:
    """Return a finding for each rank whose step time is above the others' for several windows.

    Only ranks of the collective are compared: a parameter server or an evaluator has none.
    """
    timed = [(rank, series) for rank in ranks if (series := _step_times(rank)) is not None]
    if len(timed) < 2:
        return []
    windows = min(len(series.values) for _, series in timed) // _WINDOW
    if windows < _WARM_UP + _LASTING:
        return []
    looked_at = [_windows(series.values, windows) for _, series in timed]
    medians = np.array([middle for middle, _ in looked_at])
    noise = np.median([error for _, error in looked_at], axis=0)
    # the lower median: of two ranks the faster is the norm
    centre = np.sort(medians, axis=0)[(len(timed) - 1) // 2]
    spread = 1.4826 * np.median(np.abs(medians - centre), axis=0) if len(timed) > 2 else noise
    spread = np.maximum.reduce([spread, noise, _FLOOR * centre])
    limit = np.maximum(centre * _LEAST, centre + _DEVIATIONS * spread)
    slow = (medians > limit)[:, _WARM_UP:]
    found = []
    for number, (rank, series) in enumerate(timed):
        first = _first_lasting(slow[number])
        if first is None:
            continue
        first += _WARM_UP
        over = medians[number, first:] / centre[first:]
        still = bool(slow[number, -1])
        message = (
            f"{rank.name} needs {np.median(over) - 1:.0%} more time for a step than the others"
            f" ({np.median(medians[number, first:]):.3g} s, they {np.median(centre[first:]):.3g} s)"
            f"{'' if still else ', and caught up later'}"
        )
        at = min(first * len(series.values) // windows, len(series.values) - 1)
        found.append(finding_at(series, at, kind="straggler", message=message))
    return found


def _step_times(rank: Rank) -> Series | None:
    """Return the rank's step times in seconds: as printed, else from the times of its reports."""
    if rank.key[3] is None:
        return None
    printed = rank.metrics.get("step_time_seconds")
    if printed is not None:
        return printed
    reports = rank.reports
    if reports is None:
        return None
    seconds, steps, at = intervals(reports)
    return Series(
        metric="step_time_seconds",
        role=reports.role,
        index=reports.index,
        rank=reports.rank,
        file=reports.file,
        steps=reports.steps[at],
        values=seconds / steps,
        times=reports.times[at],
        offsets=reports.offsets[at],
        lines=reports.lines[at],
        total=len(at),
    )


def _windows(values: Floats, windows: int) -> tuple[Floats, Floats]:
    """Return median of each window and the standard error of it, from robust deviations."""
    middles, errors = np.zeros(windows), np.zeros(windows)
    for number, part in enumerate(np.array_split(values, windows)):
        told = part[np.isfinite(part)]
        if len(told):
            middles[number] = np.median(told)
            deviation = 1.4826 * np.median(np.abs(told - middles[number]))
            errors[number] = 1.2533 * deviation / np.sqrt(len(told))
    return middles, errors


def _first_lasting(slow: np.ndarray) -> int | None:
    """Return where the first stretch of so many slow windows begins."""
    if len(slow) < _LASTING:
        return None
    run = np.convolve(slow, np.ones(_LASTING), mode="valid")
    at = np.flatnonzero(run == _LASTING)
    return int(at[0]) if len(at) else None
