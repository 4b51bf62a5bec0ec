"""Metrics of a test set that lies on several ranks: exact, as if one rank had all of it. numpy only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

__all__ = ["auc", "ndcg_of_lists"]

Array = numpy.ndarray[Any, Any]


def auc(scores: Array, positive: Array) -> float:
    """Return the area under the ROC curve, by the ranks of the scores (Mann and Whitney, 1947).

    Equal scores count half; 0.5 where one class is missing.
    """
    count, first = len(scores), int(positive.sum())
    if first in (0, count):
        return 0.5
    _, inverse, counts = numpy.unique(scores, return_inverse=True, return_counts=True)
    last = numpy.cumsum(counts)
    ranks = (last - (counts - 1) / 2)[inverse]
    wins = ranks[positive].sum() - first * (first + 1) / 2
    return float(wins / (first * (count - first)))


def ndcg_of_lists(
    scores: Array, relevance: Array, lengths: Array, queries: Array, k: int | None
) -> list[float]:
    """Return the NDCG of each list, gain 2^relevance - 1; 1 where nothing is relevant.

    Args:
        scores: `(samples, documents)`.
        relevance: of the same shape.
        lengths: of each sample how many documents are its own.
        queries: of each sample the list that it is a piece of.
        k: how many places count; None: all.
    """
    found = []
    for query in _runs(queries):
        mine = numpy.concatenate([scores[row, : lengths[row]] for row in query])
        truth = numpy.concatenate([relevance[row, : lengths[row]] for row in query])
        top = min(k or len(mine), len(mine))
        discount = 1 / numpy.log2(numpy.arange(top) + 2.0)
        gain = 2.0 ** truth.astype(numpy.float64) - 1
        reached = gain[numpy.argsort(-mine, kind="stable")][:top] @ discount
        best = numpy.sort(gain)[::-1][:top] @ discount
        found.append(float(reached / best) if best > 0 else 1.0)
    return found


def _runs(queries: Array) -> Sequence[Array]:
    """Return the samples of each list; pieces of one stand together."""
    if not len(queries):
        return []
    cuts = numpy.flatnonzero(numpy.diff(queries)) + 1
    return numpy.split(numpy.arange(len(queries)), cuts)
