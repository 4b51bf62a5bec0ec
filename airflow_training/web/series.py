"""Stored series as arrays, of which only new points are read: pages ask for all of a run every few seconds. Blocks.

What a request holds is bounded: `_MOST_READ` points of 24 bytes (384 MB), and `_SLICE` rows of each of `_AT_ONCE`
series as the database's driver has them (some 30 MB). Of what has more, each slice is reduced as it is read, and a
window of it is read anew.
"""

from __future__ import annotations

import functools
import math
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from airflow_training.runtimes.clock import steady_now
from airflow_training.state.store import MetricColumns, MetricPoint, Store
from airflow_training.web.reduction import kept_points

__all__ = ["SeriesMemory", "StoredSeries", "series_memory"]

_POINTS = 2_000_000
"""Kept over all runs, 24 bytes each. A run that has more is read anew each time."""
_MOST_READ = 16_000_000
"""Of all series of one request together."""
_LEAST_OF_SERIES = 4000
_SLICE = 5000
_AT_ONCE = 32
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
    samples: NDArray[np.float64] | None = None
    """How many had been read at each point, NaN where nobody knows; None: nobody tells any."""
    left_out: int = 0
    """How many points were left out as there are too many; no extreme is among them."""

    def between(self, start: float | None, end: float | None) -> StoredSeries:
        """Return the part between two times, both included."""
        first = 0 if start is None else int(np.searchsorted(self.at, start, side="left"))
        last = None if end is None else int(np.searchsorted(self.at, end, side="right"))
        return self._at(slice(first, last))

    def followed_by(self, newer: StoredSeries) -> StoredSeries:
        """Return both as one."""
        return replace(
            self,
            at=np.concatenate([self.at, newer.at]),
            steps=np.concatenate([self.steps, newer.steps]),
            values=np.concatenate([self.values, newer.values]),
        )

    def at_most(self, points: int) -> StoredSeries:
        """Return the series, or about half so many of its points that draw the same line."""
        if len(self.at) <= points:
            return self
        fewer = self._at(kept_points(self.values, points // 2))
        return replace(fewer, left_out=self.left_out + len(self.at) - len(fewer.at))

    def _at(self, places: slice | NDArray[np.intp]) -> StoredSeries:
        return replace(
            self,
            at=self.at[places],
            steps=self.steps[places],
            values=self.values[places],
            samples=None if self.samples is None else self.samples[places],
        )


@dataclass
class _RunSeries:
    begun: float
    lock: threading.Lock = field(default_factory=threading.Lock)
    known: dict[_Key, StoredSeries] = field(default_factory=dict)


class SeriesMemory:
    """The series of the runs that were asked for last; safe for threads."""

    def __init__(self, store: Store, *, points: int = _POINTS, most_read: int = _MOST_READ) -> None:
        """`points`: kept at most, over all runs. `most_read`: held for one request."""
        self._store = store
        self._most = points
        self._most_read = most_read
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, _RunSeries] = OrderedDict()

    def of(
        self,
        uid: str,
        wanted: Sequence[MetricPoint],
        *,
        start: float | None = None,
        end: float | None = None,
    ) -> Sequence[StoredSeries]:
        """Return the series that these points of a run belong to, in the same order.

        They may begin before `start` and go on after `end`; only what lies between is there in full.
        """
        now = steady_now()
        most = max(_LEAST_OF_SERIES, self._most_read // max(1, len(wanted)))
        with self._lock:
            run = self._runs.get(uid)
            if run is None or now > run.begun + _SECONDS:
                run = self._runs[uid] = _RunSeries(begun=now)
            self._runs.move_to_end(uid)
        with run.lock:  # whoever asks for the same meanwhile finds it there
            for place in range(0, len(wanted), _AT_ONCE):
                self._read(uid, run, wanted[place : place + _AT_ONCE], most)
            found = [run.known[_key(each)] for each in wanted]
        self._forget()
        if start is None and end is None:
            return found
        return [
            self._window(uid, point, whole, most, start, end) if whole.left_out else whole
            for point, whole in zip(wanted, found, strict=True)
        ]

    def _read(self, uid: str, run: _RunSeries, wanted: Sequence[MetricPoint], most: int) -> None:
        newest = [
            (each, float(known.at[-1]) if known is not None and len(known.at) else _BEGINNING)
            for each in wanted
            for known in [run.known.get(_key(each))]
        ]
        for newer in self._slices(uid, newest):
            known = run.known.get(_key(newer))
            if known is None:
                run.known[_key(newer)] = newer
            elif len(newer.at):
                run.known[_key(newer)] = known.followed_by(newer).at_most(most)

    def _window(
        self,
        uid: str,
        point: MetricPoint,
        whole: StoredSeries,
        most: int,
        start: float | None,
        end: float | None,
    ) -> StoredSeries:
        """Return what lies between two times of a series of which not all is kept."""
        after = _BEGINNING if start is None else math.nextafter(start, -math.inf)
        found = replace(whole.between(math.inf, None), left_out=0)
        for newer in self._slices(uid, [(point, after)]):
            found = found.followed_by(newer.between(None, end)).at_most(most)
            if end is not None and len(newer.at) and newer.at[-1] > end:
                break
        return found

    def _slices(
        self, uid: str, after: Sequence[tuple[MetricPoint, float]]
    ) -> Iterator[StoredSeries]:
        """Yield what came after these times, slice by slice of each series."""
        while after:
            found = self._store.metrics.columns(uid, after, most=_SLICE)
            yield from map(_series_of, found)
            after = [
                (point, columns.at[-1])
                for (point, _), columns in zip(after, found, strict=True)
                if len(columns.at) == _SLICE
            ]

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


def _series_of(columns: MetricColumns) -> StoredSeries:
    return StoredSeries(
        role=columns.role,
        index=columns.index,
        rank=columns.rank,
        name=columns.name,
        at=np.array(columns.at, np.float64),
        steps=np.array(columns.steps, np.float64),  # None becomes NaN
        values=np.array(columns.values, np.float64),
    )


def _key(of: MetricPoint | StoredSeries) -> _Key:
    return of.role, of.index, of.rank, of.name


@functools.lru_cache(maxsize=4)
def series_memory(store: Store) -> SeriesMemory:
    """Return that of this process for a store."""
    return SeriesMemory(store)
