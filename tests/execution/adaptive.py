"""A plain module that is trained by a plan while its cluster changes, and what tests look at meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from airflow_training.checkpoints.sampler import ResumableSampler

__all__ = [
    "BATCH",
    "MODULE",
    "assert_trained_as_on_one_device",
    "losses",
    "never_interrupted",
    "process_of",
    "write_cluster",
]

SAMPLES, BATCH = 96, 24
"""24 samples are whole micro-batches for three replicas, and for four."""
MODULE = f"""
import time

import torch
from torch import nn


class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 8))

    def forward(self, x):
        return self.layers(x).mean(1)


def example():
    return Pooled(), (torch.zeros(4, 64, 16),)


loss = nn.functional.cross_entropy


def optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=0.01)


class Samples(list):
    def __getitem__(self, number):
        time.sleep(0.3 / {BATCH})  # as reading it from somewhere takes: each step is reported
        return super().__getitem__(number)


def data():
    draw = torch.Generator().manual_seed(1)
    return Samples(
        (torch.randn(64, 16, generator=draw), torch.randint(0, 8, (), generator=draw)) for _ in range({SAMPLES})
    )
"""


def write_cluster(path: Path, nodes: int) -> None:
    """Let the cluster of a file have so many nodes from now on: each is a device that takes its time."""
    device = {
        "name": "slow",
        "memory_bytes": 1.0e9,
        "memory_bandwidth": 1.0e9,
        "peak_flops": {"fp32": 2.0e8},
        "matmul_efficiency": 1.0,
        "units": 1,
        "launch_seconds": 0.0,
        "context_bytes": 0.0,
    }
    group = {"name": "cpus", "count": nodes, "device": device, "devices_per_node": 1, "intra_node": "shared-memory", "nic_gbit_s": 100}  # fmt: skip
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"name": "ours", "nodes": [group]}))
    fresh.replace(path)


def process_of(place: Path, role: str, index: int) -> int:
    """Return the process that trains as an instance: the youngest with its environment, which names `place`."""
    marks = {f"TRAINING_ROLE={role}".encode(), f"TRAINING_INDEX={index}".encode()}
    found = []
    for entry in Path("/proc").iterdir():
        try:
            said = set((entry / "environ").read_bytes().split(b"\0"))
            words = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        here = any(str(place).encode() in each for each in said)
        if here and marks <= said and b"execution.runner" in words and b"agent.pyz" not in words:
            found.append(int(entry.name))
    return max(found)


def losses(place: Path) -> dict[int, set[float]]:
    """Return all losses that any instance reported below a folder, by the steps that were done."""
    told: dict[int, set[float]] = {}
    for path in place.rglob("progress.jsonl"):
        for text in path.read_text().splitlines():
            line = json.loads(text)
            if "metrics" in line:
                told.setdefault(line["step"], set()).add(line["metrics"]["loss"])
    return told


def never_interrupted(steps: int, *, module: str = MODULE) -> tuple[list[float], dict[str, Any]]:
    """Train in fp64 in one process with nothing of this project but the order of samples: losses, and weights."""
    import torch

    names: dict[str, Any] = {"__name__": "plain"}
    exec(module, names)
    torch.manual_seed(0)
    model = names["example"]()[0].double()
    update = names["optimizer"](model.parameters())
    samples = list(list.__iter__(names["data"]()))
    order = ResumableSampler(
        len(samples), batch_size=BATCH, seed=0, rank=0, world=1, drop_last=True
    )
    losses: list[float] = []
    while len(losses) < steps:
        for chosen in order:
            update.zero_grad()
            x = torch.stack([samples[number][0] for number in chosen]).double()
            y = torch.stack([samples[number][1] for number in chosen])
            found = names["loss"](model(x), y)
            found.backward()
            update.step()
            order.advance()
            losses.append(float(found.detach()))
            if len(losses) == steps:
                break
    return losses, dict(model.state_dict())


def assert_trained_as_on_one_device(
    trained: Path, steps: int, *, module: str = MODULE
) -> list[float]:
    """Compare the weights in a folder with those of a training that nothing interrupted; return its losses."""
    import torch

    serial, weights = never_interrupted(steps, module=module)
    found = torch.load(trained / "model.pt", weights_only=True)
    for name, tensor in weights.items():
        assert float((found[name] - tensor).norm() / tensor.norm()) <= 1e-10, name
    return serial
