"""Whether a series of times is that of steps, or of a clock that runs since the start. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from airflow_training.logs.model import Floats

__all__ = ["CLOCK_NAME", "MANY", "STEP_NAME", "since_start"]

CLOCK_NAME, STEP_NAME = "time", "step_time_seconds"
"""What a bare time is called where it is a clock's, and where it is that of a step."""
MANY = 20
"""Reports, among which a clock may have been set back: with each epoch, or by a restart."""
_MOSTLY = 0.9
_SURELY = 4
"""Reports that each are above the one before by chance once in 24 times."""
_GROWN = 1.2
"""What varies by less does not grow."""
_LIKE_STEPS = 0.25
_EVEN = 0.3
"""By how much the time of a step may differ from one report to the next."""
_LONGEST_STEP = 3600.0


def since_start(steps: Floats, values: Floats) -> bool:
    """Return whether times only grow; `steps`: those they were told at, NaN where none is known."""
    told = np.isfinite(values)
    steps, values = steps[told], values[told]
    if len(values) < 2:
        return bool(len(values)) and float(values[0]) > _LONGEST_STEP
    rises = np.diff(values)
    if len(values) >= MANY:
        return float((rises > 0).mean()) >= _MOSTLY
    if not (rises > 0).all() or values[-1] < _GROWN * values[0]:
        return False
    return len(values) >= _SURELY or _is_proportional(steps, values) or _is_even(steps, values)


def _is_proportional(steps: Floats, values: Floats) -> bool:
    """Return whether times are as many times the first one as steps are."""
    if not (np.isfinite(steps).all() and steps[0] > 0 and steps[-1] >= 1.5 * steps[0]):
        return False
    paces = values / steps
    return bool(paces.max() <= (1 + _LIKE_STEPS) * paces.min())


def _is_even(steps: Floats, values: Floats) -> bool:
    """Return whether three or more times are equally far from each other, for each step."""
    apart = np.diff(steps) if np.isfinite(steps).all() else np.ones(len(values) - 1)
    if len(values) < 3 or not (apart > 0).all():
        return False
    paces = np.diff(values) / apart
    return bool(paces.max() <= (1 + _EVEN) * paces.min())
