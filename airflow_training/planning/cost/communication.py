"""Where the ranks of a mesh axis sit on the nodes, and what a collective among them takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cluster import NodeGroup
from airflow_training.planning.constants import TimeConstants
from airflow_training.planning.program import Collective, Number

Array = npt.NDArray[np.float64]

_RING_STEPS = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}


@dataclass(frozen=True, slots=True)
class AxisGroup:
    """One group of ranks along a mesh axis; `stride` is how many devices lie between two of them."""

    ranks: Array
    per_node: Array
    siblings: Array


def axis_group(ranks: Number, stride: Number, nodes: NodeGroup) -> AxisGroup:
    ranks = np.asarray(ranks, dtype=np.float64)
    per_node = np.clip(np.floor(nodes.devices_per_node / np.asarray(stride)), 1, ranks)
    return AxisGroup(ranks, per_node, np.maximum(1.0, nodes.devices_per_node / per_node))


def collective_seconds(
    collective: Collective,
    payload_bytes: Number,
    group: AxisGroup,
    nodes: NodeGroup,
    constants: TimeConstants,
) -> Array:
    payload = np.asarray(payload_bytes, dtype=np.float64)
    n = group.ranks
    link = nodes.intra_node
    inside = link.bandwidth * link.efficiency
    latency = np.where(n <= 2, 44e-6, np.where(n <= 4, 52e-6, 93e-6)) - 30e-6
    nic = nodes.nic
    outside = inside if nic is None else nic.bandwidth * constants.network_efficiency
    if nic is not None:
        outside = outside * np.maximum(nodes.nics_per_node / nodes.devices_per_node, 0.0)
    spans = n > group.per_node
    rate = np.where(spans, np.minimum(outside, inside), inside)
    if collective in _RING_STEPS:
        moved = payload * _RING_STEPS[collective] * (n - 1) / n
    else:
        moved = payload
    return np.asarray(np.where(n > 1, latency * np.where(spans, 2, 1) + moved / rate, 0.0))


def exposed(transfer: Array, window: Array, constants: TimeConstants) -> Array:
    """Return what a transfer adds to a window of compute that it runs beside.

    The part that does not fit, and what the rest takes from the compute: both use the device's memory
    and some of its units (Wang et al. 2022, arXiv 2211.05322, measure this as slow-down factors).
    """
    inside = np.minimum(transfer, window)
    return np.asarray(transfer - inside * (1.0 - constants.overlap_contention))
