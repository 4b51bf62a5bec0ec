"""Fewer rows that show the same picture: of each bucket the first and last row and those with an extreme. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from airflow_training.logs.model import Floats, Integers

__all__ = ["chart_points", "representative_rows"]


def representative_rows(columns: Sequence[Floats], buckets: Integers) -> Integers:
    """Return which rows to keep, ascending: of each bucket first, last, and per column least, greatest, first NaN.

    `columns` are of one length; `buckets` has the bucket of each row and never falls.
    """
    rows = buckets.size
    if rows == 0:
        return np.zeros(0, np.int64)
    starts = np.flatnonzero(np.r_[True, buckets[1:] != buckets[:-1]])
    sizes = np.diff(np.r_[starts, rows])
    keep = np.zeros(rows, bool)
    keep[starts] = True
    keep[starts + sizes - 1] = True
    equal = bool((sizes == sizes[0]).all())
    for column in columns:
        unknown = np.isnan(column)
        if unknown.any():
            keep[_first(unknown, starts, sizes)] = True
            low, high = np.where(unknown, np.inf, column), np.where(unknown, -np.inf, column)
        else:
            low = high = column
        if equal:
            shape = (starts.size, int(sizes[0]))
            keep[starts + low.reshape(shape).argmin(axis=1)] = True
            keep[starts + high.reshape(shape).argmax(axis=1)] = True
        else:
            least = np.repeat(np.minimum.reduceat(low, starts), sizes)
            greatest = np.repeat(np.maximum.reduceat(high, starts), sizes)
            keep[_first(low == least, starts, sizes)] = True
            keep[_first(high == greatest, starts, sizes)] = True
    return np.flatnonzero(keep)


def _first(
    marked: np.ndarray[tuple[int], np.dtype[np.bool_]], starts: Integers, sizes: Integers
) -> Integers:
    """Return the first marked row of each bucket that has one."""
    rows = np.flatnonzero(marked)
    bucket = np.repeat(np.arange(starts.size), sizes)[rows]
    return rows[np.unique(bucket, return_index=True)[1]]


def chart_points(values: Floats, points: int) -> Integers:
    """Return which of the values to draw, at most about `points`, so that no peak is lost."""
    if values.size <= points:
        return np.arange(values.size)
    width = -(-values.size * 4 // max(4, points))
    return representative_rows([values], np.arange(values.size) // width)
