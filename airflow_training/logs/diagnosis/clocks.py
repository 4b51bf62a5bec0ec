"""By how much the clocks of several logs differ, from steps that all of them report. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from airflow_training.logs.model import FileScan, Series

__all__ = ["skews"]

_LEAST_COMMON = 3
"""Fewer common steps say nothing: one of them may have been a slow one."""


def skews(scans: Sequence[FileScan]) -> tuple[float, ...]:
    """Return for each log the seconds that its clock is ahead of the first one that can be compared."""
    times = [_step_times(scan.series) for scan in scans]
    reference = next((each for each in times if each), {})
    found = []
    for each in times:
        common = [each[key] - reference[key] for key in each.keys() & reference.keys()]
        found.append(median(common) if len(common) >= _LEAST_COMMON else 0.0)
    return tuple(found)


def _step_times(series: Sequence[Series]) -> dict[tuple[str, float], float]:
    """Return when each step of each metric was first reported."""
    times: dict[tuple[str, float], float] = {}
    for each in series:
        for step, time in zip(each.steps.tolist(), each.times.tolist(), strict=True):
            if not (math.isnan(step) or math.isnan(time)):
                times.setdefault((each.metric, step), time)
    return times
