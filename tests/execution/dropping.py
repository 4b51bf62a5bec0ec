"""Models that draw random numbers: in modules and functions of torch, in attention, and in one module several times."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from airflow_training.errors import InputError
from airflow_training.execution import ExecutionPlan, distribute
from tests.execution.ranks import STEPS, make_optimizer
from tests.execution.zoo import CLASSES, WIDTH, ZOO, cross_entropy


class Block(nn.Module):
    """Drops by a module that it calls twice, and by a function."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)
        self.drop = nn.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        inner = functional.dropout(self.up(x).tanh(), 0.2, self.training)
        found: Tensor = x + self.drop(self.down(self.drop(inner)))
        return found


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(6))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        found: Tensor = self.head(x)
        return found


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, dropout=0.2, batch_first=True)
            for _ in range(2)
        )
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        found: Tensor = self.head(x)
        return found


class Noisy(nn.Module):
    """Adds normal noise, and drops whole channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.drop, self.head = nn.Dropout2d(0.4), nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(self.first(x + 0.1 * torch.randn_like(x)).relu())
        found: Tensor = self.head(self.second(x).mean((2, 3)))
        return found


class AcrossSamples(nn.Module):
    """Drops with samples along dimension 1: what it draws is not known by sample."""

    def __init__(self) -> None:
        super().__init__()
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.drop(x.transpose(0, 1)).transpose(0, 1))
        return found


class Shuffling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(x[:, torch.randperm(x.shape[1])])
        return found


# a model, and whose data it takes
DROPPING: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "blocks": (Blocks, "mlp"),
    "encoder": (Encoder, "encoder"),
    "noisy": (Noisy, "cnn"),
    "across": (AcrossSamples, "encoder"),
    "shuffling": (Shuffling, "mlp"),
}


Outcome = dict[str, list[float]]
"""The losses and all weights."""


def train(name: str, plan: ExecutionPlan | None) -> Outcome | str:
    """Train a model by a plan, or by none; return why where that is refused."""
    make, data = DROPPING[name]
    torch.manual_seed(0)
    try:
        training = distribute(
            make().double(),
            loss=cross_entropy,
            optimizer=make_optimizer("fp64"),
            example=ZOO[data].batch(0),
            plan=plan,
        )
    except InputError as error:
        return str(error)
    losses = [float(training.step(ZOO[data].batch(step))) for step in range(STEPS)]
    weights = {key: each.flatten().tolist() for key, each in training.gather().items()}
    return {"loss": losses, **weights}


def train_all(cases: Sequence[tuple[str, ExecutionPlan]]) -> list[Outcome | str]:
    return [train(name, plan) for name, plan in cases]
