"""Timelines of real steps: what torch's profiler records, with stages that take a known time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from airflow_training.execution import ExecutionPlan, distribute
from airflow_training.execution.timeline import Timeline
from tests.execution.delaying import delay_sends
from tests.execution.ranks import call_ranks, make, make_optimizer
from tests.execution.sleeping import FORWARD_SECONDS, make_model
from tests.execution.zoo import BATCH, ZOO, cross_entropy

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

STEPS = 3


def record(plan: ExecutionPlan, path: str, layers: int = 0):
    """Record steps on this rank: of sleeping layers, or else of a GPT of the zoo."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(plan.global_batch, 8, generator=generator)
    batch = (x, x)
    loss: Any = nn.functional.mse_loss
    model = make_model(layers) if layers else make("gpt")
    if not layers:
        batch, loss = ZOO["gpt"].batch(0), cross_entropy
    training = distribute(
        model, loss=loss, optimizer=make_optimizer("fp32"), example=batch, plan=plan
    )
    training.step(batch)
    before = training.gather()
    with training.timeline(path) as timeline:
        for _ in range(STEPS):
            training.step(batch)
    training.step(batch)  # nothing of the recording is left
    assert any((before[name] != each).any() for name, each in training.gather().items())
    return timeline


SPLITS = [{"pp": 2}, {"pp": 2, "virtual_stages": 2}, {"dp": 2}, {"tp": 2}, {"dp": 2, "zero": 3}]


def planned(split):
    return ExecutionPlan(global_batch=BATCH, micro_batch=4, **split)


def record_all(folder: str):
    return [
        record(planned(split), f"{folder}/trace-{number}.json")
        for number, split in enumerate(SPLITS)
    ]


def test_steps_are_divided_and_traced_on_all_ranks(tmp_path):
    first, second = call_ranks(2, record_all, str(tmp_path))
    assert [each.fractions for each in first] == [each.fractions for each in second]
    for number, (split, timeline) in enumerate(zip(SPLITS, first, strict=True)):
        check(planned(split), timeline, tmp_path / f"trace-{number}.json")


def check(plan: ExecutionPlan, timeline: Timeline, path: Path) -> None:
    for each in (timeline.fractions, *timeline.ranks):
        assert each is not None
        parts = (each.computing, each.communicating, each.bubble, each.other)
        assert sum(parts) == pytest.approx(1)
        assert all(part >= 0 for part in parts)
        assert each.computing > 0
        assert (each.bubble > 0) == (plan.pp > 1)
    trace = json.loads(path.read_text())["traceEvents"]
    for rank in (0, 1):
        own = [each for each in trace if each["pid"] == rank]
        passes = [each for each in own if each.get("cat") == "pass"]
        stages = plan.virtual_stages if plan.pp > 1 else 1
        assert len(passes) == STEPS * 2 * stages * plan.micro_batches
        assert len([each for each in own if each.get("cat") == "step"]) == STEPS
        kind = "transfer" if plan.pp > 1 else "collective"
        assert any(each.get("cat") == kind for each in own)


def test_a_training_on_one_device_has_no_bubble(tmp_path):
    plan = ExecutionPlan(global_batch=8, micro_batch=4)
    path = tmp_path / "plan.json"
    lines = [{"name": "compute", "value": 3.0}, {"name": "runtime", "value": 1.0}]
    strategy = {"global_batch": 8, "micro_batch": 4}
    path.write_text(json.dumps({"strategy": strategy, "breakdown": {"time_s": lines}}))
    batch = (torch.ones(8, 8), torch.ones(8, 8))
    training = distribute(
        make_model(2),
        loss=nn.functional.mse_loss,
        optimizer=make_optimizer("fp32"),
        example=batch,
        plan=path,
    )
    assert training.plan == plan
    with training.timeline(tmp_path / "trace.json") as timeline:
        training.step(batch)
    assert timeline.fractions.bubble == timeline.fractions.communicating == 0
    assert timeline.fractions.computing > 0.5
    assert timeline.planned.computing == 0.75
    assert "planned" in str(timeline)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("stages", "micro_batches", "more"),
    [
        (2, 4, {"schedule": "gpipe"}),
        (2, 4, {}),
        (2, 8, {}),
        (4, 8, {}),
        (4, 8, {"schedule": "gpipe"}),
    ],
)
def test_the_bubble_of_equal_stages_is_within_a_tenth_of_its_formula(
    stages, micro_batches, more, tmp_path
):
    plan = ExecutionPlan(global_batch=micro_batches, micro_batch=1, pp=stages, **more)
    timelines = call_ranks(stages, record, plan, str(tmp_path / "trace.json"), stages)
    found = timelines[0].fractions
    expected = (stages - 1) / (micro_batches + stages - 1)
    measured = found.bubble / (found.bubble + found.computing)
    print(
        f"{stages} stages, {micro_batches} micro-batches, {more}: {measured:.3f} of {expected:.3f}"
    )
    assert measured == pytest.approx(expected, rel=0.1)


def visible_communication(plan: ExecutionPlan, path: str, layers: int, blocking: bool) -> float:
    """Return what of a step nothing hides of slow transfers, as a multiple of the time computed."""
    with delay_sends(FORWARD_SECONDS / 2, blocking=blocking):
        found = record(plan, path, layers).fractions
    return float(found.communicating / found.computing)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("stages", "more"),
    [(2, {"schedule": "gpipe"}), (2, {"schedule": "interleaved", "virtual_stages": 2})],
)
def test_transfers_on_a_slow_link_are_hidden_behind_passes(stages, more, tmp_path):
    """By the schedules that send while they compute; torch's 1F1B waits for each transfer."""
    plan = ExecutionPlan(global_batch=8, micro_batch=1, pp=stages, **more)
    layers = stages * plan.virtual_stages
    hidden, waited = (
        call_ranks(
            stages, visible_communication, plan, str(tmp_path / "trace.json"), layers, blocking
        )[0]
        for blocking in (False, True)
    )
    print(
        f"{more}: {hidden:.3f} visible, {waited:.3f} where the sender waits: {hidden / waited:.0%}"
    )
    assert hidden <= 0.3 * waited
