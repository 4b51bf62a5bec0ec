"""Seconds of kernels on one device: their arithmetic, their memory traffic, their shapes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cost.constants import TimeConstants
from airflow_training.planning.view.cluster import Device
from airflow_training.planning.view.program import Compute, Number

Array = npt.NDArray[np.float64]

_TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.93), (128, 64, 0.75), (64, 64, 0.55))
"""Rows and columns of the output that one streaming multiprocessor makes at once, and the share of
its peak that it reaches on them: a tile of a x b does 2abk operations on (a + b)k numbers it loads
(NVIDIA, Matrix Multiplication Background User's Guide, section "Tile quantization")."""

_LEAST_SPLIT = 512
"""Shortest part of k that is worth a tile of its own."""

_PRODUCTS = ("matmul", "conv")
"""Kinds that run on tensor cores, at their rate where nobody says the shape."""

_WIDER = {
    "fp8": ("fp8", "bf16", "fp16", "tf32", "fp32"),
    "bf16": ("bf16", "fp16", "tf32", "fp32"),
    "fp16": ("fp16", "bf16", "tf32", "fp32"),
    "tf32": ("tf32", "fp32"),
    "fp32": ("fp32", "tf32"),
}


def kernel_seconds(
    kernels: Sequence[Compute],
    *,
    rows: int,
    device: Device,
    precision: str,
    constants: TimeConstants,
) -> Array:
    """Return how long the device works on each kernel once, without its launch: (kernels, rows).

    The roofline (Williams, Waterman and Patterson 2009): the longer of arithmetic and memory traffic,
    each at the rate that is achieved in practice, plus the start and the end of the kernel.
    """
    traffic = _stacked([k.read_bytes for k in kernels], rows)
    traffic += _stacked([k.written_bytes for k in kernels], rows)
    memory = traffic / (device.memory_bandwidth * constants.bandwidth_efficiency)
    arithmetic = _stacked([k.flops for k in kernels], rows)
    peak = peak_flops(device, precision)
    multiplied = peak * device.matmul_efficiency * constants.matmul_efficiency
    shaped = np.array([k.gemm is not None for k in kernels])
    if shaped.any():
        shapes = [k.gemm for k in kernels if k.gemm is not None]
        arithmetic[shaped] = gemm_seconds(
            *(_stacked(sizes, rows) for sizes in zip(*shapes, strict=True)),
            rate=multiplied,
            units=device.units,
            constants=constants,
        )
    rates = np.empty((len(kernels), 1))
    for index, kernel in enumerate(kernels):
        if kernel.kind == "attention":
            rates[index] = peak * constants.attention_share(device.name, kernel.phase)
        elif kernel.kind in _PRODUCTS:
            rates[index] = multiplied
        else:
            rates[index] = peak_flops(device, "fp32")
    arithmetic[~shaped] /= rates[~shaped]
    return np.maximum(memory, arithmetic) + constants.kernel_seconds


def gemm_seconds(
    batch: Array, m: Array, n: Array, k: Array, *, rate: float, units: int, constants: TimeConstants
) -> Array:
    """Return the time of `batch` products of (m, k) and (k, n) at `rate` operations per second.

    Tile quantisation: outputs are made in whole tiles. Wave quantisation: the tiles run in waves of
    `units` at a time, and the last wave takes as long as a full one (softened by
    `constants.wave_quantisation`, as libraries also split k and stagger tiles). Where tiles do not
    fill one wave, k is split among the idle units. Both after NVIDIA's Matrix Multiplication
    Background User's Guide. `units` 0: not known, no waves.
    """
    best = np.full(np.shape(m), np.inf)
    for rows, columns, share in _TILES:
        waves = batch * np.ceil(m / rows) * np.ceil(n / columns) / max(units, 1)
        one_wave = (2.0 * rows * columns * max(units, 1) / (rate * share)) * k
        if units:
            splits = np.clip(np.floor(1.0 / waves), 1.0, np.maximum(1.0, k / _LEAST_SPLIT))
            quantised = waves + constants.wave_quantisation * (np.ceil(waves) - waves)
            waves = np.where(waves < 1.0, 1.0 / splits, quantised)
        best = np.minimum(best, one_wave * waves)
    return best * (1.0 + constants.k_half / k)


def peak_flops(device: Device, precision: str) -> float:
    """Return the peak of the device at a precision, or at the nearest one that it has."""
    for name in _WIDER[precision]:
        if name in device.peak_flops:
            return device.peak_flops[name]
    return max(device.peak_flops.values())


def _stacked(values: Sequence[Number], rows: int) -> Array:
    stacked = np.empty((len(values), rows))
    for index, value in enumerate(values):
        stacked[index] = value
    return stacked
