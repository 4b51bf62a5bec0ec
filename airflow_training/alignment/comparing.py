"""Compares what a split training wrote down with the serial one, in the order in which it was computed.

The first tensor that differs by more than rounding names the operator: all that was computed before it agreed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_training.alignment.records import TensorRecord, read_step
from airflow_training.alignment.tolerance import UNIT_ROUNDOFF, tolerance

if TYPE_CHECKING:
    import torch

    from airflow_training.execution.execution_plan import ExecutionPlan

__all__ = [
    "AlignmentReport",
    "Divergence",
    "KindSummary",
    "compare_runs",
    "replicas_of",
    "report_document",
    "serial_plan",
]

_FLOOR = 1e-2
"""A gradient is measured by its own norm, but by no less than this part of the largest one: below is rounding of the others."""
_ROUNDING = 1e4
"""Gradients below so many units of the largest one are rounding alone: adaptive optimizers make steps of it that nothing can compare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """A tensor that differs by more than rounding."""

    step: int
    rank: int
    kind: str
    operator: str
    order: int
    """Among what the rank computed in this step."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignmentReport:
    """Whether a split training equals the serial one."""

    equal: bool
    steps: int
    ranks: int
    kinds: Sequence[KindSummary]
    first: Divergence | None = None
    notes: Sequence[str] = ()


def compare_runs(
    serial: Path, split: Path, *, plan: ExecutionPlan, steps: int, replicas: Sequence[int]
) -> AlignmentReport:
    """Compare all steps of all ranks; `replicas`: of each rank, which one it is part of."""
    kinds: dict[str, KindSummary] = {}
    first: Divergence | None = None
    for step in range(steps):
        expected = {each.key: each for each in read_step(serial, rank=0, step=step)}
        for rank, replica in enumerate(replicas):
            found = list(read_step(split, rank=rank, step=step))
            for name, difference, divergence in _compare(
                found, expected, plan=plan, step=step, rank=rank, replica=replica
            ):
                kinds[name] = _added(
                    kinds.get(name) or KindSummary(kind=name), difference, divergence
                )
                if divergence is not None and (
                    first is None
                    or (divergence.step, divergence.order, divergence.rank)
                    < (first.step, first.order, first.rank)
                ):
                    first = divergence
    return AlignmentReport(
        equal=first is None,
        steps=steps,
        ranks=len(replicas),
        kinds=tuple(kinds.values()),
        first=first,
        notes=(
            ("operators of pipeline stages are not compared: torch traces them into a graph",)
            if plan.pp > 1
            else ()
        ),
    )


def _added(summary: KindSummary, difference: float | None, diverged: Any) -> KindSummary:
    if difference is None:
        return replace(summary, left_out=summary.left_out + 1)
    return replace(
        summary,
        compared=summary.compared + 1,
        diverged=summary.diverged + (diverged is not None),
        largest=max(summary.largest, difference),
    )


def _compare(
    found: Sequence[TensorRecord],
    expected: Mapping[tuple[str, str, int, int], TensorRecord],
    *,
    plan: ExecutionPlan,
    step: int,
    rank: int,
    replica: int,
) -> Iterator[tuple[str, float | None, Divergence | None]]:
    """Yield for each record its kind, its difference where it can be compared, and the divergence where it is one."""
    gradients = {
        each.name: float(each.value.double().norm())
        for each in expected.values()
        if each.kind == "gradient"
    }
    largest = max(gradients.values(), default=0.0)
    sums: list[int] = []
    previous: TensorRecord | None = None
    for each in found:
        sums.append(each.sums)
        other = expected.get(each.key)
        allowed = tolerance(plan.precision, sums, step=step)
        if other is None:
            yield (
                each.kind,
                float("inf"),
                _divergence(each, previous, step, rank, float("inf"), allowed, ()),
            )
            continue
        reference = _part(each, other, plan=plan, replica=replica)
        if reference is None or _is_rounding(each, gradients, largest, plan.precision):
            yield each.kind, None, None
            continue
        floor = _FLOOR * largest if each.kind == "gradient" else 0.0
        difference, worst = _difference(each.value, reference, floor=floor)
        divergence = None
        if not difference <= allowed:
            divergence = _divergence(each, previous, step, rank, difference, allowed, worst)
        yield each.kind, difference, divergence
        previous = each


def _part(
    each: TensorRecord, other: TensorRecord, *, plan: ExecutionPlan, replica: int
) -> torch.Tensor | None:
    """Return what of the serial tensor this rank should have; None where it has only a part of a sum."""
    whole = other.value
    if each.kind not in ("output", "output gradient") or plan.dp == 1:
        return whole
    scale = (
        plan.dp if each.kind == "output gradient" else 1
    )  # its loss is the mean over fewer samples
    if whole.dim() and each.value.dim() and len(whole) == plan.dp * len(each.value):
        size = len(each.value)
        return whole[replica * size : (replica + 1) * size] * scale
    return None if each.kind == "output gradient" else whole


def _is_rounding(
    each: TensorRecord, gradients: Mapping[str, float], largest: float, precision: str
) -> bool:
    if each.kind not in ("parameter", "optimizer"):
        return False
    norm = gradients.get(each.name.partition(":")[0])
    return norm is not None and norm < _ROUNDING * UNIT_ROUNDOFF[precision] * largest


def _difference(
    value: torch.Tensor, reference: torch.Tensor, *, floor: float
) -> tuple[float, tuple[int, ...]]:
    import torch

    if value.shape != reference.shape:
        return float("inf"), ()
    one, other = value.double(), reference.double()
    apart = (one - other).abs()
    norm = max(float(other.norm()), floor)
    total = float(apart.norm())
    if not total:
        return 0.0, ()
    worst = torch.unravel_index(apart.argmax(), apart.shape) if apart.dim() else ()
    return total / norm if norm else float("inf"), tuple(int(place) for place in worst)


def _divergence(
    each: TensorRecord,
    previous: TensorRecord | None,
    step: int,
    rank: int,
    difference: float,
    allowed: float,
    worst: tuple[int, ...],
) -> Divergence:
    return Divergence(
        step=step,
        rank=rank,
        kind=each.kind,
        operator=each.name,
        order=each.order,
        micro_batch=each.micro_batch,
        difference=difference,
        allowed=allowed,
        place=each.module,
        origin=_origin(each, previous),
        worst=worst,
    )


def _origin(each: TensorRecord, previous: TensorRecord | None) -> str:
    if each.kind == "output":
        before = (
            f"{previous.name} before it agrees" if previous else "it is the first that is computed"
        )
        return f"its forward pass, or a move of its inputs or weights: {before}"
    if each.kind == "output gradient":
        if previous is not None and previous.kind == "output gradient":
            return f"the backward pass of what reads it, next to {previous.name}, whose gradient agrees"
        return "the loss, or its scale: all outputs agree"
    if each.kind == "gradient":
        return (
            "its backward pass or the reduction of gradients: all outputs and their gradients agree"
        )
    if each.kind == "loss":
        return "the loss or its mean: all outputs and gradients agree"
    return "the optimizer's step: its gradient agrees"


def report_document(report: AlignmentReport) -> dict[str, Any]:
    """Return a report as JSON has it."""

    def plain(value: Any) -> dict[str, Any]:
        return {name: getattr(value, name) for name in type(value).__slots__}

    return {
        **plain(report),
        "kinds": [plain(each) for each in report.kinds],
        "first": None if report.first is None else plain(report.first),
        "notes": list(report.notes),
    }


def serial_plan(plan: ExecutionPlan) -> ExecutionPlan:
    """The plan of one device whose micro-batches are those of all replicas together."""
    return type(plan)(
        global_batch=plan.global_batch,
        micro_batch=plan.micro_batch * plan.dp,
        precision=plan.precision,
    )


def replicas_of(plan: ExecutionPlan) -> list[int]:
    """Of each rank, which replica it is part of: the mesh has stages outermost, then replicas, then `tp`."""
    return [rank // plan.tp % plan.dp for rank in range(plan.devices)]
