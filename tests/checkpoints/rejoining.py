"""Real ranks that lose one of them, form their group again with a new process, and go on."""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from airflow_training.checkpoints import reading, verifying
from airflow_training.checkpoints.checkpointer import Checkpointer
from tests.checkpoints.training import Rank, Training
from tests.ports import free_port
from tests.waiting import PATIENCE

TOTAL, EVERY = 40, 10


class Repeatable(Training):
    """What each rank draws follows from rank and step; all else that is saved is alike on all ranks."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed=seed)

    def repeatable_step(self, rank: int, step: int) -> float:
        for generator in (random.seed, np.random.seed, torch.manual_seed):
            generator(1000 * rank + step)
        total = self.extra["sum"]
        loss = self.step()
        self.extra["sum"] = total + step
        return loss

    def given(self) -> dict[str, Any]:
        return {**super().given(), "model": self.network}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What happens to the group, round by round: it is formed once more than it breaks."""

    worlds: Sequence[int]
    kills: Sequence[tuple[int, int]] = ()
    """Rank and step at which each round ends, but the last."""
    leave_at: int = -1
    """Step before which all ranks leave the first round of their own accord."""
    before: Callable[[int, int, Repeatable], None] | None = None
    """Called with rank, round and training before each rejoin."""


class Noting(logging.Handler):
    """Notes what a rank is warned of."""

    def __init__(self, me: Rank) -> None:
        super().__init__(logging.WARNING)
        self._me = me

    def emit(self, record: logging.LogRecord) -> None:
        self._me.note(warned=record.getMessage())


def train(me: Rank, plan: Plan, ports: Sequence[int], first: int) -> None:
    """Train from round `first` on; note losses, warnings, where each round begins, and each shard that is read."""
    read = verifying._verified_content

    def noted_read(store: Any, shard: Any) -> bytes:
        me.note(read=shard.key)
        return read(store, shard)

    verifying._verified_content = noted_read
    logging.getLogger("airflow_training.checkpoints").addHandler(Noting(me))
    torch.set_num_threads(1)
    training = Repeatable(seed=99 if first else 0)
    checkpointer = Checkpointer(**training.given(), root=me.folder / "root", every={"steps": EVERY})
    for number in range(first, len(plan.worlds)):
        if me.rank >= plan.worlds[number]:
            return
        dist.init_process_group(
            "gloo",
            init_method=f"tcp://127.0.0.1:{ports[number]}",
            rank=me.rank,
            world_size=plan.worlds[number],
            timeout=timedelta(seconds=60),
        )
        if plan.before is not None:
            plan.before(me.rank, number, training)
        start = checkpointer.rejoin()
        me.note(start=start, round=number)
        training.model = DistributedDataParallel(training.network, find_unused_parameters=True)
        last = len(plan.worlds) - 1
        try:
            for step in range(start, TOTAL):
                if number < last and plan.kills and plan.kills[number] == (me.rank, step):
                    while reading.newest(str(me.folder / "root")) is None:
                        time.sleep(0.05)  # uploads go on meanwhile, the others wait for this rank
                    os.kill(os.getpid(), signal.SIGKILL)
                if number < last and step == plan.leave_at:
                    break
                loss = training.repeatable_step(me.rank, step)
                me.note(step=step, loss=loss)
                checkpointer.step(step)
            else:
                checkpointer.close()
                me.note(digest=training.digest())
        except RuntimeError as error:  # a peer is gone
            me.note(broken=str(error))
        training.model = training.network
        dist.destroy_process_group()


def run(folder: Path, plan: Plan) -> None:
    """Run all ranks of the plan, each newcomer once it is needed; all but the killed ones must end well."""
    context = multiprocessing.get_context("forkserver")
    (folder / "notes").mkdir(parents=True, exist_ok=True)
    ports = [free_port() for _ in plan.worlds]

    def start(rank: int, first: int) -> Any:
        me = Rank(rank=rank, world=plan.worlds[first], port=ports[first], folder=folder)
        process = context.Process(target=train, args=(me, plan, ports, first))
        process.start()
        return process

    running = {rank: start(rank, 0) for rank in range(plan.worlds[0])}
    try:
        for number, world in enumerate(plan.worlds[1:], start=1):
            if plan.kills:
                killed, _ = plan.kills[number - 1]
                running[killed].join(PATIENCE)
                assert running.pop(killed).exitcode == -signal.SIGKILL
            running |= {rank: start(rank, number) for rank in range(world) if rank not in running}
        for process in running.values():
            process.join(PATIENCE)
        assert {rank: process.exitcode for rank, process in running.items()} == dict.fromkeys(
            running, 0
        )
    finally:
        for process in running.values():
            process.kill()
            process.join()


def never_killed(plan: Plan) -> Plan:
    """Return the plan without what interrupts it."""
    return replace(plan, worlds=plan.worlds[:1], kills=(), leave_at=-1, before=None)
