"""What a step keeps while its backward pass runs."""

from __future__ import annotations

import weakref

import pytest
import torch

from airflow_training.execution import distribute

pytestmark = pytest.mark.e2e


def test_the_output_is_let_go_before_the_backward_pass():
    """A language model's logits in fp32 are often the largest tensor of a step."""
    alive: list[bool] = []
    model = torch.nn.Linear(4, 4)
    outputs: list[weakref.ref[torch.Tensor]] = []

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        outputs.append(weakref.ref(output))
        return (output - target).abs().mean()

    batch = torch.ones(2, 4), torch.zeros(2, 4)
    training = distribute(
        model, loss=loss, optimizer=lambda own: torch.optim.SGD(own, lr=0.1), example=batch
    )
    model.weight.register_hook(lambda _: alive.append(outputs[-1]() is not None))
    training.step(batch)
    assert alive[-1] is False
