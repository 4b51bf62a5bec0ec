"""How many samples of a pass each replica takes, by how long it computes. Pure.

A pass ends when its slowest replica does, so samples are dealt out one by one to whom they take least.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

__all__ = ["deal_samples", "imbalance", "rebalance_samples"]

_GAIN = 1.05
"""Less than this is not worth other shares: measurements differ by as much."""


def imbalance(seconds: Sequence[float]) -> float:
    """Return by how much the slowest replica is above the mean; 0.2 is a fifth."""
    mean = sum(seconds) / len(seconds)
    return max(seconds) / mean - 1 if mean > 0 else 0.0


def deal_samples(
    total: int, seconds_per_sample: Sequence[float], *, most: Sequence[int] | None = None
) -> tuple[int, ...]:
    """Deal out the samples of a pass so that the slowest replica is as quick as can be; each has one at least.

    `most`: what the memory of each replica holds, together at least `total`.
    """
    shares = [1] * len(seconds_per_sample)
    times = [(2 * each, replica) for replica, each in enumerate(seconds_per_sample)]
    heapq.heapify(times)
    while sum(shares) < total:
        _, replica = heapq.heappop(times)
        if most is None or shares[replica] < most[replica]:
            shares[replica] += 1
            heapq.heappush(times, ((shares[replica] + 1) * seconds_per_sample[replica], replica))
    return tuple(shares)


def rebalance_samples(
    samples: Sequence[int],
    seconds: Sequence[float],
    *,
    limit: float,
    most: Sequence[int] | None = None,
) -> tuple[int, ...] | None:
    """Return other shares where a pass of each replica took so long; None: they stay.

    Args:
        samples: of each replica in a pass.
        seconds: that it computed in one.
        limit: imbalance from which shares change.
        most: samples that the memory of each replica holds.

    """
    if min(seconds) <= 0 or imbalance(seconds) <= limit:
        return None
    each = [time / count for time, count in zip(seconds, samples, strict=True)]
    dealt = deal_samples(sum(samples), each, most=most)
    expected = max(time * count for time, count in zip(each, dealt, strict=True))
    return dealt if max(seconds) > _GAIN * expected else None
