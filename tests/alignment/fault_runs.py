"""Records trainings with planted faults and without, on real ranks, and compares them with the serial ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist

from airflow_training.alignment.comparing import compare_runs, serial_plan
from airflow_training.alignment.recording import TrainingRecorder
from airflow_training.alignment.records import read_run
from airflow_training.alignment.report import AlignmentReport
from airflow_training.errors import InputError
from airflow_training.execution import ExecutionPlan, distribute
from tests.alignment.faults import Fault, plan_for
from tests.alignment.planting import Plant, nothing
from tests.execution.ranks import call_ranks, make, make_optimizer
from tests.execution.zoo import ZOO, cross_entropy

LOSSES: Mapping[str, Callable[[Any, Any], Any]] = {
    "mean": cross_entropy,
    "double": lambda output, target: 2 * cross_entropy(output, target),
    "half": lambda output, target: cross_entropy(output, target) / 2,
    "more": lambda output, target: 1.001 * cross_entropy(output, target),
}


def draw_batch(model: str, step: int, change: str = "same") -> Any:
    """The batch of a step, and what a fault makes of it."""
    inputs, target = ZOO[model].batch(step + (change == "next"))
    half = len(target) // 2
    if change == "swapped":
        return inputs.roll(half, 0), target.roll(half, 0)
    if change == "targets":
        return inputs, target.roll(half, 0)
    return inputs, target


def record_run(
    model: str,
    plan: ExecutionPlan,
    folder: Path,
    *,
    plant: Plant = nothing,
    loss: str = "mean",
    batch: str = "same",
    steps: int = 1,
    **options: Any,
) -> None:
    """Train on this rank and write down what was computed."""
    training = distribute(
        make(model),
        loss=LOSSES[loss],
        optimizer=make_optimizer(plan.precision),
        example=ZOO[model].batch(0),
        plan=plan,
    )
    plant(training)
    rank = dist.get_rank() if plan.devices > 1 else 0
    recorder = TrainingRecorder(training, folder, rank=rank, **options)
    for step in range(steps):
        recorder.step(draw_batch(model, step, batch))


def _record_faults(folder: str, faults: Sequence[tuple[str, Fault]]) -> None:
    for name, fault in faults:
        record_run(
            fault.model,
            plan_for(fault.split),
            Path(folder, name),
            plant=fault.plant,
            loss=fault.loss,
            batch=fault.batch,
            steps=fault.step + 1,
        )


def find_faults(folder: Path, faults: Mapping[str, Fault]) -> dict[str, AlignmentReport]:
    """Run all faults, those of as many ranks together, and compare each with its serial training."""
    for world in sorted({plan_for(each.split).devices for each in faults.values()}):
        # by name: functions of a table do not travel to other processes
        names = [name for name, each in faults.items() if plan_for(each.split).devices == world]
        call_ranks(world, _record_named, str(folder), names)
    reports = {}
    for name, fault in faults.items():
        plan = plan_for(fault.split)
        serial = folder / "serial" / name
        record_run(fault.model, serial_plan(plan), serial, plant=fault.serial, steps=fault.step + 1)
        reports[name] = compare_runs(read_run(serial), read_run(folder / name))
    return reports


def _record_named(folder: str, names: Sequence[str]) -> None:
    from tests.alignment.faults import FAULTS

    _record_faults(folder, [(name, FAULTS[name]) for name in names])


def is_named(fault: Fault, report: AlignmentReport) -> bool:
    """Tell whether a report says step, kind and operator of a fault."""
    first = report.first
    return first is not None and (
        (first.step, first.kind) == (fault.step, fault.kind)
        and ("*" in fault.operators or first.operator in fault.operators)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOutcome:
    """How a pair of runs without a fault compared."""

    model: str
    split: Mapping[str, Any]
    report: AlignmentReport | None
    refused: str = ""
    """The engine's reason, where it does not carry out the split."""


def _record_pairs(
    folder: str, pairs: Sequence[tuple[str, dict[str, Any]]], steps: int
) -> list[str]:
    return [
        _record_pair(model, plan_for(split), Path(folder, str(number)), steps)
        for number, (model, split) in enumerate(pairs)
    ]


def _record_pair(model: str, plan: ExecutionPlan, folder: Path, steps: int) -> str:
    try:
        record_run(model, plan, folder, steps=steps)
    except InputError as error:
        return str(error)
    return ""


def compare_pairs(
    folder: Path, pairs: Sequence[tuple[str, dict[str, Any]]], *, steps: int = 2
) -> list[PairOutcome]:
    """Run pairs without a fault, those of as many ranks together."""
    outcomes = []
    for world in sorted({plan_for(split).devices for _, split in pairs}):
        chosen = [each for each in pairs if plan_for(each[1]).devices == world]
        place = folder / str(world)
        refused = call_ranks(world, _record_pairs, str(place), chosen, steps)[0]
        for number, ((model, split), reason) in enumerate(zip(chosen, refused, strict=True)):
            report = None
            if not reason:
                serial = place / f"serial-{number}"
                record_run(model, serial_plan(plan_for(split)), serial, steps=steps)
                report = compare_runs(read_run(serial), read_run(place / str(number)))
            outcomes.append(PairOutcome(model=model, split=split, report=report, refused=reason))
    return outcomes


__all__ = ["PairOutcome", "compare_pairs", "find_faults", "is_named", "record_run"]
