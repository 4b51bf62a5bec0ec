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

_ODD_ROWS = 0.25, 0.25, 0.11
"""Share of its rate that a product on tensor cores keeps where rows of its left or right operand, or of its result, are no multiple
of 16 bytes, as of a vocabulary of 50,257 (NVIDIA, Matrix Multiplication Background User's Guide, section "Tensor Core
requirements"). Single products and whole steps on one H200, `data/h200.json`."""

_WIDTHS = {"fp8": 1.0, "bf16": 2.0, "fp16": 2.0, "tf32": 4.0}
"""Bytes of a number that goes into tensor cores."""

_ATTENTION = 0.63, 120.0
"""What PyTorch 2.11 reaches forward with fused attention on Hopper: the share of the peak that long sequences reach, and the operations
for each byte at which half of it is reached. 21 shapes on one H200, `data/h200.json`."""

_AUTOCAST_NORM = {"forward": 14 / 4, "backward": 18 / 6}
"""Memory traffic of a normalisation under PyTorch's autocast against one that reads and writes two bytes a number: it runs in
float32, and its result (or the gradient that comes) is cast by a kernel of its own."""

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
    runtime: str,
    constants: TimeConstants,
) -> Array:
    """Return how long the device works on each kernel once, without its launch: (kernels, rows).

    The roofline (Williams, Waterman and Patterson 2009): the longer of arithmetic and memory traffic,
    each at the rate that is achieved in practice, plus the start and the end of the kernel.
    What only PyTorch without a compiler was measured to do is priced for the runtime `pytorch`: Megatron-LM
    pads its vocabulary, others bring attention of their own.
    """
    eager = runtime == "pytorch" and device.name.startswith("H")
    traffic = _stacked([k.read_bytes for k in kernels], rows)
    traffic += _stacked([k.written_bytes for k in kernels], rows)
    if runtime == "pytorch" and precision in ("bf16", "fp16"):
        for index, kernel in enumerate(kernels):
            if kernel.kind == "norm":
                traffic[index] *= _AUTOCAST_NORM[kernel.phase]
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
        if eager:
            odd = [_kept_share(kernel, precision, rows) for kernel in kernels if kernel.gemm]
            arithmetic[shaped] /= np.stack(odd)
    rates = np.empty((len(kernels), rows))
    for index, kernel in enumerate(kernels):
        if kernel.kind == "attention":
            rates[index] = peak * constants.attention_share(device.name, kernel.phase)
            if eager:
                rates[index] = peak * _attention_share(arithmetic[index] / traffic[index])
                rates[index] *= 1.0 if kernel.phase == "forward" else constants.attention_backward
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


def _kept_share(kernel: Compute, precision: str, rows: int) -> Array:
    """Return the share of its rate that a product keeps for the alignment of its rows."""
    share = np.ones(rows)
    if kernel.row_lengths is None or precision not in _WIDTHS:
        return share
    for length, kept in zip(kernel.row_lengths, _ODD_ROWS, strict=True):
        odd = np.mod(np.asarray(length, dtype=np.float64) * _WIDTHS[precision], 16.0) != 0
        share = np.where(odd, np.minimum(share, kept), share)
    return share


def _attention_share(intensity: Array) -> Array:
    """Return the share of the peak of fused attention with so many operations for a byte."""
    most, half = _ATTENTION
    return most * intensity / (intensity + half)


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
