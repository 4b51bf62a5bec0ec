"""What the series of very many ranks say together: a band around the median, and how far each rank is from it. Pure.

Values are put into buckets of x of equal width. A value that no number is, is in none of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from airflow_training.web.series import StoredSeries

__all__ = ["Axis", "Band", "HeatMap", "band_of", "heat_map_of"]

Axis = Literal["step", "samples", "time"]

_Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Per bucket, of the values of all series in it; buckets without any are left out."""

    x: _Floats
    """Where a bucket begins."""
    minimum: _Floats
    low: _Floats
    """5 % are less."""
    median: _Floats
    high: _Floats
    """95 % are less."""
    maximum: _Floats
    worst: Sequence[int]
    """The series that are farthest from the median, farthest first: their places."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """A row per series, or per so many that follow each other; a column per bucket."""

    x: _Floats
    per_row: int
    """How many series a row stands for."""
    values: _Floats
    """Of all values of a cell the one that is farthest from what is usual there, [row, column]; NaN: none."""
    distances: _Floats
    """How far it is from that: less than nothing where it is less."""


@dataclass(frozen=True, slots=True)
class _Points:
    """The points of all series, as three columns."""

    bucket: NDArray[np.uint16]
    """So few that they are sorted fast."""
    series: NDArray[np.int32]
    value: _Floats
    at: _Floats
    """Ascending, of each series."""
    x: _Floats
    """Of each bucket."""


def band_of(found: Sequence[StoredSeries], *, axis: Axis, buckets: int, worst: int) -> Band:
    """Return the band of at most so many buckets, with the places of so many of the worst series."""
    points = _bucketed(found, axis, buckets)
    by_value = np.argsort(points.value)
    order = by_value[np.argsort(points.bucket[by_value], kind="stable")]
    values = points.value[order]
    in_bucket = np.bincount(points.bucket, minlength=len(points.x))
    used = np.flatnonzero(in_bucket)
    counts = in_bucket[used]
    begins = np.cumsum(counts) - counts

    def quantile(share: float) -> _Floats:
        place = begins + share * (counts - 1)
        low = np.floor(place).astype(np.intp)
        high = np.minimum(low + 1, begins + counts - 1)
        share_of_high = place - low
        at_share: _Floats = values[low] * (1 - share_of_high) + values[high] * share_of_high
        return at_share

    median = quantile(0.5)
    of_bucket = np.full(len(points.x), np.nan)
    of_bucket[used] = median
    distance = np.abs(points.value - of_bucket[points.bucket])
    total = np.bincount(points.series, weights=distance, minlength=len(found))
    seen = np.bincount(points.series, minlength=len(found))
    mean = np.divide(total, seen, out=np.full(len(found), -1.0), where=seen > 0)
    return Band(
        x=points.x[used],
        minimum=values[begins],
        low=quantile(0.05),
        median=median,
        high=quantile(0.95),
        maximum=values[begins + counts - 1],
        worst=[int(each) for each in np.argsort(-mean, kind="stable")[:worst] if mean[each] >= 0],
    )


def heat_map_of(found: Sequence[StoredSeries], *, axis: Axis, columns: int, rows: int) -> HeatMap:
    """Return a picture of at most so many rows and columns; a spike of one sample is in it."""
    per_row = -(-len(found) // rows) if found else 1
    points = _bucketed(found, axis, columns)
    is_used = np.bincount(points.bucket, minlength=len(points.x)) > 0
    used, column = np.flatnonzero(is_used), np.cumsum(is_used) - 1
    values = np.full((-(-len(found) // per_row), len(used)), np.nan)
    distances = values.copy()
    distance = _distances(points)
    place = _farthest(np.abs(distance), _begins(points))
    # of values that are written to the same cell the last one stays: the farthest
    order = place[np.argsort(np.abs(distance[place]))]
    cells = points.series[order] // per_row, column[points.bucket[order]]
    values[cells], distances[cells] = points.value[order], distance[order]
    return HeatMap(x=points.x[used], per_row=per_row, values=values, distances=distances)


def _distances(points: _Points) -> _Floats:
    """Return how far each point is from what is usual of all series at its own x.

    That is the median there where half of those in the bucket tell a value at that x. Where they do not, each
    at a time of its own, it is the line that the bucket has in common: else a trend would look like a distance.
    """
    if not len(points.value):
        return points.value
    bucket, count = points.bucket, len(points.x)
    place = _places(points.at)
    at_place = np.bincount(place)
    first = _begins(points)
    last = np.append(first[1:], len(bucket)) - 1
    together = 2 * at_place[place] >= np.bincount(bucket[first], minlength=count)[bucket]
    at_own_x: _Floats = points.value
    if together.any():
        at_own_x = points.value - _medians(points.value, place, len(at_place))[place]
        if together.all():
            return at_own_x
    lasting = last > first
    rise = points.value[last] - points.value[first]
    run = points.at[last] - points.at[first]
    slopes = _medians(rise[lasting] / run[lasting], bucket[first][lasting], count)
    slope = np.nan_to_num(slopes)[bucket]
    flat = points.value - slope * (points.at - points.x[bucket])
    along_line = flat - _medians(flat, bucket, count)[bucket]
    return np.where(together, at_own_x, along_line)


def _begins(points: _Points) -> NDArray[np.intp]:
    """Return where the points of each series in each bucket begin."""
    cell = points.series.astype(np.int64) * len(points.x) + points.bucket
    return np.flatnonzero(np.diff(cell, prepend=-1))


def _farthest(distance: _Floats, begins: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the place of the largest distance of each stretch."""
    if not len(begins):
        return begins
    most = np.maximum.reduceat(distance, begins)
    lengths = np.diff(np.append(begins, len(distance)))
    places = np.flatnonzero(distance == np.repeat(most, lengths))
    stretch = np.searchsorted(begins, places, side="right") - 1
    return places[np.flatnonzero(np.diff(stretch, prepend=-1))]  # the first of equals


def _places(at: _Floats) -> NDArray[Any]:
    """Return for each point the place of its x among all that there are."""
    first = at.min()
    size = at.max() - first + 1
    if size <= 2 * len(at) and (at == np.floor(at)).all():  # steps: nothing has to be sorted
        number = (at - first).astype(np.intp)
        found: NDArray[Any] = (np.cumsum(np.bincount(number) > 0) - 1)[number]
    else:
        found = np.unique(at, return_inverse=True)[1]
    return found


def _medians(values: _Floats, group: NDArray[Any], groups: int) -> _Floats:
    """Return the median of each group; NaN where there is nothing in it."""
    by_value = np.argsort(values)
    if groups <= 1 << 16:
        group = group.astype(np.uint16)  # so few are sorted by their digits
    ordered = values[by_value[np.argsort(group[by_value], kind="stable")]]
    counts = np.bincount(group, minlength=groups)
    begins = np.cumsum(counts) - counts
    used = counts > 0
    low, high = (begins + (counts - 1) // 2)[used], (begins + counts // 2)[used]
    found = np.full(groups, np.nan)
    found[used] = ordered[low] / 2 + ordered[high] / 2
    return found


def _bucketed(found: Sequence[StoredSeries], axis: Axis, buckets: int) -> _Points:
    columns = [_numbers(each, axis) for each in found]
    x = np.concatenate([np.empty(0), *(x for x, _ in columns)])
    values = np.concatenate([np.empty(0), *(values for _, values in columns)])
    series = np.repeat(np.arange(len(found), dtype=np.int32), [len(x) for x, _ in columns])
    first, last = (float(x.min()), float(x.max())) if len(x) else (0.0, 0.0)
    width = (last - first) / buckets or 1.0
    if axis != "time":
        width = max(1.0, math.ceil((last - first + 1) / buckets))  # no bucket between two steps
    bucket = np.minimum((x - first) / width, buckets - 1).astype(np.uint16)
    edges = first + width * np.arange(buckets, dtype=np.float64)
    return _Points(bucket, series, values, x, edges)


def _numbers(series: StoredSeries, axis: Axis) -> tuple[_Floats, _Floats]:
    """Return x and value of the points that have both. Of a step that was done again, the newest counts."""
    x, values = _along(series, axis), series.values
    both = np.isfinite(x) & np.isfinite(values)
    x, values = x[both], values[both]
    if (np.diff(x) <= 0).any():
        x, from_end = np.unique(x[::-1], return_index=True)
        values = values[::-1][from_end]
    return x, values


def _along(series: StoredSeries, axis: Axis) -> _Floats:
    if axis == "time":
        return series.at
    if axis == "step":
        return series.steps
    return np.full(len(series.at), np.nan) if series.samples is None else series.samples
