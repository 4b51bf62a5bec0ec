"""Bytes that no strategy can do without: they cut the search before memory is counted exactly.

They count weights, gradients and optimizer states of the layers alone.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cluster import NodeGroup
from airflow_training.planning.plan import Candidates
from airflow_training.planning.program import Program
from airflow_training.planning.stages import layer_span

Floats = npt.NDArray[np.float64]

LEAST_WEIGHT_BYTES = {"fp32": 4.0, "tf32": 4.0}
"""Bytes of a weight by precision; others take two."""
LEAST_GRADIENT_BYTES = 2.0
LEAST_STATE_BYTES = 8.0
"""Adam's two moments in single precision (Rajbhandari et al. 2020, section 3.1, without the master
copy of the weights, which a runtime may do without)."""


def layer_elements(program: Program) -> float:
    """Return the parameters of all layers of a program that was lowered for one device."""
    begin, end = layer_span(program.pieces)
    total, unit = 0.0, 0
    for piece in program.pieces:
        if begin <= unit < end:
            total += piece.repeat * sum(float(np.max(held.elements)) for held in piece.parameters)
        unit += piece.repeat
    return total


def least_bytes(elements: float, candidates: Candidates, *, precision: str) -> Floats:
    """Return the least memory of the fullest device of each candidate: its share of the states.

    A device of the fullest stage holds at least an average stage. Experts may be split over `ep`.
    """
    shares = candidates.dp * candidates.cp
    held = elements / (candidates.pp * candidates.tp * candidates.ep)
    weights = LEAST_WEIGHT_BYTES.get(precision, 2.0) / np.where(candidates.zero >= 3, shares, 1)
    gradients = LEAST_GRADIENT_BYTES / np.where(candidates.zero >= 2, shares, 1)
    states = LEAST_STATE_BYTES / np.where(candidates.zero >= 1, shares, 1)
    return np.asarray(held * (weights + gradients + states), dtype=np.float64)


def peak_flops(group: NodeGroup) -> float:
    """Return the highest rate of any precision that a device of the group can run at."""
    return max(group.device.peak_flops.values())
