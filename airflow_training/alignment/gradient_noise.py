"""Numbers of parameters whose gradients are rounding alone: adaptive optimizers make steps of it that nothing can compare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow_training.alignment.records import TensorRecord
from airflow_training.alignment.tolerance import UNIT_ROUNDOFF

if TYPE_CHECKING:
    import torch

__all__ = ["GradientNoise"]

_ROUNDING = 1e4
"""Gradients below so many units of the largest one are rounding alone."""
_MOST_ROUNDING = 0.05
"""Of the largest gradient, in whatever precision: else nothing would be compared in bf16."""


class GradientNoise:
    """Which numbers of a rank's parameters had gradients of rounding alone, in this step or one before."""

    def __init__(self, precision: str) -> None:
        self._part = min(_MOST_ROUNDING, _ROUNDING * UNIT_ROUNDOFF[precision])
        self._noise: dict[str, torch.Tensor] = {}
        self._quiet: frozenset[str] = frozenset()

    def note(self, expected: Mapping[str, torch.Tensor], found: Mapping[str, torch.Tensor]) -> None:
        """Look at the gradients of a step: those of the first run, and this rank's."""
        norms = {name: float(value.double().norm()) for name, value in expected.items()}
        largest = max(norms.values(), default=0.0)
        self._quiet = frozenset(name for name, norm in norms.items() if norm < self._part * largest)
        peaks = [float(value.abs().max()) for value in expected.values() if value.numel()]
        limit = self._part * max(peaks, default=0.0)
        for name, value in found.items():
            other = expected.get(name)
            if other is None or other.shape != value.shape:
                continue
            size = value.abs().maximum(other.abs())
            noise = (size > 0) & (size < limit)
            before = self._noise.get(name)
            self._noise[name] = noise if before is None else noise | before

    def without(
        self, each: TensorRecord, value: torch.Tensor, reference: torch.Tensor
    ) -> torch.Tensor | None:
        """A parameter or state with the reference's numbers where they are noise; None where all are."""
        name = each.name.partition(":")[0]
        if each.kind not in ("parameter", "optimizer"):
            return value
        if name in self._quiet:
            return None
        noise = self._noise.get(name)
        if noise is None or noise.shape != value.shape or reference.shape != value.shape:
            return value
        if bool(noise.all()):
            return None
        return value.where(~noise, reference.to(value.dtype))
