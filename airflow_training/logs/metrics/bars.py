"""Which progress bar is that of the training, when a second one (an evaluation) runs inside it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["BarRun", "Bars"]

_FRESH = 2
"""A bar that begins is first seen at 0, 1 or 2."""


class BarRun(NamedTuple):
    """Redraws of one bar after each other."""

    total: float
    first: float
    last: float


@dataclass
class Bars:
    """What is known of the bars of one rank so far."""

    total: float | None = None
    """Of the bar of the training."""
    last: float = 0.0
    nested: set[float] = field(default_factory=set)
    runs: int = 0

    def inside(self, runs: Sequence[BarRun]) -> list[bool]:
        """Return which of the next runs are bars inside that of the training.

        A bar is inside when it begins while another is not at its end, or when the other goes on afterwards. A bar
        that is first seen in its middle was there before the log begins, so the one before it was inside.
        """
        found = [False] * len(runs)
        for index, run in enumerate(runs):
            following = runs[index + 1] if index + 1 < len(runs) else None
            if self.total is None or run.total == self.total:
                self._be(run)
            elif run.total in self.nested:
                found[index] = True
            elif (following is not None and self._goes_on(following)) or (
                self.last < self.total and run.first <= _FRESH
            ):
                self.nested.add(run.total)
                found[index] = True
            elif self.last < self.total and self.runs == 1 and index > 0:
                self.nested.add(self.total)
                found[index - 1] = True
                self._be(run)
            else:
                self._be(run)
        return found

    def _goes_on(self, run: BarRun) -> bool:
        return run.total == self.total and run.first >= self.last and run.first > _FRESH

    def _be(self, run: BarRun) -> None:
        self.total, self.last = run.total, run.last
        self.runs += 1
