"""Remembers what is costly to look up of runs, and looks it up as often as that is cheap."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from airflow_training.runtimes.clock import steady_now

__all__ = ["RunCache"]

_SHARE = 0.02
"""Of the time, at most, that one run is looked at."""
_RUNS = 64

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _CachedRun(Generic[T]):
    value: T
    good_until: float


class RunCache(Generic[T]):
    """Remembers the newest look at the runs that were asked for last; safe for threads. Blocks."""

    def __init__(self, look: Callable[[str], T]) -> None:
        """`look`: called with the uid of a run."""
        self._look = look
        self._lock = threading.Lock()
        self._looks: OrderedDict[str, _CachedRun[T]] = OrderedDict()

    def of(self, uid: str) -> T:
        """The cached value of a run, a moment old at most."""
        with self._lock:
            known = self._looks.get(uid)
        begun = steady_now()
        if known is not None and begun < known.good_until:
            return known.value
        value = self._look(uid)
        now = steady_now()
        with self._lock:
            self._looks[uid] = _CachedRun(value, good_until=now + (now - begun) / _SHARE)
            self._looks.move_to_end(uid)
            while len(self._looks) > _RUNS:
                self._looks.popitem(last=False)
        return value
