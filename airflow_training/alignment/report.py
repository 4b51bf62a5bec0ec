"""What a comparison found: the first divergence, and how each kind of tensors compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["AlignmentReport", "Divergence", "KindSummary", "report_document"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """A tensor that differs by more than rounding."""

    step: int
    rank: int
    kind: str
    operator: str
    order: int
    """Among what the first run computed in this step."""
    micro_batch: int
    difference: float
    """Relative to the tensor's norm; infinite where one has other shapes or is missing."""
    allowed: float
    place: str
    """Class, and source line where it is the user's."""
    origin: str
    """Where it comes from, in words."""
    worst: tuple[int, ...] = ()
    """Index of the largest difference."""
    source: str = ""
    """The line of the user's code that calls the module."""
    stage: int = 0
    """Of the pipeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindSummary:
    """How one kind of tensors compared."""

    kind: str
    compared: int = 0
    left_out: int = 0
    """Those that cannot be compared: parts of a sum over replicas, and steps made of rounding."""
    diverged: int = 0
    largest: float = 0.0
    """Difference over all of them, relative to each tensor's norm."""

    def add(self, difference: float | None, *, diverged: bool) -> KindSummary:
        """Count one more tensor; None where it was left out."""
        if difference is None:
            return KindSummary(
                kind=self.kind,
                compared=self.compared,
                left_out=self.left_out + 1,
                diverged=self.diverged,
                largest=self.largest,
            )
        larger = math.isnan(difference) or difference > self.largest
        return KindSummary(
            kind=self.kind,
            compared=self.compared + 1,
            left_out=self.left_out,
            diverged=self.diverged + diverged,
            largest=difference if larger else self.largest,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignmentReport:
    """Whether two runs equal each other but for rounding."""

    equal: bool
    steps: int
    """How many were compared."""
    ranks: int
    kinds: Sequence[KindSummary]
    first: Divergence | None = None
    notes: Sequence[str] = ()


def report_document(report: AlignmentReport) -> dict[str, Any]:
    """Return a report as JSON has it: null for what is infinite or not a number."""

    def plain(value: Any) -> dict[str, Any]:
        found = {name: getattr(value, name) for name in type(value).__slots__}
        return {
            name: None if isinstance(each, float) and not math.isfinite(each) else each
            for name, each in found.items()
        }

    return {
        **plain(report),
        "kinds": [plain(each) for each in report.kinds],
        "first": None if report.first is None else plain(report.first),
        "notes": list(report.notes),
    }
