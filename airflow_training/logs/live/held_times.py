"""Bare times in a growing log, held back until it is plain whether they are those of steps or a clock's. Pure.

The reader of a whole log asks all of them (`metrics/clocks`). Of one that grows the first ones say little, and what is in
the store stays there; so they wait until they fall, or are many.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from airflow_training.logs.metrics.clocks import CLOCK_NAME, MANY, STEP_NAME, since_start

__all__ = ["BareTime", "HeldTimes"]

_MOSTLY_GROW = 0.75
"""Of those so far: then more may follow that grow, after a clock was set back."""
_MOST_RANKS = 64
"""For which times are held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BareTime:
    rank: int | None
    at: float
    step: int | None
    value: float


class HeldTimes:
    """The bare times of the ranks in one log: those that wait, and what was decided."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        """`state`: that of the piece before; empty for the first."""
        self._names: dict[str, str] = dict(state.get("names", {}))
        self._waiting: dict[str, list[list[Any]]] = {
            rank: [*rows] for rank, rows in state.get("waiting", {}).items()
        }

    @property
    def state(self) -> Mapping[str, Any]:
        """State that the next piece depends on, as JSON may hold it."""
        found = {"names": self._names, "waiting": self._waiting}
        return {name: each for name, each in found.items() if each}

    def take(self, times: Iterable[BareTime], *, over: bool) -> Sequence[tuple[str, BareTime]]:
        """Return the times that are understood, with the name of their metric; `over`: nothing follows."""
        told: list[tuple[str, BareTime]] = []
        for each in times:
            key = "" if each.rank is None else str(each.rank)
            if key in self._names:
                told.append((self._names[key], each))
            else:
                self._waiting.setdefault(key, []).append([each.at, each.step, each.value])
        for key, rows in list(self._waiting.items()):
            name = self._decided(rows, over=over)
            if name:
                self._names[key] = name
                rank = int(key) if key else None
                del self._waiting[key]
                told += [
                    (name, BareTime(rank=rank, at=at, step=step, value=value))
                    for at, step, value in rows
                ]
        return told

    def _decided(self, rows: Sequence[Sequence[Any]], *, over: bool) -> str:
        """Return the name of the metric of some times; empty: not known yet."""
        values = np.array([value for _, _, value in rows])
        steps = np.array([np.nan if step is None else step for _, step, _ in rows])
        grow = len(rows) < 2 or float((np.diff(values) > 0).mean()) >= _MOSTLY_GROW
        if grow and len(rows) < MANY and len(self._waiting) <= _MOST_RANKS and not over:
            return ""
        return CLOCK_NAME if since_start(steps, values) else STEP_NAME
