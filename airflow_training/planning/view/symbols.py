"""Sizes that wait for the numbers of a strategy: products of extents, each cut by mesh axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from airflow_training.planning.view.program import Number


@dataclass(frozen=True, slots=True)
class DimensionSize:
    """The length of one dimension: `size`, times the batch's growth if it `scales`, cut by `axes`."""

    size: float
    scales: bool = False
    axes: tuple[str, ...] = ()


Box = tuple[DimensionSize, ...]
"""A product of extents; the empty one is 1."""


@dataclass(frozen=True, slots=True)
class TensorMemory:
    """The bytes of a part of a tensor."""

    box: Box
    dtype: str


BYTES = {
    "complex128": 16.0,
    "complex64": 8.0,
    "float64": 8.0,
    "float32": 4.0,
    "tf32": 4.0,
    "fp32": 4.0,
    "float16": 2.0,
    "fp16": 2.0,
    "bfloat16": 2.0,
    "bf16": 2.0,
    "float8": 1.0,
    "fp8": 2.0,  # only products run in 8 bits; what is between them stays in 16
    "int64": 8.0,
    "int32": 4.0,
    "int16": 2.0,
    "int8": 1.0,
    "uint8": 1.0,
    "bool": 1.0,
}


class Evaluator:
    """Evaluates sizes for one table of strategies, each distinct one once."""

    def __init__(self, *, growth: Number, axes: Mapping[str, Number], precision: str) -> None:
        """Take the numbers of the table.

        Args:
            growth: By how much the batch is larger than the view's.
            axes: Size of every mesh axis.
            precision: What the dtype `compute` is.

        """
        self._growth = growth
        self._axes = axes
        self._precision = precision
        self._extents: dict[DimensionSize, Number] = {}
        self._boxes: dict[Box, Number] = {}

    def extent(self, extent: DimensionSize) -> Number:
        """Return the longest slice of a dimension."""
        known = self._extents.get(extent)
        if known is None:
            length: Number = extent.size * self._growth if extent.scales else extent.size
            for axis in extent.axes:
                length = length / self._axes[axis]
            # Shares of sizes that divide may miss the whole number by rounding.
            known = np.ceil(length - 1e-9) if extent.axes or extent.scales else length
            self._extents[extent] = known
        return known

    def box(self, box: Box) -> Number:
        """Return the number of elements in a box: an array where sizes are."""
        known = self._boxes.get(box)
        if known is None:
            known = 1.0
            for extent in box:
                known = known * self.extent(extent)
            self._boxes[box] = known
        return known

    def memory(self, *parts: TensorMemory) -> Number:
        """Return the bytes of some parts of tensors together."""
        total: Number = 0.0
        for part in parts:
            dtype = self._precision if part.dtype == "compute" else part.dtype
            total = total + self.box(part.box) * BYTES[dtype]
        return total

    def size(self, axis: str) -> Number:
        """Return the number of devices along a mesh axis."""
        return self._axes[axis]
