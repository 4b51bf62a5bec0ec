"""Fewer points of a series that draw the same line: no extreme and no gap is ever lost. Pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["kept_points"]

_KEPT = 4
"""Of each bucket: the first, the least, the greatest and the last."""


def kept_points(values: NDArray[np.float64], points: int) -> NDArray[np.intp]:
    """Return the positions of about so many values that draw the same line, in order.

    The values are split into buckets of equal count. Of each stay the first, the least, the
    greatest and the last, and one that is not a number if there is any: the line breaks there.
    """
    count = len(values)
    if count <= max(points, _KEPT):
        return np.arange(count)
    size = -(-count // max(1, points // _KEPT))
    whole = count // size * size
    kept = _of_buckets(values[:whole].reshape(-1, size))
    if whole < count:
        kept = np.concatenate([kept, whole + _of_buckets(values[whole:].reshape(1, -1))])
    return np.unique(kept)


def _of_buckets(values: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the positions that stay of a table with a bucket in each row."""
    buckets, size = values.shape
    begins = np.arange(buckets) * size
    gaps = np.isnan(values)
    kept = [begins, begins + size - 1]
    if gaps.any():
        broken = gaps.any(axis=1)
        kept.append(begins[broken] + gaps[broken].argmax(axis=1))
        kept.append(begins + np.where(gaps, np.inf, values).argmin(axis=1))
        kept.append(begins + np.where(gaps, -np.inf, values).argmax(axis=1))
    else:
        kept.append(begins + values.argmin(axis=1))
        kept.append(begins + values.argmax(axis=1))
    return np.concatenate(kept)
