"""Seconds of one kernel on one device: its arithmetic, its memory traffic, its shape."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cluster import Device
from airflow_training.planning.constants import TimeConstants
from airflow_training.planning.program import Compute, Number

_TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.93), (128, 64, 0.75), (64, 64, 0.55))
"""Rows and columns of the output that one streaming multiprocessor makes at once, and the share of
its peak that it reaches on them: a tile of a x b does 2abk operations on (a + b)k numbers it loads
(NVIDIA, Matrix Multiplication Background User's Guide, section "Tile quantization")."""

_LEAST_SPLIT = 512
"""Shortest part of k that is worth a tile of its own."""


def kernel_seconds(
    kernel: Compute, *, device: Device, precision: str, constants: TimeConstants
) -> Number:
    """Return how long the device works on the kernel once, launch by the host not counted.

    The roofline (Williams, Waterman and Patterson 2009): the longer of arithmetic and memory traffic,
    each at the rate that is achieved in practice, plus the time to fill and drain the device.
    """
    traffic = np.asarray(kernel.read_bytes) + np.asarray(kernel.written_bytes)
    memory = traffic / (device.memory_bandwidth * constants.bandwidth_efficiency)
    arithmetic = _arithmetic_seconds(kernel, device, precision, constants)
    return np.maximum(memory, arithmetic) + constants.kernel_seconds


def _arithmetic_seconds(
    kernel: Compute, device: Device, precision: str, constants: TimeConstants
) -> npt.NDArray[np.float64]:
    dtype = precision if kernel.dtype == "compute" else kernel.dtype
    if kernel.gemm is not None:
        peak = peak_flops(device, precision) * device.matmul_efficiency
        return gemm_seconds(
            *kernel.gemm,
            rate=peak * constants.matmul_efficiency,
            units=device.units,
            constants=constants,
        )
    if kernel.kind == "attention":
        share = (
            constants.attention_efficiency
            if kernel.phase == "forward"
            else constants.attention_backward_efficiency
        )
        return np.asarray(kernel.flops) / (peak_flops(device, precision) * share)
    return np.asarray(kernel.flops) / peak_flops(device, "fp32")


def gemm_seconds(
    batch: Number,
    m: Number,
    n: Number,
    k: Number,
    *,
    rate: float,
    units: int,
    constants: TimeConstants,
) -> npt.NDArray[np.float64]:
    """Return the time of `batch` products of (m, k) and (k, n) at `rate` operations per second.

    Tile quantisation: outputs are made in whole tiles. Wave quantisation: the tiles run in waves of
    `units` at a time, and the last wave takes as long as a full one (softened by
    `constants.wave_quantisation`, as libraries split k or stagger tiles). Few tiles split k among
    the idle units. Both after NVIDIA's Matrix Multiplication Background User's Guide.
    """
    batch, m, n, k = (np.asarray(value, dtype=np.float64) for value in (batch, m, n, k))
    best: npt.NDArray[np.float64] | None = None
    for rows, columns, share in _TILES:
        tiles = batch * np.ceil(m / rows) * np.ceil(n / columns)
        one_wave = 2.0 * rows * columns * k * max(units, 1) / (rate * share)
        waves = tiles / max(units, 1)
        if units:
            splits = np.clip(np.floor(1 / waves), 1, np.maximum(1, k / _LEAST_SPLIT))
            quantised = waves + constants.wave_quantisation * (np.ceil(waves) - waves)
            waves = np.where(waves < 1, 1 / splits, quantised)
        work = one_wave * waves
        best = work if best is None else np.minimum(best, work)
    assert best is not None
    return best * (1.0 + constants.k_half / k)


def peak_flops(device: Device, precision: str) -> float:
    """Return the peak of the device at a precision, or at the next wider one that it has."""
    for name in _WIDER[precision]:
        if name in device.peak_flops:
            return device.peak_flops[name]
    return max(device.peak_flops.values())


_WIDER = {
    "fp8": ("fp8", "bf16", "fp16", "tf32", "fp32"),
    "bf16": ("bf16", "fp16", "tf32", "fp32"),
    "fp16": ("fp16", "bf16", "tf32", "fp32"),
    "tf32": ("tf32", "fp32"),
    "fp32": ("fp32", "tf32"),
}
