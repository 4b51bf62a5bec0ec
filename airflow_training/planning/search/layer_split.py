"""Which layers each stage of a pipeline gets when stages differ: dynamic programming over layers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StageLayers:
    """So many layers on a stage, one after the other."""

    stage: int
    layers: int
    begin: int | None = None
    """The first of them; None: any layers, as they are alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSeconds:
    """Seconds that each stage would take for each layer, forward and backward."""

    layers: Floats
    """(stages, layers)"""
    before: float
    """Of the units before the layers, on the first stage."""
    after: float
    """Of the units after the layers, on the last stage."""


def layer_splits(
    stages: StageSeconds,
    *,
    micro_batches: int,
    most: int = 1,
    too_big: Collection[StageLayers] = (),
) -> list[tuple[int, ...]]:
    """Return layers per stage that may be the best, the most promising first; none: nothing fits.

    A pipeline takes about the sum of its stages and the slowest of them once for every other micro-batch
    (Narayanan et al. 2021, section 2.2). For each time that the slowest may take, the split with the
    least sum is found; the true cost then decides between them.

    Args:
        stages: what layers take.
        micro_batches: in a step.
        most: splits wanted.
        too_big: runs that do not fit into the memory of their stage, nor does any run that holds them.
    """
    seconds = _run_seconds(stages, too_big)
    least_slowest, _ = _shortest(seconds, np.maximum)
    if not np.isfinite(least_slowest):
        return []
    slowest = np.unique(seconds[(seconds >= least_slowest) & np.isfinite(seconds)])
    sums: dict[int, float] = {}
    found: dict[tuple[int, ...], float] = {}

    def look(place: int) -> None:
        some = np.where(seconds <= slowest[place], seconds, np.inf)
        sums[place], split = _shortest(some, np.add)
        if split is not None:
            together = sums[place] + (micro_batches - 1) * float(slowest[place])
            found[split] = min(together, found.get(split, np.inf))

    look(0)
    look(len(slowest) - 1)
    # the slower the slowest may be, the less is the sum: between two of them neither is less than this
    between = [(0, len(slowest) - 1)]
    while between:
        low, high = between.pop()
        best = sorted(found.values())[:most]
        least = sums[high] + (micro_batches - 1) * float(slowest[min(low + 1, high)])
        if high - low > 1 and (len(best) < most or least < best[-1]):
            middle = (low + high) // 2
            look(middle)
            between += [(middle, high), (low, middle)]
    return sorted(found, key=lambda split: (found[split], split))[:most]


def _run_seconds(stages: StageSeconds, too_big: Collection[StageLayers]) -> Floats:
    """Return the seconds of every run of layers on every stage: (stages, begin, end); inf: it cannot be."""
    count, layers = stages.layers.shape
    ends = np.concatenate([np.zeros((count, 1)), np.cumsum(stages.layers, axis=1)], axis=1)
    seconds = ends[:, None, :] - ends[:, :, None]
    seconds[0] += stages.before
    seconds[-1] += stages.after
    begin, end = np.arange(layers + 1)[:, None], np.arange(layers + 1)[None, :]
    seconds[:, begin >= end] = np.inf
    for run in too_big:
        if run.begin is None:
            seconds[run.stage, end - begin >= run.layers] = np.inf
        else:
            seconds[run.stage, : run.begin + 1, run.begin + run.layers :] = np.inf
    return np.asarray(seconds, dtype=np.float64)


def _shortest(seconds: Floats, join: np.ufunc) -> tuple[float, tuple[int, ...] | None]:
    """Return the least joint seconds of all stages, and the layers of each; None: there is no way."""
    best = seconds[0, 0]
    came_from = []
    for stage in seconds[1:]:
        ways = join(best[:, None], stage)
        previous = np.argmin(ways, axis=0)
        came_from.append(previous)
        best = ways[previous, np.arange(len(best))]
    if not np.isfinite(best[-1]):
        return np.inf, None
    bounds = [len(best) - 1]
    for previous in reversed(came_from):
        bounds.append(int(previous[bounds[-1]]))
    bounds.append(0)
    return float(best[-1]), tuple(int(n) for n in -np.diff(bounds)[::-1])
