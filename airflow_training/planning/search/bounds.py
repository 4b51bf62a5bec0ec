"""What no strategy on a split can beat: bounds that cut the search and never its best answer.

They count arithmetic at the peak rate and the states of the optimizer alone, so they hold for every
cost model in which work takes at least its arithmetic and a device keeps at least its share of states.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cluster import NodeGroup
from airflow_training.planning.plan import Candidates
from airflow_training.planning.program import Compute, Piece, Program
from airflow_training.planning.stages import layer_span

Floats = npt.NDArray[np.float64]

LEAST_WEIGHT_BYTES = {"fp32": 4.0, "tf32": 4.0}
"""Bytes of a weight by precision; others take two."""
LEAST_GRADIENT_BYTES = 2.0
LEAST_STATE_BYTES = 8.0
"""Adam's two moments in single precision (Rajbhandari et al. 2020, section 3.1, without the master
copy of the weights, which a runtime may do without)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What the layers of a program are, unsplit and for one sample."""

    layers: int
    flops: float
    """Of all layers, forward and backward."""
    least_layer_flops: float
    elements: float
    """Parameters of all layers."""


def work_of(program: Program) -> Work:
    """Return the work of a program that was lowered for one device and one sample."""
    begin, end = layer_span(program.pieces)
    flops, elements = [], 0.0
    unit = 0
    for piece in program.pieces:
        if begin <= unit < end:
            flops += [_flops(piece)] * piece.repeat
            elements += piece.repeat * sum(float(np.max(p.elements)) for p in piece.parameters)
        unit += piece.repeat
    return Work(
        layers=end - begin, flops=sum(flops), least_layer_flops=min(flops), elements=elements
    )


def least_seconds(
    work: Work, splits: Candidates, *, peak_flops: float, global_batch: int
) -> Floats:
    """Return the least time of a step on each split.

    The fullest stage works through every micro-batch; and even the emptiest one, as the last, does so
    after the first micro-batch came through all others, over the virtual stages where there are some
    (Narayanan et al. 2021, section 2.2).
    """
    rate = peak_flops * splits.tp * splits.cp / splits.micro_batch
    least_layer = work.least_layer_flops / rate
    passes = global_batch // (splits.dp * splits.micro_batch)
    fullest = np.maximum(
        np.ceil(work.layers / splits.pp) * least_layer, work.flops / splits.pp / rate
    )
    emptiest = np.floor(work.layers / splits.pp) * least_layer
    through_all = passes + (splits.pp - 1) / splits.virtual_stages
    return np.asarray(np.maximum(passes * fullest, through_all * emptiest), dtype=np.float64)


def least_bytes(work: Work, candidates: Candidates, *, precision: str) -> Floats:
    """Return the least memory of the fullest device of each candidate: its share of the states.

    A device of the fullest stage holds at least an average stage. Experts may be split over `ep`.
    """
    shares = candidates.dp * candidates.cp
    elements = work.elements / (candidates.pp * candidates.tp * candidates.ep)
    weights = LEAST_WEIGHT_BYTES.get(precision, 2.0) / np.where(candidates.zero >= 3, shares, 1)
    gradients = LEAST_GRADIENT_BYTES / np.where(candidates.zero >= 2, shares, 1)
    states = LEAST_STATE_BYTES / np.where(candidates.zero >= 1, shares, 1)
    return np.asarray(elements * (weights + gradients + states), dtype=np.float64)


def peak_flops(group: NodeGroup) -> float:
    """Return the highest rate of any precision that a device of the group can run at."""
    return max(group.device.peak_flops.values())


def _flops(piece: Piece) -> float:
    return sum(
        float(np.max(work.flops)) * work.count
        for work in piece.work
        if isinstance(work, Compute) and work.phase != "optimizer"
    )
