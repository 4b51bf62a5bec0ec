"""One rank of a training that is compared: `python -m airflow_training.alignment.rank_program ORDER SIDE`.

The order is a JSON file: `engine`, `strategy`, `steps` that are written, `detail`, `blocks`, `inside`, `folder`, `parent`, `device`,
`serial_precision`. The side is `serial` or `split`; `RANK` says which rank this is.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow_training.agent.proc import die_with_parent
from airflow_training.alignment.comparing import serial_plan
from airflow_training.alignment.recording import TrainingRecorder
from airflow_training.errors import InputError
from airflow_training.execution.distributing import distribute
from airflow_training.execution.engine_settings import (
    EngineSettings,
    load_functions,
    make_model,
    make_samples,
    seed_generators,
)
from airflow_training.execution.execution_plan import plan_of
from airflow_training.execution.replicas import blocks

__all__ = ["main"]


def main() -> None:
    """Train the first steps and write down what was computed; end with 2 where that cannot be."""
    order = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if sys.platform == "linux":
        die_with_parent()
        if os.getppid() != order["parent"]:
            raise SystemExit(1)  # it ended while torch was imported
    folder, side = Path(order["folder"]), sys.argv[2]
    try:
        record_steps(order, folder, side)
    except InputError as error:
        problems = [
            {"code": each.code, "field": each.field, "message": each.message, "hint": each.hint}
            for each in error.problems
        ]
        (folder / f"refused-{side}-{os.environ['RANK']}.json").write_text(json.dumps(problems))
        raise SystemExit(2) from None


def record_steps(order: dict[str, Any], folder: Path, side: str) -> None:
    """Train one side as an order says."""
    import torch
    import torch.distributed as dist
    from torch.utils.data import default_collate

    torch.set_num_threads(1)  # the order of sums on one device does not depend on its cores
    world, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    engine = EngineSettings(**order["engine"])
    plan = plan_of(order)
    if side == "serial":
        plan = replace(serial_plan(plan), precision=str(order["serial_precision"]))
    elif order["device"] == "cuda":
        _choose_gpu(rank)
    if world > 1:
        backend = "nccl" if order["device"] == "cuda" else "gloo"
        meeting = f"file://{folder}/meeting"
        dist.init_process_group(backend, init_method=meeting, rank=rank, world_size=world)
    functions = load_functions(engine)
    seed_generators(engine.seed)
    model = make_model(engine, functions)
    samples = make_samples(engine, functions, plan)

    def batch(step: int) -> object:
        first = step * plan.global_batch
        seed_generators(engine.seed + step)  # samples may be drawn as they are read
        return default_collate(
            [samples[number % len(samples)] for number in range(first, first + plan.global_batch)]
        )

    watch = _watched(model, order)
    training = distribute(
        model,
        loss=functions.loss,
        optimizer=functions.optimizer,
        example=batch(0),
        plan=plan,
        randomness="refuse",
    )
    recorder = TrainingRecorder(
        training, folder / side, rank=rank, detail=order["detail"], watch=watch
    )
    written = frozenset(order["steps"])
    for step in range(max(written) + 1):
        if step in written:
            recorder.step(batch(step))
        else:
            training.step(batch(step))
    if world > 1:
        dist.barrier()
        dist.destroy_process_group()


def _watched(model: Any, order: dict[str, Any]) -> Callable[[str], bool]:
    """Tell by their names which modules are written."""
    inside = order["inside"]
    if inside is not None:
        return lambda name: any(_is_within(name or "module", each) for each in inside)
    if not order["blocks"]:
        return lambda _: True
    entries = {id(block) for block in blocks(model)}
    names = [name for name, inner in model.named_modules() if id(inner) in entries]
    return lambda name: not any(name.startswith(f"{each}.") for each in names)


def _is_within(name: str, outer: str) -> bool:
    return name == outer or name.startswith(f"{outer}.")


def _choose_gpu(rank: int) -> None:
    """Take one of this machine's GPUs, which ranks may share.

    NCCL lets ranks of one machine have different GPUs only, so those that share one say that they are on several.
    """
    import torch

    count = torch.cuda.device_count()
    if count == 0:
        raise InputError.of(
            code="NoDevice", field="device", message="no GPU is seen here", value="cuda"
        )
    local = rank % count
    os.environ["LOCAL_RANK"] = str(local)
    os.environ["NCCL_HOSTID"] = f"align-{rank // count}"
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    torch.cuda.set_device(local)


if __name__ == "__main__":
    main()
