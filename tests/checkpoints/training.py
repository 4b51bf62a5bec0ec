"""A small training whose every loss depends on all that a checkpoint holds, and processes that run it.

It uses dropout and noise from Python, numpy and torch, batch normalisation, a buffer that is not persistent,
momentum, a schedule, a gradient scaler, averaged weights, an order of samples that depends on the epoch, and
values and a generator beside all that.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import random
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from airflow_training.checkpoints import reading, tree
from airflow_training.checkpoints.checkpointer import Checkpointer
from airflow_training.checkpoints.torch_state import TrainingObjects, capture
from tests.ports import free_port
from tests.waiting import PATIENCE

SAMPLES, BATCH = 48, 8

torch.optim.SGD([torch.zeros(1)])  # what torch imports now need not be imported by every process


class Order:
    """The samples of an epoch in an order that follows from its number; the state is a cursor."""

    def __init__(self) -> None:
        self.epoch = self.position = 0

    def take(self) -> np.ndarray:
        if self.position >= SAMPLES:
            self.epoch, self.position = self.epoch + 1, 0
        order = np.random.RandomState(self.epoch).permutation(SAMPLES)
        self.position += BATCH
        return order[self.position - BATCH : self.position]

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self.epoch, self.position = state["epoch"], state["position"]


class Network(nn.Module):
    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.Tanh(), nn.Linear(16, 1)
        )
        self.register_buffer("calls", torch.zeros(()), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        y: torch.Tensor = self.inner(x)
        return y * (1 + self.calls / 1000)


class Training:
    """All objects of the training; `parts` are what is saved of it."""

    def __init__(self, *, distributed: bool = False, seed: int = 0) -> None:
        rank = dist.get_rank() if distributed else 0
        random.seed(seed + rank)
        np.random.seed(seed + rank)
        torch.manual_seed(seed)
        self.network = Network()
        torch.manual_seed(seed + rank)
        # without this, DDP sorts its buckets anew after the first step of a process: with four ranks the
        # same gradients are then summed in another order
        self.model = (
            DistributedDataParallel(self.network, find_unused_parameters=True)
            if distributed
            else self.network
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.02)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 40)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=3)
        self.ema = torch.optim.swa_utils.AveragedModel(
            self.network, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
        )
        self.order = Order()
        self.extra: dict[str, Any] = {"sum": 0.0, "generator": torch.Generator().manual_seed(seed)}
        generator = torch.Generator().manual_seed(7)
        self.x = torch.randn(SAMPLES, 6, generator=generator)
        self.y = self.x.square().sum(1, keepdim=True) + torch.randn(SAMPLES, 1, generator=generator)

    def given(self) -> dict[str, Any]:
        """Return what a Checkpointer is given."""
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "scheduler": self.scheduler,
            "scaler": self.scaler,
            "data": self.order,
            "ema": self.ema,
            "extra": self.extra,
        }

    def step(self) -> float:
        chosen = torch.from_numpy(self.order.take())
        x = self.x[chosen] + 0.1 * random.random() + 0.1 * float(np.random.rand())
        x = x + 0.1 * torch.randn(x.shape, generator=self.extra["generator"])
        loss = (self.model(x) - self.y[chosen]).square().mean()
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.scheduler.step()
        self.ema.update_parameters(self.network)
        self.extra["sum"] += float(loss.item())
        return float(loss.item())

    def digest(self) -> str:
        """Return the digest of the full state."""
        return digest_of(capture(TrainingObjects(**self.given())))


def digest_of(state: Any) -> str:
    document, blobs = tree.encode(state)
    content = hashlib.sha256(json.dumps(document, sort_keys=True).encode())
    for name, blob in sorted(blobs.items()):
        content.update(name.encode())
        content.update(blob)
    return content.hexdigest()


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One process of a training, and where it finds the others."""

    rank: int
    world: int
    port: int
    folder: Path
    """`root` in it holds the checkpoints, `notes` what ranks note."""

    def join(self) -> None:
        torch.set_num_threads(1)
        if self.world > 1:
            dist.init_process_group(
                "gloo",
                init_method=f"tcp://127.0.0.1:{self.port}",
                rank=self.rank,
                world_size=self.world,
            )

    def leave(self) -> None:
        if self.world > 1:
            dist.destroy_process_group()

    def note(self, **values: Any) -> None:
        with (self.folder / "notes" / f"{self.rank}.jsonl").open("a") as file:
            file.write(json.dumps(values) + "\n")


def train(me: Rank, total: int, every: int, kill: int = -1) -> None:
    """Train up to step `total`; note losses and the last digest; the last rank dies in step `kill`.

    A process that has something to go on from begins with another seed: nothing may come from there.
    """
    begun = reading.newest(str(me.folder / "root")) is not None
    me.join()
    training = Training(distributed=me.world > 1, seed=99 if begun else 0)
    checkpointer = Checkpointer(**training.given(), root=me.folder / "root", every={"steps": every})
    for step in range(checkpointer.restore(), total):
        loss = training.step()
        if step == kill and me.rank == me.world - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        me.note(step=step, loss=loss)
        checkpointer.step(step)
    checkpointer.close()
    me.note(digest=training.digest())
    me.leave()


def processes(work: Callable[..., None], world: int, folder: Path, *arguments: Any) -> list[int]:
    """Run `work(Rank, *arguments)` in each rank; return exit codes. When the last one dies, all others do."""
    context = multiprocessing.get_context("forkserver")
    (folder / "notes").mkdir(parents=True, exist_ok=True)
    port = free_port()
    ranks = [
        context.Process(
            target=work, args=(Rank(rank=rank, world=world, port=port, folder=folder), *arguments)
        )
        for rank in range(world)
    ]
    for process in ranks:
        process.start()
    ranks[-1].join(PATIENCE)
    for process in ranks:
        process.join(0 if (ranks[-1].exitcode or 0) < 0 else PATIENCE)
        if process.is_alive():
            process.kill()
        process.join()
    return [process.exitcode if process.exitcode is not None else 1 for process in ranks]


def noted(folder: Path, rank: int) -> list[dict[str, Any]]:
    """Return the notes of a rank."""
    lines = (folder / "notes" / f"{rank}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def broken_off(folder: Path, world: int, *, total: int, every: int, kills: Sequence[int]) -> None:
    """Train with a kill in each of these steps, and then to the end."""
    for kill in kills:
        assert processes(train, world, folder, total, every, kill)[-1] == -signal.SIGKILL
    assert processes(train, world, folder, total, every) == [0] * world


def course(folder: Path, rank: int) -> tuple[list[float], str]:
    """Return the loss of each step and the last digest; a step that ran twice must have come out equal."""
    losses: dict[int, float] = {}
    digest = ""
    for note in noted(folder, rank):
        digest = note.get("digest", digest)
        if "step" in note and losses.setdefault(note["step"], note["loss"]) != note["loss"]:
            return [], f"step {note['step']} came out differently when it was repeated"
    return [loss for _, loss in sorted(losses.items())], digest
