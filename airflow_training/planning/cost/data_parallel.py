"""Seconds that data parallelism and the optimizer add to a step: what the passes do not hide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cost.collectives import bytes_gathered_meanwhile
from airflow_training.planning.cost.communication import collective_seconds, exposed
from airflow_training.planning.cost.constants import TimeConstants
from airflow_training.planning.cost.group import RankGroup
from airflow_training.planning.cost.tables import OVERLAP
from airflow_training.planning.view.cluster import Device, NodeGroup
from airflow_training.planning.view.program import Collective
from airflow_training.planning.view.strategy import Precision

Array = npt.NDArray[np.float64]


_BYTES: Mapping[str, float] = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 2}


_ACCUMULATION_BYTES: Mapping[str, float] = {
    "fp32": 12.0,
    "tf32": 12.0,
    "fp16": 6.0,
    "bf16": 10.0,
    "fp8": 10.0,
}
"""Memory traffic of adding a gradient to those of the step: read it, read and write the sum, which is
in float32 but for float16 (Megatron-LM, `main_grad`)."""

_OTHER_ACCUMULATION_BYTES: Mapping[tuple[str, str], float] = {
    ("megatron-deepspeed", "bf16"): 18.0,
    ("megatron-core", "bf16"): 0.0,
    ("megatron-core", "fp8"): 0.0,
    ("pytorch", "bf16"): 24.0,
    ("pytorch", "fp16"): 24.0,
}
"""DeepSpeed's bfloat16 optimizer casts the gradient to float32 before it adds it (`update_hp_grads`);
in Megatron-Core the matrix product itself adds to the sum (`gradient_accumulation_fusion`). PyTorch's autocast
casts each weight for its pass (read 4, write 2 bytes) and its gradient back (2, 4) before that is added (12)."""

_UPDATE_BYTES: Mapping[str, float] = {"pytorch": 80.0}
"""Memory traffic of AdamW for one parameter, where a runtime's is not that of one kernel. PyTorch's default
goes through memory for each of its steps (`torch.optim.adamw`, `foreach`, from decay to update): 8 + 12 + 8 + 12 +
8 + 8 + 8 + 16 bytes. One H200 took 106 to 144 bytes at its data sheet's bandwidth."""

_UPDATE_KERNELS: Mapping[str, float] = {"pytorch": 9.0}
"""Kernels of an update of one parameter on a CPU (`torch.optim.adamw`, from the count of steps to `addcdiv_`)."""

_REDUCED_WHOLE = {("megatron-deepspeed", "bf16"), ("deepspeed-pipeline", "bf16")}
"""DeepSpeed's pipeline reduces bfloat16 gradients on all ranks, though ZeRO 1 needs a share on each
(`PipelineEngine._bf16_reduce_grads`)."""

_REDUCED_IN: Mapping[tuple[str, str], float] = {("deepspeed-pipeline", "fp16"): 4.0}
"""Bytes of a gradient in an exchange of its own precision: DeepSpeed's `fp32_allreduce`, off unless it is
asked for, is on in the runs that this runtime was measured by (Li et al. 2022, arXiv 2210.07297)."""

_PREFETCH = OVERLAP.index("fsdp-prefetch")
_NONE = OVERLAP.index("none")


def gradient_bytes(precision: Precision, overlap: npt.NDArray[np.int64]) -> Array:
    """Return the bytes of a gradient on the wire, by the code of each strategy's overlap.

    bfloat16 gradients are added up and reduced in float32 (Megatron-LM and DeepSpeed do both), as
    their mantissa is short; FSDP reduces each micro-batch's in the precision of the computation.
    """
    summed = 4.0 if precision in ("bf16", "fp8") else _BYTES[precision]
    return np.where(overlap == _PREFETCH, _BYTES[precision], summed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """Parameters that one group of ranks replicates: arrays of one shape."""

    elements: Array
    """Parameters that a device holds before ZeRO shards them."""
    update_bytes: Array
    """Memory traffic of updating them all once."""
    precision: Precision
    runtime: str
    group: RankGroup
    zero: npt.NDArray[np.int64]
    overlap: npt.NDArray[np.int64]
    micro_batches: Array


def exchange_group(group: RankGroup, runtime: str) -> RankGroup:
    """Return the group as a runtime makes use of it.

    Several ranks of a node could each use a NIC of their own. DeepSpeed's exchange was seen to reach
    what one NIC carries: the rows on 64 to 512 GPUs say so wherever ranks share a node.
    """
    if "deepspeed" not in runtime or group.nic is None:
        return group
    return replace(group, siblings=np.maximum(group.siblings, float(group.nics_per_node)))


def exchange_seconds(
    held: Replicas,
    *,
    forward: Array,
    backward: Array,
    units: Array,
    calls: Array,
    constants: TimeConstants,
) -> Array:
    """Return the seconds of gradient and parameter exchange in a step that no pass hides.

    ZeRO 0 reduces gradients once, 1 scatters them and gathers the updated parameters, 2 scatters after
    every micro-batch, 3 also gathers parameters before each pass, unit by unit (Rajbhandari et al. 2020, arXiv
    1910.02054, section 7). `forward` and `backward` are the seconds of one pass: with overlap, an
    exchange runs beside one, all but the first of `units` parts gathered or the last one reduced, which
    nothing is left to hide (Zhao et al. 2023, arXiv 2304.11277, section 3.3). `calls` are the collectives
    that ZeRO 3 makes of one pass: one for each unit.
    """

    def cost(collective: Collective, each: Array | float, window: Array) -> Array:
        times = np.where(held.zero == 3, calls, 1.0)
        part = held.elements * each / times
        whole = times * collective_seconds(collective, part, held.group, constants)
        edge = whole / units
        beside = edge + exposed(whole - edge, window, constants)
        return np.where(held.overlap == _NONE, whole, beside)

    gradient = _REDUCED_IN.get(
        (held.runtime, held.precision), gradient_bytes(held.precision, held.overlap)
    )
    parameter = _BYTES[held.precision]
    n = held.micro_batches
    seconds = np.zeros_like(n)
    for zero in np.unique(held.zero):
        if zero == 0:
            found = cost("all_reduce", gradient, backward)
        else:
            gather = cost("all_gather", parameter, forward)
            if zero < 3:
                whole = zero == 1 and (held.runtime, held.precision) in _REDUCED_WHOLE
                reduce: Collective = "all_reduce" if whole else "reduce_scatter"
                found = gather + cost(reduce, gradient, backward) * (n if zero == 2 else 1.0)
            else:
                both = parameter + gradient * bytes_gathered_meanwhile(held.group)
                found = n * (gather + cost("all_gather", both, backward))
        seconds = np.where(held.zero == zero, found, seconds)
    return seconds


def accumulation_seconds(held: Replicas, nodes: NodeGroup, constants: TimeConstants) -> Array:
    """Return the seconds of adding one micro-batch's gradients to those of the step.

    From ZeRO 2 on, each rank adds up its own share.
    """
    usual = _ACCUMULATION_BYTES[held.precision]
    each = _OTHER_ACCUMULATION_BYTES.get((held.runtime, held.precision), usual)
    shards = np.where(held.zero >= 2, held.group.ranks, 1.0)
    return held.elements / shards * each / _memory_rate(nodes, constants)


def optimizer_seconds(held: Replicas, nodes: NodeGroup, constants: TimeConstants) -> Array:
    """Return the seconds of the update, which memory traffic bounds; ZeRO shards it.

    `constants.optimizer_passes` stands for what comes with it: unscaling, the norm of the gradients,
    copies between precisions.
    """
    shards = np.where(held.zero >= 1, held.group.ranks, 1.0)
    each = _UPDATE_BYTES.get(held.runtime)
    traffic = held.update_bytes if each is None else held.elements * each
    return traffic / shards * constants.optimizer_passes / _memory_rate(nodes, constants)


def dispatch_seconds(
    updates: Array,
    dtensors: npt.NDArray[np.bool_],
    device: Device,
    runtime: str,
    constants: TimeConstants,
) -> Array:
    """Return the seconds in which a host that is the device calls the optimizer's kernels, one after the other.

    `updates` are the parameters, `dtensors` where they are DTensors. A GPU gets them in a few kernels for all.
    """
    calls = updates * _UPDATE_KERNELS.get(runtime, 0.0) * device.is_host
    factor = np.where(dtensors, constants.dispatch_factor_of(runtime), 1.0)
    return calls * constants.host_seconds_of(runtime) * factor


def _memory_rate(nodes: NodeGroup, constants: TimeConstants) -> float:
    return nodes.device.memory_bandwidth * constants.bandwidth_efficiency * nodes.efficiency
