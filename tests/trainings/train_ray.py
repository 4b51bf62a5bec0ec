"""A line through points by Ray Train: two workers average their gradients at an actor, the driver keeps the model."""

from __future__ import annotations

import asyncio
import os
import tempfile
import uuid
from pathlib import Path
from typing import Any

import ray
from ray import train
from ray.train.collective import broadcast_from_rank_zero
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

WORKERS = 2


@ray.remote(num_cpus=0)
class Reducer:
    """Averages what all workers bring for one step of one try."""

    def __init__(self) -> None:
        self.parts: dict[tuple[str, int], dict[int, float]] = {}
        self.whole: dict[tuple[str, int], asyncio.Event] = {}

    async def mean(self, of: str, step: int, rank: int, value: float) -> float:
        parts = self.parts.setdefault((of, step), {})
        whole = self.whole.setdefault((of, step), asyncio.Event())
        parts[rank] = value
        if len(parts) == WORKERS:
            whole.set()
        await whole.wait()
        return sum(parts.values()) / WORKERS


def fit(config: dict[str, Any]) -> None:
    """Train on every second point, from the newest checkpoint on."""
    os.chdir(config["folder"])
    # the witness of the gate is for instances: processes of Ray come and go inside of one
    os.environ["TRAINING_RANK"] = f"process-{os.getpid()}"
    import gate

    rank = train.get_context().get_world_rank()
    step, slope = 0, 0.0
    newest = train.get_checkpoint()
    if newest is not None:
        with newest.as_directory() as folder:
            text = Path(folder, "state").read_text()
        step, slope = int(text.split()[0]), float(text.split()[1])
        print(f"rank {rank} goes on after step {step}", flush=True)
    attempt = broadcast_from_rank_zero(uuid.uuid4().hex)
    points = [(x / 10, 3 * x / 10) for x in range(rank, 10, WORKERS)]
    while step < gate.STEPS:
        step += 1
        gradient = sum((slope * x - y) * x for x, y in points) / len(points)
        slope -= 0.5 * ray.get(config["reducer"].mean.remote(attempt, step, rank, gradient))
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "state").write_text(f"{step} {slope}")
            kept = train.Checkpoint.from_directory(folder) if rank == 0 else None
            train.report({"step": step, "slope": slope}, checkpoint=kept)
        if rank == 0:
            gate.save(step, str(slope))
        gate.passed(step, rank)


def main() -> None:
    import gate

    ray.init()
    # beside the driver: with a worker that is killed it would be lost
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    reducer = Reducer.options(scheduling_strategy=here).remote()
    config = {"folder": str(Path.cwd()), "reducer": reducer}
    trainer = DataParallelTrainer(
        fit,
        train_loop_config=config,
        scaling_config=train.ScalingConfig(num_workers=WORKERS),
        run_config=train.RunConfig(
            name="line",
            storage_path=str(Path("ray_results").resolve()),
            failure_config=train.FailureConfig(max_failures=-1),
        ),
    )
    result = trainer.fit()
    gate.finish(0, f"{result.metrics['slope']}")


if __name__ == "__main__":
    main()
