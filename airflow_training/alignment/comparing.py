"""Compares what a split training wrote down with the serial one, in the order in which it was computed.

The first tensor that differs by more than rounding names the operator: all that was computed before it agreed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_training.alignment.records import TensorRecord, read_step
from airflow_training.alignment.tolerance import UNIT_ROUNDOFF, tolerance
from airflow_training.errors import TrainingError

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
_MOST_ROUNDING = 0.05
"""Of the largest gradient, in whatever precision: else nothing would be compared in bf16."""
_ALWAYS_COMPARED = ("gradient", "loss", "parameter")
Key = tuple[str, str, int, int]


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
    noise: list[dict[str, torch.Tensor]] = [{} for _ in replicas]
    for step in range(steps):
        expected = {each.key: each for each in read_step(serial, rank=0, step=step)}
        rows = _rows(split, expected, replicas, step=step)
        recorded: set[Key] = set()
        for rank, replica in enumerate(replicas):
            found = list(read_step(split, rank=rank, step=step))
            recorded |= {each.key for each in found}
            place = _Place(
                plan=plan, step=step, rank=rank, replica=replica, rows=rows, noise=noise[rank]
            )
            for name, difference, divergence in _compare(found, expected, place):
                kinds[name] = _added(
                    kinds.get(name) or KindSummary(kind=name), difference, divergence
                )
                if divergence is not None and (
                    first is None
                    or (divergence.step, divergence.order, divergence.rank)
                    < (first.step, first.order, first.rank)
                ):
                    first = divergence
        for each in expected.values():
            if each.key in recorded or (plan.pp > 1 and each.kind.startswith("output")):
                continue  # of pipeline stages no operators are recorded
            absent = _absent(each, step)
            kinds[each.kind] = _added(
                kinds.get(each.kind) or KindSummary(kind=each.kind), math.inf, absent
            )
            if first is None or absent.step < first.step:
                first = absent
    for kind in _ALWAYS_COMPARED:
        if kinds.get(kind, KindSummary(kind=kind)).compared == 0:
            raise TrainingError(
                f"no {kind} could be compared: nothing says that the runs are equal"
            )
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
        largest=difference
        if math.isnan(difference) or difference > summary.largest
        else summary.largest,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Whose records of which step are compared."""

    plan: ExecutionPlan
    step: int
    rank: int
    replica: int
    rows: Mapping[Key, Mapping[int, tuple[int, int, int]]]
    """Of outputs that replicas have parts of, for each one: dimension, first row and rows of the serial tensor."""
    noise: dict[str, torch.Tensor] = field(default_factory=dict)
    """Which numbers of a parameter had gradients of rounding alone, in this step or one before."""


def _rows(
    split: Path, expected: Mapping[Key, TensorRecord], replicas: Sequence[int], *, step: int
) -> dict[Key, dict[int, tuple[int, int, int]]]:
    """Find which rows of each output the replicas have: along the one dimension in which theirs add up to the serial ones.

    Replicas may have unlike numbers of rows, as of what a router gives an expert.
    """
    shapes: dict[Key, dict[int, tuple[int, ...]]] = {}
    for rank, replica in enumerate(replicas):
        for each in read_step(split, rank=rank, step=step):
            if each.kind.startswith("output"):
                shapes.setdefault(each.key, {})[replica] = tuple(each.value.shape)
    found: dict[Key, dict[int, tuple[int, int, int]]] = {}
    for key, parts in shapes.items():
        if key not in expected or len(parts) < 2:
            continue
        whole = tuple(expected[key].value.shape)
        dimension = _split_dimension(whole, list(parts.values()))
        if dimension is not None:
            begin = 0
            found[key] = {}
            for replica in sorted(parts):
                size = parts[replica][dimension]
                found[key][replica] = (dimension, begin, size)
                begin += size
    return found


def _split_dimension(whole: tuple[int, ...], parts: Sequence[tuple[int, ...]]) -> int | None:
    if any(len(part) != len(whole) for part in parts):
        return None
    for dimension, size in enumerate(whole):
        around = (whole[:dimension], whole[dimension + 1 :])
        if sum(part[dimension] for part in parts) == size and all(
            (part[:dimension], part[dimension + 1 :]) == around for part in parts
        ):
            return dimension
    return None


def _absent(each: TensorRecord, step: int) -> Divergence:
    return Divergence(
        step=step,
        rank=0,
        kind=each.kind,
        operator=each.name,
        order=each.order,
        micro_batch=each.micro_batch,
        difference=math.inf,
        allowed=0.0,
        place=each.module,
        origin="no rank computed it, and the serial program did",
    )


def _compare(
    found: Sequence[TensorRecord], expected: Mapping[Key, TensorRecord], place: _Place
) -> Iterator[tuple[str, float | None, Divergence | None]]:
    """Yield for each record its kind, its difference where it can be compared, and the divergence where it is one."""
    plan, step, rank = place.plan, place.step, place.rank
    serial = {each.name: each.value for each in expected.values() if each.kind == "gradient"}
    gradients = {name: float(value.double().norm()) for name, value in serial.items()}
    largest = max(gradients.values(), default=0.0)
    _note_noise(place, serial, [each for each in found if each.kind == "gradient"])
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
        reference = _part(each, other, place)
        if reference is None or _is_rounding(each, gradients, largest, plan.precision):
            yield each.kind, None, None
            continue
        value = each.value
        noise = place.noise.get(each.name.partition(":")[0])
        if (
            each.kind in ("parameter", "optimizer")
            and noise is not None
            and noise.shape == value.shape
        ):
            if bool(noise.all()):
                yield each.kind, None, None
                continue
            value = value.where(~noise, reference.to(value.dtype))
        floor = _FLOOR * largest if each.kind == "gradient" else 0.0
        difference, worst = _difference(value, reference, floor=floor)
        divergence = None
        if not difference <= allowed:
            divergence = _divergence(each, previous, step, rank, difference, allowed, worst)
        yield each.kind, difference, divergence
        previous = each


def _note_noise(
    place: _Place, serial: Mapping[str, torch.Tensor], found: Sequence[TensorRecord]
) -> None:
    """Remember which single numbers have gradients of rounding alone: a bias of queries, keys and values has a third of them."""
    peaks = [float(value.abs().max()) for value in serial.values() if value.numel()]
    limit = _rounding(place.plan.precision) * max(peaks, default=0.0)
    for each in found:
        expected = serial.get(each.name)
        if expected is None or expected.shape != each.value.shape:
            continue
        size = each.value.abs().maximum(expected.abs())
        noise = (size > 0) & (size < limit)
        before = place.noise.get(each.name)
        place.noise[each.name] = noise if before is None else noise | before


def _rounding(precision: str) -> float:
    return min(_MOST_ROUNDING, _ROUNDING * UNIT_ROUNDOFF[precision])


def _part(each: TensorRecord, other: TensorRecord, place: _Place) -> torch.Tensor | None:
    """Return what of the serial tensor this rank should have; None where it has only a part of a sum."""
    plan, whole = place.plan, other.value
    if each.kind not in ("output", "output gradient") or plan.dp == 1:
        return whole
    scale = (
        plan.dp if each.kind == "output gradient" else 1
    )  # its loss is the mean over fewer samples
    rows = place.rows.get(each.key)
    if rows is not None:
        return whole.narrow(*rows[place.replica]) * scale
    return None if each.kind == "output gradient" else whole


def _is_rounding(
    each: TensorRecord, gradients: Mapping[str, float], largest: float, precision: str
) -> bool:
    if each.kind not in ("parameter", "optimizer"):
        return False
    norm = gradients.get(each.name.partition(":")[0])
    return norm is not None and norm < _rounding(precision) * largest


def _difference(
    value: torch.Tensor, reference: torch.Tensor, *, floor: float
) -> tuple[float, tuple[int, ...]]:
    import torch

    if value.shape != reference.shape:
        return float("inf"), ()
    if value.is_complex() or reference.is_complex():
        if value.is_complex() != reference.is_complex():
            return float("inf"), ()
        value, reference = torch.view_as_real(value), torch.view_as_real(reference)
    one, other = value.double(), reference.double()
    # an infinity equals itself, as of a mask; what is not a number equals nothing
    apart = (one - other).abs().where(one != other, 0.0)
    norm = max(float(other.where(other.isfinite(), 0.0).norm()), floor)
    total = float(apart.norm())
    if not total:
        return 0.0, ()
    worst = torch.unravel_index(apart.argmax(), apart.shape) if apart.dim() else ()
    return total / norm if norm else float("inf"), tuple(int(index) for index in worst)


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
