"""What saving costs a training, against torch's own asynchronous save, and whether a killed one ends the same.

Costs are those of this process: a model of 25 million parameters with AdamW (300 MB of state) on one core, saved
to a local disk. Resume: a small training that depends on every piece of state, killed with SIGKILL in each of 50
steps in turn.
"""

from __future__ import annotations

import itertools
import logging
import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict_saver import async_save

from airflow_training.checkpoints import saver
from airflow_training.checkpoints.checkpointer import Checkpointer
from airflow_training.checkpoints.interval import SaveCost
from benchmarks import recovery_goodput
from benchmarks.report import figure, heading, median
from tests.checkpoints.training import broken_off, course

SECONDS = 180.0
"""How long the training runs whose overhead is measured."""
PAIRS = 12
KILLS = range(10, 60)
STEPS = 120


class Work:
    """Steps of a training: a stack of layers and AdamW."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        layers = [torch.nn.Linear(1000, 1000) for _ in range(25)]
        self.model = torch.nn.Sequential(*layers)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.x = torch.randn(64, 1000)

    def step(self) -> None:
        loss = self.model(self.x).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def given(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer}


def stalls(folder: Path) -> None:
    """Save with both in turn, each when the other has ended, and compare how long the training waits."""
    work = Work()
    work.step()
    ours: list[float] = []
    theirs: list[float] = []
    checkpointer = Checkpointer(**work.given(), root=folder / "ours", every={"steps": 2})
    checkpointer.restore()
    checkpointer.step(0)
    time.sleep(2)  # a step in which memory is reserved
    for number in range(1, 2 * PAIRS, 2):
        work.step()
        before = time.perf_counter()
        checkpointer.step(number)
        ours.append(time.perf_counter() - before)
        checkpointer._saver._collect(wait_seconds=60)
        work.step()
        state = {"model": work.model.state_dict(), "optimizer": work.optimizer.state_dict()}
        before = time.perf_counter()
        saving: Any = async_save(state, checkpoint_id=folder / f"theirs-{number}", no_dist=True)
        theirs.append(time.perf_counter() - before)
        saving.result()
    checkpointer.close()
    # the first of each allocates its copy
    figure("stall of a save, ours, first", 1000 * ours[0], "ms")
    figure("stall of a save, ours", 1000 * median(ours[1:]), "ms", note=f"median of {PAIRS - 1}")
    figure("stall of a save, dcp.async_save, first", 1000 * theirs[0], "ms")
    figure("stall of a save, dcp.async_save", 1000 * median(theirs[1:]), "ms")
    figure("ratio of first stalls", ours[0] / theirs[0], "", target="<= 1.0")
    figure("ratio of stalls", median(ours[1:]) / median(theirs[1:]), "", target="<= 1.0")


def overhead(folder: Path) -> None:
    """Train for a while with `auto`, and add up what it cost."""
    work = Work()
    costs: list[SaveCost] = []
    collect = saver.Saver._collect

    def watched(self: saver.Saver, **more: Any) -> Any:
        known = self._cost
        manifest = collect(self, **more)
        if self._cost is not None and self._cost is not known:
            costs.append(self._cost)
        return manifest

    saver.Saver._collect = watched  # type: ignore[method-assign]  # to see what it measures
    checkpointer = Checkpointer(**work.given(), root=folder / "auto", every="auto")
    start = checkpointer.restore()
    began, cpu, own = time.perf_counter(), time.process_time(), time.thread_time()
    boundaries = 0.0
    for number in itertools.count(start):
        work.step()
        before = time.perf_counter()
        checkpointer.step(number)
        boundaries += time.perf_counter() - before
        if time.perf_counter() - began > SECONDS:
            break
    wall = time.perf_counter() - began
    others = (time.process_time() - cpu) - (time.thread_time() - own)
    interval = checkpointer._saver._auto_seconds()
    checkpointer._saver.close(None)
    saver.Saver._collect = collect  # type: ignore[method-assign]
    slowed = sum(cost.slowed_seconds for cost in costs)
    note = f"{len(costs)} saves in {wall:.0f} s of {number - start + 1} steps"
    figure("interval chosen by `auto` at the end", interval, "s", note=note)
    figure("stall at step boundaries", 100 * boundaries / wall, "% of wall time", target="<= 0.5")
    figure("stall and slower steps", 100 * (boundaries + slowed) / wall, "%", target="<= 1")
    figure("processor time of saving threads", 100 * others / wall, "% of one core")


def boundary(folder: Path) -> None:
    """Measure what a step boundary costs where nothing is due."""
    checkpointer = Checkpointer(model=torch.nn.Linear(1, 1), root=folder / "idle", every="auto")
    checkpointer.restore()
    rounds = 20_000
    before = time.thread_time()
    for number in range(rounds):
        checkpointer.step(number)
    figure("step boundary without a save", 1e6 * (time.thread_time() - before) / rounds, "us")
    checkpointer._saver.close(None)


def resume() -> None:
    """Kill trainings of 1, 2 and 4 ranks in each of 50 steps, and compare with ones never killed."""
    for world in (1, 2, 4):
        with tempfile.TemporaryDirectory() as name:
            whole, killed = Path(name, "whole"), Path(name, "killed")
            broken_off(whole, world, total=STEPS, every=5, kills=[])
            broken_off(killed, world, total=STEPS, every=5, kills=KILLS)
            same = [course(whole, rank) == course(killed, rank) for rank in range(world)]
        figure(
            f"world {world}: ranks with equal losses and equal digest of the full state",
            sum(same),
            f"of {world}",
            target=f"{world}",
            note=f"{len(KILLS)} kills, {STEPS} steps",
        )


def main() -> None:
    logging.getLogger("airflow_training").setLevel(logging.ERROR)
    os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # of DDP, in every process of `resume`
    warnings.filterwarnings("ignore", module="torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    heading("What saving costs a training")
    with tempfile.TemporaryDirectory() as name:
        stalls(Path(name))
        boundary(Path(name))
        overhead(Path(name))
    torch.set_num_threads(threads)
    heading("Resume after kills")
    resume()
    recovery_goodput.main()
