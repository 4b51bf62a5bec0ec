"""A model whose layers take a time that is known: an operator that sleeps, backward a multiple of forward."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn

FORWARD_SECONDS = 0.05
"""Long against what a pass takes besides, on a machine that others use too."""


@torch.library.custom_op("sleeping::rest", mutates_args=())
def rest(x: torch.Tensor, backward: int) -> torch.Tensor:
    time.sleep(FORWARD_SECONDS)
    return x.clone()


@torch.library.custom_op("sleeping::rest_again", mutates_args=())
def rest_again(grad: torch.Tensor, times: int) -> torch.Tensor:
    time.sleep(times * FORWARD_SECONDS)
    return grad.clone()


@rest.register_fake
def _rest(x: torch.Tensor, backward: int) -> torch.Tensor:
    return torch.empty_like(x)


@rest_again.register_fake
def _rest_again(grad: torch.Tensor, times: int) -> torch.Tensor:
    return torch.empty_like(grad)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.times = inputs[1]


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
    return rest_again(grad, ctx.times), None


rest.register_autograd(_backward, setup_context=_keep)


class SleepingLayer(nn.Module):
    def __init__(self, backward: int) -> None:
        super().__init__()
        self.weight = nn.Linear(8, 8)
        self.backward = backward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rest(self.weight(x), self.backward)  # type: ignore[no-any-return]


def make_model(layers: int, backward: int = 2) -> nn.Module:
    """Make so many layers of equal time, behind one that takes none: the planner's view tells the first layer apart."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), *(SleepingLayer(backward) for _ in range(layers)))
