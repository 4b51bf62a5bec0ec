"""A plain module that is trained by its plan while its cluster shrinks and grows: nobody's process is lost but the one that is killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_training.checkpoints.sampler import ResumableSampler

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(540)]

STEPS, SAMPLES, BATCH = 200, 96, 24
"""24 samples are whole micro-batches for three replicas, and for four; there are so many steps that a fourth one pays."""
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


def write_cluster(nodes: int) -> None:
    """Let the cluster have so many nodes from now on: each is a device that takes its time."""
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
    fresh = Path("cluster.new")
    fresh.write_text(json.dumps({"name": "ours", "nodes": [group]}))
    fresh.replace("cluster.json")


def plain_job() -> dict[str, Any]:
    """Write a module that knows nothing of parallelism; return its job, whose split is the planner's."""
    Path("train.py").write_text(MODULE)
    write_cluster(4)
    root = str(Path(__file__).resolve().parents[2])
    return {
        "apiVersion": "airflow-training/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "adaptive"},
        "spec": {
            "framework": "pytorch",
            "runtime": {"name": "local"},
            "reconcileSeconds": 1,
            "roles": [{"name": "master"}, {"name": "worker"}],
            "env": [
                {"name": "PYTHONPATH", "value": root},
                {"name": "OMP_NUM_THREADS", "value": "1"},
            ],
            # its place is gone: nothing comes back before the plan has changed
            "restart": {"scope": "Instance", "backoff": {"initialSeconds": 60}},
            "checkpoint": {"uri": "ckpt", "everySteps": 50},
            "output": {"uri": "trained"},
            "plan": {
                "model": "train:example",
                "cluster": "cluster.json",
                "globalBatch": BATCH,
                "constraints": {"tp": 1, "zero": 0},
                "apply": ["replicas", "env", "microBatch", "engine"],
                "engine": {"steps": STEPS, "precision": "fp64"},
            },
        },
    }


def process_of(home: Path, role: str, index: int) -> int:
    """Return the process that trains as an instance: the youngest with its environment."""
    marks = {f"TRAINING_ROLE={role}".encode(), f"TRAINING_INDEX={index}".encode()}
    found = []
    for entry in Path("/proc").iterdir():
        try:
            said = set((entry / "environ").read_bytes().split(b"\0"))
            words = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        here = any(str(home).encode() in each for each in said)
        if here and marks <= said and b"execution.runner" in words:
            found.append(int(entry.name))
    return max(found)


def losses(home: Path) -> dict[int, set[float]]:
    """Return all losses that any instance reported, by the steps that were done."""
    told: dict[int, set[float]] = {}
    for path in home.rglob("progress.jsonl"):
        for text in path.read_text().splitlines():
            line = json.loads(text)
            if "metrics" in line:
                told.setdefault(line["step"], set()).add(line["metrics"]["loss"])
    return told


def never_interrupted() -> tuple[list[float], dict[str, Any]]:
    """Train in fp64 in one process with nothing of this project but the order of samples: losses, and weights."""
    import torch

    module: dict[str, Any] = {}
    exec(MODULE, module)
    torch.manual_seed(0)
    model = module["example"]()[0].double()
    update = module["optimizer"](model.parameters())
    samples = list(list.__iter__(module["data"]()))
    order = ResumableSampler(SAMPLES, batch_size=BATCH, seed=0, rank=0, world=1, drop_last=True)
    losses: list[float] = []
    while len(losses) < STEPS:
        for chosen in order:
            update.zero_grad()
            x = torch.stack([samples[number][0] for number in chosen]).double()
            y = torch.stack([samples[number][1] for number in chosen])
            found = module["loss"](model(x), y)
            found.backward()
            update.step()
            order.advance()
            losses.append(float(found.detach()))
            if len(losses) == STEPS:
                break
    return losses, dict(model.state_dict())


def test_ranks_follow_a_cluster_that_shrinks_and_grows_and_learn_what_one_device_learns(
    command: Callable[..., Any], background: Callable[..., Any], home: Path
) -> None:
    import torch

    Path("job.yaml").write_text(yaml.safe_dump(plain_job()))
    run = background("run", "job.yaml", "--run-id", "one", "-o", "json")

    def step() -> int:
        return max(losses(home), default=0)

    def told(reason: str) -> list[dict[str, Any]]:
        events = json.loads(command("events", "one", "-o", "json").stdout)["events"]
        return [event["data"] for event in events if event["reason"] == reason]

    run.until(lambda: step() >= 6)
    survivors = {
        key: process_of(home, *key) for key in (("master", 0), ("worker", 0), ("worker", 2))
    }
    write_cluster(3)
    os.kill(process_of(home, "worker", 1), signal.SIGKILL)
    run.until(lambda: len(told("Regrouped")) == 1)
    write_cluster(4)
    run.until(lambda: len(told("Regrouped")) == 2)
    assert {key: process_of(home, *key) for key in survivors} == survivors
    run.until(lambda: step() >= STEPS)
    out, err = run.communicate()
    assert run.returncode == 0, err

    done = json.loads(out)
    assert sum(done["restarts"].values()) == 1, (
        "of the instance that was killed, and none for growth"
    )
    assert done["job_attempt"] == 0
    assert [each["revision"] for each in told("Replanned")] == [1, 2]
    shrunk, grown = told("Regrouped")
    assert (shrunk["ranks"], shrunk["lost_steps"], shrunk["revision"]) == (3, 0, 1)
    assert (grown["ranks"], grown["lost_steps"], grown["revision"]) == (4, 0, 2)
    assert (shrunk["moved_bytes"], shrunk["expected"]["lost_steps"]) == (0, 0)
    assert grown["moved_bytes"] > 0
    assert grown["expected"]["moved_bytes"] > 0

    serial, weights = never_interrupted()
    found = losses(home)
    assert set(found) == set(range(1, STEPS + 1))
    for number, each in found.items():
        assert all(value == pytest.approx(serial[number - 1], rel=1e-10) for value in each), number
    trained = torch.load("trained/model.pt", weights_only=True)
    for name, tensor in weights.items():
        assert float((trained[name] - tensor).norm() / tensor.norm()) <= 1e-10, name
    shutil.rmtree("ckpt")
