"""How long a training step takes, from what scripts say of how far they are. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median

__all__ = ["Pace"]

_KEPT = 64
"""Intervals: the newest ones."""
_LEAST = 3
"""Intervals before anything is said: one of them may hold an evaluation, or a restart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The intervals between reported steps of one instance."""

    step: int | None = None
    """The newest that was reported."""
    at: float = 0.0
    intervals: tuple[tuple[int, float], ...] = ()
    """Steps and seconds, the newest last."""

    def after(self, step: int, at: float) -> Pace:
        """Return the pace once a step was reported at a time.

        A step that is not later than the last one opens no interval: the script has begun again.
        """
        if (step, at) == (self.step, self.at):
            return self
        there = replace(self, step=step, at=at)
        if self.step is None or step <= self.step or at <= self.at:
            return there
        interval = (step - self.step, at - self.at)
        return replace(there, intervals=(*self.intervals, interval)[-_KEPT:])

    @property
    def step_seconds(self) -> float | None:
        """Return the median of the intervals; None: too few were seen.

        A median, so that evaluations, checkpoints and pauses between steps do not count.
        """
        if len(self.intervals) < _LEAST:
            return None
        return median(seconds / steps for steps, seconds in self.intervals)

    @property
    def steps(self) -> int:
        """Return how many steps the intervals span."""
        return sum(steps for steps, _ in self.intervals)
