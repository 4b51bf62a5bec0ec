"""Faults planted into split trainings are found and named; faultless ones raise no alarm. On real ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from airflow_training.alignment.comparing import (
    AlignmentReport,
    compare_runs,
    replicas_of,
    serial_plan,
)
from airflow_training.alignment.recording import TrainingRecorder
from airflow_training.execution import ExecutionPlan, distribute
from tests.execution.ranks import call_ranks, make, make_optimizer
from tests.execution.zoo import BATCH, ZOO, cross_entropy

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

STEPS = 2
Batch = Callable[[int], Any]


def plan(**split: Any) -> ExecutionPlan:
    return ExecutionPlan(**{"global_batch": BATCH, "micro_batch": 4, "precision": "fp64", **split})


def scaled_loss(output: Any, target: Any) -> Any:
    return 2 * cross_entropy(output, target)


def change_output(name: str, change: Callable[[Any], Any]) -> Callable[[Any], None]:
    def plant(training: Any) -> None:
        module = training.modules[0].get_submodule(name)
        module.register_forward_hook(lambda _module, _inputs, output: change(output))

    return plant


def change_weight(name: str, *, rank: int) -> Callable[[Any], None]:
    def plant(training: Any) -> None:
        if dist.get_rank() == rank:
            tensor = dict(training.named_tensors())[name]
            local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
            with torch.no_grad():
                local.view(-1)[0].add_(1e-4)

    return plant


def double_gradient(name: str) -> Callable[[Any], None]:
    def plant(training: Any) -> None:
        parameter = dict(training.named_tensors()).get(name)

        def double(*_: Any) -> None:
            if parameter is not None:  # it may lie on another stage
                parameter.grad.mul_(2)

        training.optimizer.register_step_pre_hook(double)

    return plant


def faster(training: Any) -> None:
    for group in training.optimizer.param_groups:
        group["lr"] *= 1.001


def nothing(_: Any) -> None:
    return


FAULTS: Mapping[str, tuple[dict[str, Any], Callable[[Any], None], str, str]] = {
    "stale weights of one replica": ({"dp": 2}, change_weight("2.weight", rank=1), "output", "2"),
    "rows off by one": ({"dp": 2}, change_output("3", lambda x: x.roll(1, 0)), "output", "3"),
    "wrong dtype": ({"dp": 2}, change_output("4", lambda x: x.float().double()), "output", "4"),
    "unlike noise": (
        {"dp": 2},
        change_output("1", lambda x: x + 1e-7 * torch.randn_like(x)),
        "output",
        "1",
    ),
    "doubled reduction": (
        {"dp": 2},
        double_gradient("4.weight"),
        "gradient",
        "4.weight",
    ),
    "another rate": ({"dp": 2}, faster, "parameter", "0.weight"),
    "doubled reduction of shards": (
        {"dp": 2, "zero": 3},
        double_gradient("6.bias"),
        "gradient",
        "6.bias",
    ),
    "a slice of weights of one tensor parallel rank": (
        {"tp": 2},
        change_weight("2.weight", rank=1),
        "output",
        "2",
    ),
    "a gradient of a stage": ({"pp": 2}, double_gradient("0.weight"), "gradient", "0.weight"),
}
"""Name -> split, what is changed, and what has to be named, in the perceptron of the zoo."""


def run(
    name: str,
    case: ExecutionPlan,
    folder: str,
    *,
    plant: Callable[[Any], None] = nothing,
    loss: Any = cross_entropy,
    batch: Batch | None = None,
) -> None:
    """Record a training on this rank."""
    draw = batch or ZOO[name].batch
    training = distribute(
        make(name),
        loss=loss,
        optimizer=make_optimizer(case.precision),
        example=ZOO[name].batch(0),
        plan=case,
    )
    plant(training)
    rank = dist.get_rank() if case.devices > 1 else 0
    recorder = TrainingRecorder(training, Path(folder), rank=rank)
    for step in range(STEPS):
        recorder.step(draw(step))


def report(name: str, case: ExecutionPlan, folder: Path, number: int) -> AlignmentReport:
    serial = folder / f"serial-{number}"
    run(name, serial_plan(case), str(serial))
    return compare_runs(
        serial,
        folder / str(number),
        plan=case,
        steps=STEPS,
        replicas=replicas_of(case),
    )


def plant_all(folder: str) -> None:
    for number, (split, plant, _, _) in enumerate(FAULTS.values()):
        run("mlp", plan(**split), f"{folder}/{number}", plant=plant)
    run("mlp", plan(dp=2), f"{folder}/loss", loss=scaled_loss)
    run("mlp", plan(dp=2), f"{folder}/batch", batch=lambda step: ZOO["mlp"].batch(step + 1))


def test_planted_faults_are_found_and_the_operator_is_named(tmp_path: Path):
    call_ranks(2, plant_all, str(tmp_path))
    for number, (name, (split, _, kind, operator)) in enumerate(FAULTS.items()):
        found = report("mlp", plan(**split), tmp_path, number)
        assert found.first is not None, name
        assert not found.equal
        assert (found.first.step, found.first.kind, found.first.operator) == (0, kind, operator), (
            name
        )
    serial = tmp_path / "serial-0"
    two = {"plan": plan(dp=2), "steps": STEPS, "replicas": [0, 1]}
    first = compare_runs(serial, tmp_path / "loss", **two).first
    assert first is not None
    assert (first.kind, first.operator) == ("output gradient", "8")
    assert "the loss, or its scale" in first.origin
    assert first.difference == pytest.approx(1)
    first = compare_runs(serial, tmp_path / "batch", **two).first
    assert first is not None
    assert (first.kind, first.operator, first.micro_batch) == ("output", "0", 0)
    assert "the first that is computed" in first.origin


FAULTLESS: list[tuple[str, dict[str, Any]]] = [
    ("mlp", {"dp": 2}),
    ("mlp", {"dp": 2, "zero": 2, "precision": "fp32"}),
    ("gpt", {"dp": 2, "zero": 3}),
    ("gpt", {"tp": 2}),
    ("gpt", {"tp": 2, "precision": "fp32"}),
    ("gpt", {"pp": 2}),
    ("cnn", {"dp": 2, "precision": "fp32"}),
    ("two-tower", {"tp": 2}),
    ("encoder", {"tp": 2, "sequence_parallel": True}),
]


def run_all(folder: str) -> None:
    for number, (name, split) in enumerate(FAULTLESS):
        run(name, plan(**split), f"{folder}/{number}")


def test_faultless_splits_raise_no_alarm(tmp_path: Path):
    call_ranks(2, run_all, str(tmp_path))
    for number, (name, split) in enumerate(FAULTLESS):
        found = report(name, plan(**split), tmp_path, number)
        assert found.equal, (name, split, found.first)
        compared = {each.kind: each.compared for each in found.kinds}
        assert compared["gradient"] > 0
        assert compared["parameter"] > 0
        assert ("output" in compared) == ("pp" not in split)
        assert bool(found.notes) == ("pp" in split)
