"""A training whose passes take a known time for each sample, more of it on one rank: as on devices of several kinds."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from airflow_training.execution import ExecutionPlan, distribute

WIDTH = 8
SECONDS = 0.001
"""For a sample and a forward pass; backward takes twice as long."""


class _Rest(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor, seconds: float) -> torch.Tensor:
        context.seconds = seconds * len(x)
        time.sleep(context.seconds)
        return x.clone()

    @staticmethod
    def backward(context: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        time.sleep(2 * context.seconds)
        return grad, None


class SlowedLayer(nn.Module):
    """Takes `factor` times as long on one rank, once training has begun."""

    def __init__(self, rank: int, factor: float, seconds: float) -> None:
        super().__init__()
        self.weight = nn.Linear(WIDTH, WIDTH)
        here = dist.get_rank() if dist.is_initialized() else -1
        self.seconds = seconds * (factor if here == rank else 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = _Rest.apply(self.weight(x), self.seconds)
        return found


def make_model(rank: int, factor: float, seconds: float) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), SlowedLayer(rank, factor, seconds))


def batch(step: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(step)
    both = [torch.randn(size, WIDTH, generator=draw, dtype=torch.float64) for _ in range(2)]
    return both[0], both[1]


def optimizer(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.01)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a training was like on one rank."""

    samples: list[tuple[int, ...]]
    """Of each replica in a pass, after each step."""
    seconds: list[float]
    """Of each step."""
    losses: list[float]
    weights: dict[str, list[float]]


def distance(one: Any, other: Any) -> float:
    """Return the largest difference of weights, relative to the tensor's norm."""
    assert one.keys() == other.keys()
    tensors = [
        (
            torch.tensor(one[name], dtype=torch.float64),
            torch.tensor(other[name], dtype=torch.float64),
        )
        for name in one
    ]
    return max(float((a - b).norm() / b.norm()) for a, b in tensors)


def train(
    plan: ExecutionPlan,
    steps: int,
    *,
    rebalance: float | None,
    factor: float = 2.0,
    seconds: float = SECONDS,
    more: int | None = None,
) -> Run:
    """Train on this rank, of which the last one is slow; no more than `more` steps after the samples were dealt out anew."""
    training = distribute(
        make_model(plan.devices - 1, factor, seconds),
        loss=nn.functional.mse_loss,
        optimizer=optimizer,
        example=batch(0, plan.global_batch),
        plan=plan,
        rebalance=rebalance,
    )
    samples, taken, losses = [], [], []
    for step in range(steps):
        given = batch(step, plan.global_batch)
        begun = time.perf_counter()
        losses.append(float(training.step(given)))
        taken.append(time.perf_counter() - begun)
        samples.append(training.replica_samples)
        if more is not None and samples[-1 - more :].count(plan.samples) == 0:
            break
    weights = {name: each.double().flatten().tolist() for name, each in training.gather().items()}
    return Run(samples=samples, seconds=taken, losses=losses, weights=weights)


def train_serially(plan: ExecutionPlan, steps: int) -> tuple[list[float], dict[str, list[float]]]:
    """Train on one device with nothing of this project, by micro-batches of all replicas."""
    model = make_model(-2, 1, 0).double()
    update, losses = optimizer(model.parameters()), []
    for step in range(steps):
        x, y = batch(step, plan.global_batch)
        size = plan.micro_batch * plan.dp
        update.zero_grad()
        total = 0.0
        for start in range(0, plan.global_batch, size):
            rows = slice(start, start + size)
            loss = nn.functional.mse_loss(model(x[rows]), y[rows]) * size / plan.global_batch
            loss.backward()
            total += float(loss.detach())
        update.step()
        losses.append(total)
    return losses, {name: each.flatten().tolist() for name, each in model.named_parameters()}
