"""Training in fp16: steps that overflow are left out, and the scale survives a checkpoint."""

from __future__ import annotations

import pytest
import torch

from airflow_training.execution import ExecutionPlan, distribute
from airflow_training.execution.loss_scale import LossScale

pytestmark = pytest.mark.e2e


def held(value: float) -> torch.optim.Optimizer:
    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([value, 1.0])
    return torch.optim.SGD([parameter], lr=1.0)


def test_an_overflow_halves_the_scale_and_leaves_the_step_out():
    scale = LossScale()
    before = scale.value
    assert not scale.unscale(held(float("inf")))
    assert scale.value == before / 2


def test_gradients_are_those_of_the_loss_itself():
    scale, optimizer = LossScale(), held(4.0)
    assert scale.unscale(optimizer)
    grad = optimizer.param_groups[0]["params"][0].grad
    assert torch.equal(grad * scale.value, torch.tensor([4.0, 1.0]))


def test_the_scale_goes_on_from_a_checkpoint():
    scale, other = LossScale(), LossScale()
    scale.unscale(held(float("nan")))
    other.load_state_dict(scale.state_dict())
    assert (other.value, other.steps) == (scale.value, scale.steps)


def test_fp16_trains_as_torchs_own_scaler_does():
    data = [(torch.randn(8, 16), torch.randint(0, 4, (8,))) for _ in range(4)]

    def module() -> torch.nn.Module:
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))

    def optimizer(parameters):
        return torch.optim.SGD(parameters, lr=0.1)

    training = distribute(
        module(),
        loss=torch.nn.functional.cross_entropy,
        optimizer=optimizer,
        example=data[0],
        plan=ExecutionPlan(global_batch=8, micro_batch=8, precision="fp16"),
    )
    by_hand = module()
    update, scaler = optimizer(by_hand.parameters()), torch.amp.GradScaler("cpu")
    for inputs, target in data:
        loss = training.step((inputs, target))
        update.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            output = by_hand(inputs)
        expected = torch.nn.functional.cross_entropy(output.float(), target)
        scaler.scale(expected).backward()
        scaler.step(update)
        scaler.update()
        assert torch.equal(loss, expected.detach())
    found = training.gather()
    assert all(torch.equal(found[name], each) for name, each in by_hand.named_parameters())
