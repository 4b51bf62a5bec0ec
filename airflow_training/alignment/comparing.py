"""Compares two recorded runs, in the order in which the first computed: usually the serial training and a split one.

The first tensor that differs by more than rounding names the operator: all that was computed before it agreed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_training.alignment.assembling import RecordedStep, StepPair
from airflow_training.alignment.gradient_noise import GradientNoise
from airflow_training.alignment.records import RecordedRun, TensorRecord
from airflow_training.alignment.report import AlignmentReport, Divergence, KindSummary
from airflow_training.alignment.tolerance import UNIT_ROUNDOFF, tolerance
from airflow_training.errors import InputError, TrainingError

if TYPE_CHECKING:
    import torch

    from airflow_training.execution.execution_plan import ExecutionPlan

__all__ = ["compare_runs", "serial_plan"]

_FLOOR = 1e-2
"""A gradient is measured by its own norm, but by no less than this part of the largest one: below is rounding of the others."""
_SKETCHED = ("gradient", "loss")
_ALWAYS_COMPARED = (*_SKETCHED, "parameter")
_PHASES = {
    kind: place
    for place, kind in enumerate(
        ("output", "output gradient", "gradient", "loss", "parameter", "optimizer")
    )
}
_Order = tuple[float, ...]


def compare_runs(
    first: RecordedRun,
    second: RecordedRun,
    *,
    sketched: bool = False,
) -> AlignmentReport:
    """Compare all ranks of two runs, in the steps that both recorded.

    Args:
        first: what the other should equal.
        second: of the same batches from the same weights, in any split.
        sketched: only losses and sketches of gradients were recorded.

    Raises:
        InputError: they have no step in common, or batches of other sizes.
        TrainingError: no gradient, loss or parameter could be compared, or fp16 left out an update of one run only.

    """
    steps = _common_steps(first, second)
    precision = max(
        (first.plan.precision, second.plan.precision), key=lambda name: UNIT_ROUNDOFF[name]
    )
    noise: dict[tuple[bool, int], GradientNoise] = {}
    kinds: dict[str, KindSummary] = {}
    earliest: tuple[_Order, Divergence] | None = None
    overflowed: list[int] = []
    for step in steps:
        pair = StepPair(RecordedStep(first, step), RecordedStep(second, step))
        if _overflowed(pair, step):
            overflowed.append(step)
        comparison = _StepComparison(pair, step, precision, noise)
        for kind, found, order, diverged in comparison.rows():
            difference, divergence = found, diverged
            if kind == "output gradient" and step in overflowed:
                difference, divergence = None, None  # infinities and what comes of them
            summary = kinds.get(kind) or KindSummary(kind=kind)
            kinds[kind] = summary.add(difference, diverged=divergence is not None)
            if divergence is not None and (earliest is None or order < earliest[0]):
                earliest = (order, divergence)
    for kind in _SKETCHED if sketched else _ALWAYS_COMPARED:
        if kinds.get(kind, KindSummary(kind=kind)).compared == 0:
            cause = f"; {_overflow_note(overflowed)}" if overflowed else ""
            raise TrainingError(
                f"no {kind} could be compared: nothing says that the runs are equal{cause}"
            )
    notes = [*_notes(first, second), *([_overflow_note(overflowed)] if overflowed else [])]
    return AlignmentReport(
        equal=earliest is None,
        steps=len(steps),
        ranks=second.plan.devices,
        kinds=tuple(kinds[kind] for kind in _PHASES if kind in kinds),
        first=None if earliest is None else earliest[1],
        notes=tuple(notes),
    )


def serial_plan(plan: ExecutionPlan) -> ExecutionPlan:
    """The plan of one device whose micro-batches are those of all replicas together."""
    return type(plan)(
        global_batch=plan.global_batch,
        micro_batch=plan.micro_batch * plan.dp,
        precision=plan.precision,
    )


def _common_steps(first: RecordedRun, second: RecordedRun) -> list[int]:
    if first.plan.global_batch != second.plan.global_batch:
        raise InputError.of(
            code="UnlikeRuns",
            field="strategy.global_batch",
            message=f"a step has {first.plan.global_batch} samples in one run and {second.plan.global_batch} in the other",
            hint="record both with the same --global-batch",
        )
    steps = sorted(set(first.steps) & set(second.steps))
    if not steps:
        raise InputError.of(
            code="UnlikeRuns",
            field="steps",
            message=f"no step is in both: {list(first.steps)} and {list(second.steps)}",
        )
    return steps


def _notes(first: RecordedRun, second: RecordedRun) -> Iterator[str]:
    one, other = first.plan, second.plan
    if one.micro_batch * one.dp != other.micro_batch * other.dp:
        yield (
            f"micro-batches of all replicas have {one.micro_batch * one.dp} samples in one run and"
            f" {other.micro_batch * other.dp} in the other: outputs are not compared"
        )
    for name, value in first.versions.items():
        if second.versions.get(name, value) != value:
            yield f"{name}: {value} and {second.versions[name]}"


def _overflowed(pair: StepPair, step: int) -> bool:
    """Whether both runs left out the update of a step; where one alone did, nothing after it is comparable."""
    sides = {"first": pair.first, "second": pair.second}
    found = [name for name, side in sides.items() if side.overflowed]
    if len(found) == 1:
        raise TrainingError(
            f"step {step}: gradients of the {found[0]} run overflow in fp16, and its update was left out: the runs"
            " cannot be compared; make the loss smaller, or choose bf16"
        )
    return bool(found)


def _overflow_note(steps: Sequence[int]) -> str:
    return (
        f"fp16: gradients overflow in steps {', '.join(map(str, steps))}, and the updates were left out:"
        " output gradients of these are not compared"
    )


class _StepComparison:
    """One step of two runs."""

    def __init__(
        self,
        pair: StepPair,
        step: int,
        precision: str,
        noise: dict[tuple[bool, int], GradientNoise],
    ) -> None:
        self._pair = pair
        self._step = step
        self._precision = precision
        self._noise = noise
        self._gradients = pair.first.gradients()
        self._floor = _FLOOR * max(
            (float(value.double().norm()) for value in self._gradients.values()), default=0.0
        )
        self._owners = _owners(pair)

    def rows(self) -> Iterator[tuple[str, float | None, _Order, Divergence | None]]:
        """Yield for each tensor its kind, its difference where it can be compared, its place in the order, what diverged."""
        for own, side in ((False, self._pair.second), (True, self._pair.first)):
            for rank, replica in enumerate(side.run.replicas):
                if own and rank == 0:
                    continue  # where others of the first run are not what it has, they are told as well
                yield from self._compare_rank(side, rank, replica, own=own)
        for each in self._pair.absent():
            origin = "no rank computed it, and the first run did"
            divergence = self._divergence(each, each, 0, math.inf, 0.0, (), origin)
            yield each.kind, math.inf, self._sequence(each, each, 0), divergence

    def _compare_rank(
        self, side: RecordedStep, rank: int, replica: int, *, own: bool
    ) -> Iterator[tuple[str, float | None, _Order, Divergence | None]]:
        found = side.ranks[rank]
        noise = self._noise.setdefault((own, rank), GradientNoise(self._precision))
        noise.note(
            self._gradients,
            {each.name: each.value for each in found.values() if each.kind == "gradient"},
        )
        previous: TensorRecord | None = None
        reference: TensorRecord | None = None
        for each in found.values():
            references = self._pair.references(each, side)
            if self._pair.is_left_out(each, side) or (
                not references
                and each.kind.startswith("output")
                and (side.run.piped or self._pair.first.run.piped)
            ):
                yield each.kind, None, (), None
                continue
            if not references:
                unknown = self._divergence(
                    each, each, rank, math.inf, 0.0, (), "the first run did not compute it"
                )
                order = self._sequence(reference or each, each, rank)
                yield each.kind, math.inf, order, unknown
                continue
            measured = [
                (*self._measure(each, one, side, replica, noise), one) for one in references
            ]
            difference, worst, reference = min(
                measured, key=lambda row: math.inf if row[0] is None else row[0]
            )
            cut_down = len(references) > 1 or references[0].key != each.key
            if difference is None or (cut_down and difference == math.inf):
                yield each.kind, None, (), None
                continue
            allowed = tolerance(
                self._precision, self._units(each, reference, side), step=self._step
            )
            divergence: Divergence | None = None
            if not difference <= allowed:
                origin = _origin(each, previous)
                divergence = self._divergence(
                    each, reference, rank, difference, allowed, worst, origin
                )
            yield each.kind, difference, self._sequence(reference, each, rank), divergence
            previous = each

    def _measure(
        self,
        each: TensorRecord,
        reference: TensorRecord,
        side: RecordedStep,
        replica: int,
        noise: GradientNoise,
    ) -> tuple[float | None, tuple[int, ...]]:
        expected = self._pair.expected(each, reference, side, replica)
        if expected is None:
            return None, ()
        value = noise.without(each, each.value, expected)
        if value is None:
            return None, ()
        floor = self._floor if each.kind == "gradient" else 0.0
        return _difference(value, expected, floor=floor)

    def _units(self, each: TensorRecord, reference: TensorRecord, side: RecordedStep) -> float:
        """Stages of a pipeline know only of their own operators before a tensor."""
        if not self._pair.first.run.piped:
            return reference.rounding
        return side.rounding if side.run.piped else each.rounding

    def _sequence(self, reference: TensorRecord, each: TensorRecord, rank: int) -> _Order:
        """Where a tensor is in the order of computation: what depends on it comes later."""
        if not self._pair.first.run.piped:
            return (self._step, 0, 0, 0, reference.order, rank)
        backwards = each.kind == "output gradient"
        stage = -reference.stage if backwards else reference.stage
        return (self._step, _PHASES[each.kind], stage, each.micro_batch, reference.order, rank)

    def _divergence(
        self,
        each: TensorRecord,
        reference: TensorRecord,
        rank: int,
        difference: float,
        allowed: float,
        worst: tuple[int, ...],
        origin: str,
    ) -> Divergence:
        owner = reference
        if not each.kind.startswith("output"):
            module = each.name.partition(":")[0].rpartition(".")[0] or "module"
            owner = self._owners.get(module, reference)
        return Divergence(
            step=self._step,
            rank=rank,
            kind=each.kind,
            operator=each.name,
            order=reference.order,
            micro_batch=each.micro_batch,
            difference=difference,
            allowed=allowed,
            place=owner.module,
            source=owner.source,
            origin=origin,
            worst=worst,
            stage=each.stage,
        )


def _owners(pair: StepPair) -> Mapping[str, TensorRecord]:
    """The output of each module, of the run that has the user's own classes."""
    step = pair.second if pair.first.run.piped and not pair.second.run.piped else pair.first
    found: dict[str, TensorRecord] = {}
    for key, parts in step.parts.items():
        if key[0] == "output":
            found.setdefault(key[1].partition("[")[0], next(iter(parts.values())))
    return found


def _difference(
    value: torch.Tensor, reference: torch.Tensor, *, floor: float
) -> tuple[float, tuple[int, ...]]:
    import torch

    if value.shape != reference.shape:
        return math.inf, ()
    if value.is_complex() or reference.is_complex():
        if value.is_complex() != reference.is_complex():
            return math.inf, ()
        value, reference = torch.view_as_real(value), torch.view_as_real(reference)
    one, other = value.double(), reference.double()
    # an infinity equals itself, as of a mask; what is not a number equals nothing
    apart = (one - other).abs().where(one != other, 0.0)
    norm = max(float(other.where(other.isfinite(), 0.0).norm()), floor)
    total = float(apart.norm())
    if not total:
        return 0.0, ()
    worst = torch.unravel_index(apart.argmax(), apart.shape) if apart.dim() else ()
    return total / norm if norm else math.inf, tuple(int(index) for index in worst)


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
