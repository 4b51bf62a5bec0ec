"""A launcher of ranks that stay when others are killed: a process each of the engine's program, and the files that it reads."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from airflow_training.checkpoints.sampler import ResumableSampler
from airflow_training.execution import runner
from tests.execution.plain_training import example, loss, optimizer
from tests.waiting import PATIENCE, wait_until

__all__ = ["BATCH", "Ranks", "data", "example", "loss", "never_interrupted", "optimizer"]

SAMPLES, BATCH = 96, 24
"""24 samples are whole micro-batches of two for three replicas, and for four."""
MODEL = "tests.execution.regrouping:example"


class SlowSamples(list[Any]):
    """So slow that each step is reported, and there is time to kill somebody."""

    def __getitem__(self, number: Any) -> Any:
        time.sleep(float(os.environ.get("STEP_SECONDS", "0")) / BATCH)
        return super().__getitem__(number)


def data() -> SlowSamples:
    draw = torch.Generator().manual_seed(1)
    return SlowSamples(
        (torch.randn(16, generator=draw), torch.randint(0, 8, (), generator=draw))
        for _ in range(SAMPLES)
    )


def never_interrupted(steps: int, *, seed: int = 0) -> tuple[list[float], dict[str, Any]]:
    """Train in fp64 in one process with nothing of this project but the order of samples: losses, and weights."""
    torch.manual_seed(seed)
    model = example()[0].double()
    update = optimizer(model.parameters())
    samples = list.copy(data())
    order = ResumableSampler(SAMPLES, batch_size=BATCH, seed=seed, rank=0, world=1, drop_last=True)
    losses: list[float] = []
    while len(losses) < steps:
        for chosen in order:
            update.zero_grad()
            x = torch.stack([samples[number][0] for number in chosen]).double()
            y = torch.stack([samples[number][1] for number in chosen])
            found = nn.functional.cross_entropy(model(x), y)
            found.backward()
            update.step()
            order.advance()
            losses.append(float(found.detach()))
            if len(losses) == steps:
                break
    return losses, dict(model.state_dict())


def _run(environment: Mapping[str, str], log: str) -> None:
    """Be the engine's program, as an instance starts it."""
    os.environ |= environment
    torch.set_num_threads(1)
    for stream in (1, 2):
        os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), stream)
    runner.main()


@dataclass(kw_only=True)
class Ranks:
    """Processes by the name of their instance; each keeps its name, whichever rank it has."""

    folder: Path
    port: int
    steps: int
    step_seconds: float = 0.25
    checkpoint: Mapping[str, Any] | None = None
    processes: dict[str, Any] = field(default_factory=dict)

    def plan(
        self,
        name: str,
        strategy: Mapping[str, Any],
        *,
        revision: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the plan of an instance, or replace it while that one trains."""
        document = {
            "strategy": {"global_batch": BATCH, "precision": "fp64", "micro_batch": 2, **strategy},
            "engine": {"model": MODEL, "steps": self.steps, "precision": "fp64"},
            **({} if revision is None else {"revision": {"host": "127.0.0.1", **revision}}),
        }
        path = self.folder / f"{name}.plan"
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(document))
        partial.replace(path)

    def start(self, name: str, *, rank: int, world: int) -> None:
        """Start an instance, as a job does: with the rank it has at its start."""
        output = self.folder / f"{name}.output"
        output.mkdir(exist_ok=True)
        environment = {
            "PLAN_FILE": str(self.folder / f"{name}.plan"),
            "TRAINING_PROGRESS_FILE": str(self.folder / f"{name}.progress"),
            "TRAINING_OUTPUT_DIR": str(output),
            "STEP_SECONDS": str(self.step_seconds),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.port),
            "RANK": str(rank),
            "WORLD_SIZE": str(world),
            "OMP_NUM_THREADS": "1",
        }
        if self.checkpoint is not None:
            environment["TRAINING_CHECKPOINT"] = json.dumps(self.checkpoint)
        process = multiprocessing.get_context("forkserver").Process(
            target=_run, args=(environment, str(self.folder / f"{name}.log"))
        )
        process.start()
        self.processes[name] = process

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Return what an instance reported."""
        try:
            text = (self.folder / f"{name}.progress").read_text()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def step(self, name: str) -> int:
        """Return the last step that an instance reported."""
        return max((line["step"] for line in self.lines(name) if "step" in line), default=0)

    def wait_for(self, name: str, condition: Callable[[], bool]) -> None:
        """Wait for something of an instance, as long as it lives."""

        def there() -> bool:
            assert self.processes[name].is_alive() or condition(), self.log(name)
            return condition()

        wait_until(there)

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.join(PATIENCE)
        assert process.exitcode == -signal.SIGKILL

    def regrouped(self) -> list[dict[str, Any]]:
        """Return what was told of groups that were formed again, oldest first."""
        names = sorted({path.stem for path in self.folder.glob("*.progress")})
        found = [line for name in names for line in self.lines(name) if "regrouped" in line]
        found.sort(key=lambda line: line["time"])
        return [{**line["regrouped"], "at": line["time"]} for line in found]

    def losses(self) -> dict[int, set[float]]:
        """Return all losses that any instance reported, by the steps that were done."""
        told: dict[int, set[float]] = {}
        for path in self.folder.glob("*.progress"):
            for line in self.lines(path.stem):
                if "metrics" in line:
                    told.setdefault(line["step"], set()).add(line["metrics"]["loss"])
        return told

    def log(self, name: str) -> str:
        return f"{name}:\n" + (self.folder / f"{name}.log").read_text()

    def end(self) -> None:
        """Wait until all have trained to the end."""
        for name, process in self.processes.items():
            process.join(PATIENCE)
            assert process.exitcode == 0, self.log(name)

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.join()

    def weights(self, names: Sequence[str]) -> list[dict[str, Any]]:
        return [
            torch.load(self.folder / f"{name}.output" / "model.pt", weights_only=True)
            for name in names
        ]
