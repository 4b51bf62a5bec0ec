"""A training that knows nothing of parallelism: what a plan with `engine` trains, and the loop that everybody writes."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

SAMPLES, BATCH = 70, 16
"""Six samples of an epoch fill no batch."""


def example() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    layers = [nn.Sequential(nn.Linear(16, 16), nn.GELU()) for _ in range(4)]
    return nn.Sequential(*layers, nn.Linear(16, 8)), (torch.zeros(4, 16),)


def dropping() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Make a module that draws random numbers."""
    first = [nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 16), nn.Dropout(0.5)]
    return nn.Sequential(*first, nn.LayerNorm(16), nn.Linear(16, 8)), (torch.zeros(4, 16),)


loss = nn.functional.cross_entropy


def optimizer(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.01)


def data() -> list[Any]:
    draw = torch.Generator().manual_seed(1)
    return [
        (torch.randn(16, generator=draw), torch.randint(0, 8, (), generator=draw))
        for _ in range(SAMPLES)
    ]


def train_serially(*, seed: int, epochs: int, micro_batch: int) -> tuple[float, dict[str, Any]]:
    """Train in fp64 with nothing of this project but the order of samples; return last loss and weights."""
    from airflow_training.checkpoints.sampler import ResumableSampler

    torch.manual_seed(seed)
    model = example()[0].double()
    steps = optimizer(model.parameters())
    samples = data()
    order = ResumableSampler(SAMPLES, batch_size=BATCH, seed=seed, rank=0, world=1, drop_last=True)
    total = 0.0
    for _ in range(epochs):
        for chosen in order:
            steps.zero_grad()
            total = 0.0
            for start in range(0, BATCH, micro_batch):
                numbers = chosen[start : start + micro_batch]
                x = torch.stack([samples[number][0] for number in numbers]).double()
                y = torch.stack([samples[number][1] for number in numbers])
                part = loss(model(x), y) * micro_batch / BATCH
                part.backward()
                total += float(part.detach())
            steps.step()
            order.advance()
    return total, dict(model.state_dict())
