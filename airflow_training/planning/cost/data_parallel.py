"""Seconds that data parallelism and the optimizer add to a step: what the passes do not hide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cluster import NodeGroup
from airflow_training.planning.constants import TimeConstants
from airflow_training.planning.cost.communication import collective_seconds, exposed
from airflow_training.planning.cost.tables import OVERLAP
from airflow_training.planning.group import Group
from airflow_training.planning.program import Collective, Number
from airflow_training.planning.strategy import Precision

Array = npt.NDArray[np.float64]


_BYTES: Mapping[str, float] = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 2}


def gradient_bytes(precision: Precision, overlap: npt.NDArray[np.int64]) -> Array:
    """Return the bytes of a gradient on the wire.

    bfloat16 gradients are added up and reduced in float32 (Megatron-LM and DeepSpeed do both), as
    their mantissa is short; FSDP reduces each micro-batch's in the precision of the computation.
    """
    wide = 4.0 if precision in ("bf16", "fp8") else _BYTES[precision]
    return np.where(overlap == OVERLAP.index("fsdp-prefetch"), _BYTES[precision], wide)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """Parameters that one group of ranks replicates: arrays of one shape."""

    elements: Array
    """Parameters that a device holds before ZeRO shards them."""
    update_bytes: Array
    """Memory traffic of updating them all once."""
    precision: Precision
    group: Group
    zero: npt.NDArray[np.int64]
    micro_batches: Array


def exchange_seconds(
    held: Replicas,
    *,
    forward: Array,
    backward: Array,
    overlap: npt.NDArray[np.int64],
    units: Array,
    nodes: NodeGroup,
    constants: TimeConstants,
) -> Array:
    """Return the seconds of gradient and parameter exchange in a step that no pass hides.

    ZeRO 0 reduces gradients once, 1 scatters them and gathers the updated parameters, 2 scatters after
    every micro-batch, 3 also gathers parameters before each pass (Rajbhandari et al. 2020, arXiv
    1910.02054, section 7). `forward` and `backward` are the seconds of one pass: with `overlap`, an
    exchange runs beside one, all but the first of `units` parts gathered or the last one reduced, which
    nothing is left to hide (Zhao et al. 2023, arXiv 2304.11277, section 3.3).
    """

    def cost(collective: Collective, each: Number, window: Array) -> Array:
        whole = collective_seconds(collective, held.elements * each, held.group, constants)
        edge = whole / units
        hidden = edge + exposed(whole - edge, window, constants)
        return np.where(overlap == OVERLAP.index("none"), whole, hidden)

    gradient, parameter = gradient_bytes(held.precision, overlap), _BYTES[held.precision]
    reduce = cost("all_reduce", gradient, backward)
    scatter = cost("reduce_scatter", gradient, backward)
    gather_forward = cost("all_gather", parameter, forward)
    n = held.micro_batches
    # An all-gather and a reduce-scatter of as many bytes take the same time.
    gather_and_scatter = cost("all_gather", parameter + gradient, backward)
    return np.select(
        [held.zero == 0, held.zero == 1, held.zero == 2],
        [reduce, scatter + gather_forward, n * scatter + gather_forward],
        n * (gather_forward + gather_and_scatter),
    )


def optimizer_seconds(held: Replicas, nodes: NodeGroup, constants: TimeConstants) -> Array:
    """Return the seconds of the update, which memory traffic bounds; ZeRO shards it.

    `constants.optimizer_passes` stands for what comes with it: unscaling, the norm of the gradients,
    copies between precisions.
    """
    shards = np.where(held.zero >= 1, held.group.ranks, 1.0)
    rate = nodes.device.memory_bandwidth * constants.bandwidth_efficiency * nodes.efficiency
    return np.asarray(held.update_bytes / shards * constants.optimizer_passes / rate)
