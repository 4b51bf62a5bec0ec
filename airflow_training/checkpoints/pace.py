"""How long steps take, and how much longer while a save runs in the background. Told the time, never asks."""

from __future__ import annotations

import statistics
from collections import deque

__all__ = ["StepPace"]

_STEPS = 50


class StepPace:
    """Seconds of the last steps, those during a save apart."""

    def __init__(self) -> None:
        self._free: deque[float] = deque(maxlen=_STEPS)
        self._saving: list[float] = []

    def step(self, seconds: float, *, saving: bool) -> None:
        """Count one step."""
        if saving:
            self._saving.append(seconds)
        else:
            self._free.append(seconds)

    @property
    def step_seconds(self) -> float:
        """Median of the last steps, of those during a save where there were no others; 0 before the first."""
        known = self._free or self._saving
        return statistics.median(known) if known else 0.0

    def take_slowed_seconds(self) -> float:
        """Return by how much the steps of the last save were longer in all, and begin to count anew."""
        during, self._saving = self._saving, []
        if not during or not self._free:
            return 0.0
        longer = statistics.median(during) - statistics.median(self._free)
        return max(0.0, longer) * len(during)
