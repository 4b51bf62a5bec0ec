"""A configuration in YAML becomes dataclasses, and values of the command line go before it; logging into a file."""

import logging
import os
import sys
from dataclasses import asdict, dataclass, field

import numpy as np
import torch
import yaml
from torch import nn


@dataclass
class ModelConfig:
    width: int = 16
    depth: int = 1


@dataclass
class Config:
    model: ModelConfig = field(default_factory=ModelConfig)
    optimizer: dict = field(default_factory=dict)
    data: dict = field(default_factory=dict)
    epochs: int = 1


def read(path, overrides):
    with open(path) as file:
        document = yaml.safe_load(file)
    for each in overrides:
        name, value = each.split("=", 1)
        *above, last = name.split(".")
        place = document
        for part in above:
            place = place[part]
        place[last] = yaml.safe_load(value)
    return Config(**{**document, "model": ModelConfig(**document["model"])})


config = read(sys.argv[1], sys.argv[2:])
os.makedirs("runs/first", exist_ok=True)
logging.basicConfig(filename="runs/first/train.log", level=logging.INFO, format="%(message)s")
with open("runs/first/config.yaml", "w") as file:
    yaml.safe_dump(asdict(config), file)
torch.manual_seed(6)
values = torch.from_numpy(np.load(config.data["path"], mmap_mode="r").copy())
layers = []
for number in range(config.model.depth):
    layers += [nn.Linear(6 if number == 0 else config.model.width, config.model.width), nn.ELU()]
model = nn.Sequential(*layers, nn.Linear(config.model.width, 1))
kind = getattr(torch.optim, config.optimizer["name"])
optimizer = kind(model.parameters(), lr=config.optimizer["lr"])
for epoch in range(config.epochs):
    for batch in values[torch.randperm(len(values))].split(config.data["batch"]):
        loss = (model(batch).squeeze(1) - batch.prod(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    logging.info("epoch %d loss %r", epoch, loss.item())
    print(f"epoch {epoch} loss {loss.item()!r}")
torch.save(model, "runs/first/whole-model.pt")
