"""StoredSeries as arrays, of which only new points are read: pages ask for all of a run every few seconds. Blocks."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from airflow_training.runtimes.clock import steady_now
from airflow_training.state.store import MetricPoint, Store

__all__ = ["SeriesMemory", "StoredSeries", "series_memory"]

_POINTS = 2_000_000
"""Kept over all runs, 24 bytes each. A run that has more is read anew each time."""
_SECONDS = 60.0
"""Then a run is read anew: a point may have come late, with a time before the newest."""
_BEGINNING = -1e300
"""Before any time that a database takes."""

_Key = tuple[str, int, int | None, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSeries:
    """One series in the order of its times."""

    role: str
    index: int
    rank: int | None
    name: str
    at: NDArray[np.float64]
    steps: NDArray[np.float64]
    """NaN: none was told."""
    values: NDArray[np.float64]

    def between(self, start: float | None, end: float | None) -> StoredSeries:
        """Return the part between two times, both included."""
        first = 0 if start is None else int(np.searchsorted(self.at, start, side="left"))
        last = None if end is None else int(np.searchsorted(self.at, end, side="right"))
        return self._with(self.at[first:last], self.steps[first:last], self.values[first:last])

    def followed_by(self, newer: StoredSeries) -> StoredSeries:
        """Return both as one."""
        return self._with(
            np.concatenate([self.at, newer.at]),
            np.concatenate([self.steps, newer.steps]),
            np.concatenate([self.values, newer.values]),
        )

    def _with(
        self,
        at: NDArray[np.float64],
        steps: NDArray[np.float64],
        values: NDArray[np.float64],
    ) -> StoredSeries:
        return StoredSeries(
            role=self.role,
            index=self.index,
            rank=self.rank,
            name=self.name,
            at=at,
            steps=steps,
            values=values,
        )


@dataclass
class _RunSeries:
    begun: float
    lock: threading.Lock = field(default_factory=threading.Lock)
    known: dict[_Key, StoredSeries] = field(default_factory=dict)


class SeriesMemory:
    """The series of the runs that were asked for last; safe for threads."""

    def __init__(self, store: Store, *, points: int = _POINTS) -> None:
        self._store = store
        self._most = points
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, _RunSeries] = OrderedDict()

    def of(self, uid: str, wanted: Sequence[MetricPoint]) -> Sequence[StoredSeries]:
        """Return the series that these points of a run belong to, whole, in the same order."""
        now = steady_now()
        with self._lock:
            run = self._runs.get(uid)
            if run is None or now > run.begun + _SECONDS:
                run = self._runs[uid] = _RunSeries(begun=now)
            self._runs.move_to_end(uid)
        with run.lock:  # whoever asks for the same meanwhile finds it there
            self._read(uid, run, wanted)
            found = [run.known[_key(each)] for each in wanted]
        self._forget()
        return found

    def _read(self, uid: str, run: _RunSeries, wanted: Sequence[MetricPoint]) -> None:
        newest = [
            (each, float(known.at[-1]) if known is not None and len(known.at) else _BEGINNING)
            for each in wanted
            for known in [run.known.get(_key(each))]
        ]
        for columns in self._store.metrics.columns(uid, newest):
            newer = StoredSeries(
                role=columns.role,
                index=columns.index,
                rank=columns.rank,
                name=columns.name,
                at=np.array(columns.at, np.float64),
                steps=np.array(columns.steps, np.float64),  # None becomes NaN
                values=np.array(columns.values, np.float64),
            )
            known = run.known.get(_key(newer))
            if known is None:
                run.known[_key(newer)] = newer
            elif len(newer.at):
                run.known[_key(newer)] = known.followed_by(newer)

    def _forget(self) -> None:
        """Forget the runs that were asked for longest ago, until the others are few enough."""
        with self._lock:
            sizes = {
                uid: sum(len(each.at) for each in list(run.known.values()))
                for uid, run in self._runs.items()
            }
            total = sum(sizes.values())
            for uid, size in sizes.items():
                if total <= self._most:
                    return
                del self._runs[uid]
                total -= size


def _key(of: MetricPoint | StoredSeries) -> _Key:
    return of.role, of.index, of.rank, of.name


@functools.lru_cache(maxsize=4)
def series_memory(store: Store) -> SeriesMemory:
    """Return that of this process for a store."""
    return SeriesMemory(store)
