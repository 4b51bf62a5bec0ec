"""When instances began and ended since the decision before, as they say it themselves. Pure.

A decision may come late: nobody drove the run for a while, or an instance was quick. Clocks count what was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from airflow_training.control.clocks import DEADLINE
from airflow_training.control.model import InstanceEntry
from airflow_training.documents.instances import InstanceKey

__all__ = ["NO_LIVES", "Lifetimes", "is_running", "lifetimes_of"]

_LEAST_SECONDS = 1.0
"""Of a life that nobody saw: many times are told in whole seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetimes:
    """Of some instances."""

    starts: tuple[float, ...] = ()
    """Of those that run."""
    ends: tuple[float, ...] = ()
    """Of those that ran when the last decision was made, and do no more."""
    unseen: tuple[tuple[float, float], ...] = ()
    """Begin and end of those that did both meanwhile."""

    @property
    def unseen_seconds(self) -> float:
        """Return the longest of them; 0: there was none."""
        return max((max(end - begin, _LEAST_SECONDS) for begin, end in self.unseen), default=0.0)


NO_LIVES = Lifetimes()


def is_running(entry: InstanceEntry) -> bool:
    """Return whether it runs as far as anybody knows: the state of one that failed may be yet to follow."""
    return entry.was_running and entry.state in DEADLINE.counts and entry.finished_at is None


def lifetimes_of(
    team: Iterable[InstanceEntry], *, before: Mapping[InstanceKey, InstanceEntry], now: float
) -> Lifetimes:
    """Begin and end of every attempt. `before`: the instances as they were then; a forgotten attempt loses its times."""
    starts, ends, unseen = [], [], []
    for entry in team:
        began, ended, old = entry.started_at, entry.finished_at, before.get(entry.key)
        ran_before = old is not None and is_running(old)
        if is_running(entry):
            starts.append(now if began is None else began)
        elif ran_before:
            ends.append(now if ended is None else ended)
        elif began is not None and ended is not None and (old is None or old.finished_at != ended):
            unseen.append((began, ended))
    return Lifetimes(starts=tuple(starts), ends=tuple(ends), unseen=tuple(unseen))
