"""Seconds that data parallelism and the optimizer add to a step: what the passes do not hide."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cluster import NodeGroup
from airflow_training.planning.constants import TimeConstants
from airflow_training.planning.cost.communication import AxisGroup, collective_seconds, exposed
from airflow_training.planning.program import Collective

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """What is replicated over one group of ranks: arrays of one shape, a number per stage."""

    elements: Array
    """Parameters that a device holds before ZeRO shards them."""
    gradient_bytes: float
    parameter_bytes: float
    group: AxisGroup
    zero: npt.NDArray[np.int64]
    micro_batches: Array


def exchange_seconds(
    held: Replicas,
    *,
    forward: Array,
    backward: Array,
    hidden: npt.NDArray[np.bool_],
    units: Array,
    nodes: NodeGroup,
    constants: TimeConstants,
) -> Array:
    """Return the seconds of gradient and parameter exchange in a step that no pass hides.

    ZeRO 0 reduces gradients once, 1 scatters them and gathers the updated parameters, 2 scatters after
    every micro-batch, 3 also gathers parameters before each pass (Rajbhandari et al. 2020, arXiv
    1910.02054, section 7). `forward` and `backward` are the seconds of one pass: where `hidden`, an
    exchange runs beside one, all but the first of `units` parts gathered or the last one reduced, which
    nothing is left to hide (Zhao et al. 2023, arXiv 2304.11277, section 3.3).
    """

    def cost(collective: Collective, each: float, window: Array) -> Array:
        whole = collective_seconds(collective, held.elements * each, held.group, nodes, constants)
        edge = whole / units
        return np.where(hidden, edge + exposed(whole - edge, window, constants), whole)

    reduce = cost("all_reduce", held.gradient_bytes, backward)
    scatter = cost("reduce_scatter", held.gradient_bytes, backward)
    gather_forward = cost("all_gather", held.parameter_bytes, forward)
    n = held.micro_batches
    # An all-gather and a reduce-scatter of as many bytes take the same time.
    gather_and_scatter = cost("all_gather", held.parameter_bytes + held.gradient_bytes, backward)
    return np.select(
        [held.zero == 0, held.zero == 1, held.zero == 2],
        [reduce, scatter + gather_forward, n * scatter + gather_forward],
        n * (gather_forward + gather_and_scatter),
    )


def optimizer_seconds(held: Replicas, nodes: NodeGroup, constants: TimeConstants) -> Array:
    """Return the seconds of the update: Adam reads and writes its states once, bound by memory."""
    shards = np.where(held.zero >= 1, held.group.ranks, 1.0)
    rate = nodes.device.memory_bandwidth * constants.bandwidth_efficiency * nodes.efficiency
    return np.asarray(held.elements / shards * constants.optimizer_bytes / rate)
