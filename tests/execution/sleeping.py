"""A model whose layers take a time that is known: an operator that sleeps, forward once and backward twice as long."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn

FORWARD_SECONDS = 0.05
"""Long against what a pass takes besides, on a machine that others use too."""


@torch.library.custom_op("sleeping::rest", mutates_args=())
def rest(x: torch.Tensor) -> torch.Tensor:
    time.sleep(FORWARD_SECONDS)
    return x.clone()


@torch.library.custom_op("sleeping::rest_twice", mutates_args=())
def rest_twice(grad: torch.Tensor) -> torch.Tensor:
    time.sleep(2 * FORWARD_SECONDS)
    return grad.clone()


@rest.register_fake
def _rest(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@rest_twice.register_fake
def _rest_twice(grad: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(grad)


def _backward(_: Any, grad: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = rest_twice(grad)
    return found


rest.register_autograd(_backward)


class SleepingLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rest(self.weight(x))  # type: ignore[no-any-return]


def make_model(layers: int) -> nn.Module:
    """Make so many layers of equal time, behind one that takes none: the planner's view tells the first layer apart."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), *(SleepingLayer() for _ in range(layers)))
