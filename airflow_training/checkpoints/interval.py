"""When to save: what the user asked for, or the interval that loses least. Pure: no clock, no I/O.

`auto` weighs what a save costs against the work that a failure loses. It is held under a cap: training
never stands still for more than 0.5 % of the time, and saving takes no more than 1 % of it in all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from airflow_training.checkpoints.errors import CheckpointError

__all__ = [
    "AutoInterval",
    "Interval",
    "SaveCost",
    "StepInterval",
    "TimeInterval",
    "auto_seconds",
    "daly_seconds",
    "fits_in_grace",
    "grace_needed",
    "parse_every",
    "seconds_between_failures",
    "steps_between_looks",
    "young_seconds",
]

STALL_CAP = 0.005
"""Share of the time that training may stand still for snapshots."""

TOTAL_CAP = 0.01
"""Share of the time that saving may cost, with the steps that a running upload slows down."""

FIRST_SECONDS = 60.0
"""`auto` saves first after this: what a save costs is known only from one."""

LONGEST_SECONDS = 600.0
"""`auto` risks no more work than this, however rare failures are, unless the caps ask for it."""

PRIOR_SECONDS = 4 * 3600.0
"""Training without a failure that is assumed to lie behind a job that has not failed yet."""

MARGIN = 1.5
"""A save may take this much longer than the longest of the last ones."""

_MOST_STEPS = 1000


@dataclass(frozen=True, slots=True)
class StepInterval:
    steps: int


@dataclass(frozen=True, slots=True)
class TimeInterval:
    seconds: float


@dataclass(frozen=True, slots=True)
class AutoInterval:
    pass


Interval: TypeAlias = StepInterval | TimeInterval | AutoInterval


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveCost:
    """What one save took, in seconds: training stood still, steps were slower, until it was committed."""

    stall_seconds: float
    slowed_seconds: float
    total_seconds: float


def parse_every(given: Interval | Mapping[str, Any] | str) -> Interval:
    """Return the interval of `{"steps": 500}`, `{"seconds": 600}`, `{"auto": True}` or `"auto"`."""
    if isinstance(given, StepInterval | TimeInterval | AutoInterval):
        return given
    document = {"auto": True} if given == "auto" else given
    if isinstance(document, Mapping) and len(document) == 1:
        ((kind, value),) = document.items()
        number = (
            isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
        )
        if kind == "auto" and value is True:
            return AutoInterval()
        if kind == "seconds" and number:
            return TimeInterval(float(value))
        if kind == "steps" and number and value == int(value):
            return StepInterval(int(value))
    raise CheckpointError(
        f'every: {given!r} is none of {{"steps": n}}, {{"seconds": s}} and "auto", n and s above 0'
    )


def young_seconds(*, cost_seconds: float, mean_seconds: float) -> float:
    """Return Young's interval, sqrt(2 C M): cost of a save C, mean time between failures M.

    J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974.
    """
    return math.sqrt(2 * cost_seconds * mean_seconds)


def daly_seconds(*, cost_seconds: float, mean_seconds: float) -> float:
    """Return Daly's interval of the higher order; M itself where a save costs 2 M and more.

    J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps",
    Future Generation Computer Systems 22(3), 2006. The time computed between two saves.
    """
    if cost_seconds >= 2 * mean_seconds:
        return mean_seconds
    ratio = math.sqrt(cost_seconds / (2 * mean_seconds))
    young = young_seconds(cost_seconds=cost_seconds, mean_seconds=mean_seconds)
    return young * (1 + ratio / 3 + ratio**2 / 9) - cost_seconds


def seconds_between_failures(*, trained_seconds: float, failures: int) -> float:
    """Return the mean time between failures, in seconds of training.

    One failure after four hours is added to what was seen: enough to begin with, soon outweighed.
    """
    return (PRIOR_SECONDS + trained_seconds) / (1 + failures)


def auto_seconds(cost: SaveCost | None, *, mean_seconds: float) -> float:
    """Return the seconds from one save to the next.

    Daly's optimum for what a save costs. The caps bind where they ask for more, as does the time that
    a save takes to be committed: the next one cannot begin before.
    """
    if cost is None:
        return FIRST_SECONDS
    both = cost.stall_seconds + cost.slowed_seconds
    best = min(daly_seconds(cost_seconds=both, mean_seconds=mean_seconds), LONGEST_SECONDS)
    return max(best, cost.stall_seconds / STALL_CAP, both / TOTAL_CAP, cost.total_seconds)


def grace_needed(*, step_seconds: float, save_seconds: float) -> float:
    """Return the seconds from SIGTERM to the end of a save: the step that runs, then the save."""
    return step_seconds + MARGIN * save_seconds


def fits_in_grace(*, left_seconds: float, save_seconds: float | None) -> bool:
    """Return whether to save at the step boundary after SIGTERM; a save never measured is tried.

    A save that does not get through is never taken for one; only time is lost.
    """
    return left_seconds > MARGIN * (save_seconds or 0.0)


def steps_between_looks(*, step_seconds: float, look_seconds: float, grace_seconds: float) -> int:
    """Return after how many steps the ranks ask each other again whether to save or stop.

    Every half second or at every longer step; less often where asking takes long (at most 0.1 % of the
    time), but four times within the grace.
    """
    if step_seconds <= 0:
        return 1
    wished = min(max(0.5, 1000 * look_seconds), grace_seconds / 4)
    return max(1, min(_MOST_STEPS, int(wished / step_seconds)))
