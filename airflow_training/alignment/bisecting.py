"""Which steps and modules the next pass of both programs writes down, by what the last one found. Pure.

First sketches of the gradients of every step; then the step in which they part, by blocks of the module; then the operators of one
block. So what is on disk at a time is small, whatever the number of steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from airflow_training.alignment.report import AlignmentReport

__all__ = ["Look", "first_look", "next_look"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one pass writes down."""

    steps: Sequence[int]
    detail: Literal["full", "sketch"] = "full"
    blocks: bool = False
    """Nothing inside the blocks of the module: the entries of its outermost lists."""
    inside: tuple[str, ...] | None = None
    """Only these modules and what is in them."""


def first_look(steps: int) -> Look:
    """Sketch all steps."""
    return Look(steps=range(steps), detail="sketch")


def next_look(
    look: Look, report: AlignmentReport, *, steps: int, recorded: Sequence[str]
) -> Look | None:
    """Decide what to look at after `look`; None where its report is the answer.

    Args:
        look: the last one.
        report: what it found.
        steps: of the whole comparison.
        recorded: modules that it wrote, in the order of their outputs.

    """
    if look.detail == "sketch":
        if report.first is None:
            return Look(steps=(steps - 1,), blocks=True)
        # gradients that part may come of the update before
        step = report.first.step
        return Look(steps=tuple(range(max(0, step - 1), step + 1)), blocks=True)
    if report.first is None:
        later = range(look.steps[-1] + 1, steps)
        return Look(steps=later, detail="sketch") if later and look.blocks else None
    if not look.blocks or not report.first.kind.startswith("output"):
        return None
    name = report.first.operator.partition("[")[0]
    around = [name]
    if report.first.kind == "output gradient" and name in recorded:
        # what reads this output computed its gradient
        around += recorded[recorded.index(name) + 1 :][:1]
    return replace(look, steps=(report.first.step,), blocks=False, inside=tuple(around))
