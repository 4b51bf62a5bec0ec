"""What several series of an instance say together: steps and samples at a time, and the time of a step. Pure."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from airflow_training.control.system_metrics import SAMPLES, is_system_metric
from airflow_training.documents.instances import InstanceKey
from airflow_training.state.records import MetricPoint
from airflow_training.web.series import StoredSeries

__all__ = [
    "STEP_TIME",
    "InstanceCounters",
    "counters_of",
    "shown_names",
    "step_times",
    "with_samples",
    "with_steps",
]

STEP_TIME = "step_time_seconds"
"""As logs are read; shown where nobody tells the time of a step under any name."""
_IS_STEP_TIME = re.compile(
    r"(step|batch|iteration|iter)s?[^a-z]?(time|seconds|duration|ms)"
    r"|(time|seconds|ms)[^a-z]?per[^a-z]?(step|batch|iteration)",
    re.IGNORECASE,
)
_LOSSES = ("loss", "train_loss")
_LOGGED_SAMPLES = "consumed_samples"
"""What logs call it."""
_MILLISECOND = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceCounters:
    """The series by which it is known how far an instance was at a time."""

    steps: MetricPoint | None
    samples: MetricPoint | None


def counters_of(points: Sequence[MetricPoint]) -> Mapping[InstanceKey, InstanceCounters]:
    """Return per instance what its steps and samples are known by. `points`: the newest of each series."""
    of_instance: dict[tuple[str, int], list[MetricPoint]] = {}
    for each in points:
        of_instance.setdefault((each.role, each.index), []).append(each)
    return {
        InstanceKey(*key): InstanceCounters(
            steps=min(
                (
                    each
                    for each in found
                    if each.step is not None and not is_system_metric(each.name)
                ),
                key=_usefulness,
                default=None,
            ),
            samples=next(
                (
                    each
                    for name in (SAMPLES, _LOGGED_SAMPLES)
                    for each in found
                    if each.name == name
                ),
                None,
            ),
        )
        for key, found in of_instance.items()
    }


def _usefulness(point: MetricPoint) -> tuple[float, bool, str, int]:
    """Return what is least for the metric that is told at most steps: an evaluation's is behind."""
    rank = -1 if point.rank is None else point.rank
    return -(point.step or 0), point.name not in _LOSSES, point.name, rank


def shown_names(points: Sequence[MetricPoint]) -> Collection[str]:
    """Return the names of all series that can be drawn."""
    names = {each.name for each in points} - {SAMPLES}
    is_told = any(_IS_STEP_TIME.search(each) for each in names)
    has_steps = any(each.step is not None and not is_system_metric(each.name) for each in points)
    return names if is_told or not has_steps else names | {STEP_TIME}


def step_times(told: StoredSeries) -> StoredSeries:
    """Return the seconds from each step to the next, on average where several are told at once.

    Steps that are done again begin anew: of the way back to them nothing is told.
    """
    known = np.isfinite(told.steps)
    at, steps = told.at[known], told.steps[known]
    # lines of a log that tell no time have that of the look that found them: the last of a moment stands for all
    kept = _last_of(np.floor(at / _MILLISECOND), 1)
    at, steps = at[kept], steps[kept]
    kept = _last_of(at, _MILLISECOND / 2)
    at, steps = at[kept], steps[kept]
    ahead = np.diff(steps)
    forward = ahead > 0
    return dataclasses.replace(
        told,
        name=STEP_TIME,
        at=at[1:][forward],
        steps=steps[1:][forward],
        values=np.diff(at)[forward] / ahead[forward],
    )


def _last_of(values: NDArray[np.float64], least: float) -> NDArray[np.bool_]:
    """Return which values are followed by none that is nearer than so much."""
    return np.append(np.diff(values) >= least, True)[: len(values)]


def with_samples(series: StoredSeries, counted: StoredSeries) -> StoredSeries:
    """Return a series with how many samples had been read at each point; NaN before the first and after the last."""
    samples = _at(series.at, counted.at, _through_restarts(counted), before=np.nan, after=np.nan)
    return dataclasses.replace(series, samples=samples)


def with_steps(series: StoredSeries, counted: StoredSeries) -> StoredSeries:
    """Return a series with the step that was reached at each point, before the first that step."""
    known = counted.steps[np.isfinite(counted.steps)]
    first, last = (float(known[0]), float(known[-1])) if len(known) else (np.nan, np.nan)
    steps = _at(series.at, counted.at, counted.steps, before=first, after=last)
    return dataclasses.replace(series, steps=steps)


def _through_restarts(counted: StoredSeries) -> NDArray[np.float64]:
    """Return the samples since the beginning: a script that was restored counts from there, or from nothing.

    What had been counted at its step before says which.
    """
    whole = counted.values.copy()
    begins = np.flatnonzero(np.diff(counted.values) < 0) + 1
    for begin, end in itertools.pairwise([*begins, len(whole)]):
        known = np.flatnonzero(np.isfinite(counted.steps[:begin] + whole[:begin]))
        if len(known) and np.isfinite(counted.steps[begin]):
            steps, first = np.unique(counted.steps[known], return_index=True)
            before = np.interp(counted.steps[begin], steps, whole[known[first]], left=0.0)
            whole[begin:end] += max(0.0, float(before) - counted.values[begin])
    return whole


def _at(
    times: NDArray[np.float64],
    known_times: NDArray[np.float64],
    counts: NDArray[np.float64],
    *,
    before: float,
    after: float,
) -> NDArray[np.float64]:
    known = np.isfinite(counts)
    if not known.any():
        return np.full(len(times), np.nan)
    between = np.interp(times, known_times[known], counts[known], left=before, right=after)
    return np.asarray(np.rint(between), np.float64)
