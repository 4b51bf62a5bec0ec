"""What `distribute` costs: its steps against the same split written with torch alone, on two processes.

    python -m benchmarks execution

Both take turns, step by step, in the same two processes (gloo, one thread each). The ratio is that of medians.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from airflow_training.execution import ExecutionPlan, distribute
from benchmarks.report import figure, heading, median

_RANKS, _ROUNDS, _WARM = 2, 30, 5
_LAYERS, _WIDTH, _ROWS, _MICRO_BATCHES = 6, 384, 32, 4
_MOST = 1.05

Step = Callable[[], torch.Tensor]


class Block(nn.Module):
    """The feed-forward half of a transformer's layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(_WIDTH)
        self.up = nn.Linear(_WIDTH, 4 * _WIDTH)
        self.down = nn.Linear(4 * _WIDTH, _WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        deeper: torch.Tensor = x + self.down(nn.functional.gelu(self.up(self.norm(x))))
        return deeper


def _model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(_LAYERS)))


def _batch() -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    return tuple(torch.randn(_ROWS, 32, _WIDTH, generator=draw) for _ in range(2))  # type: ignore[return-value]


def _optimizer(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3)


def _by_plan(split: Mapping[str, Any]) -> Step:
    plan = ExecutionPlan(
        global_batch=_ROWS, micro_batch=_ROWS // _MICRO_BATCHES // split.get("dp", 1), **split
    )
    training = distribute(
        _model(), loss=nn.functional.mse_loss, optimizer=_optimizer, example=_batch(), plan=plan
    )
    batch = _batch()
    return lambda: training.step(batch)


def _replicated(rank: int) -> Step:
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(_model())
    return _accumulated(model, rank, lambda last: None if last else model.no_sync())


def _sharded(rank: int) -> Step:
    from torch.distributed.fsdp import FSDPModule, fully_shard

    model = _model()
    for block in model:
        fully_shard(block)
    fully_shard(model)
    assert isinstance(model, FSDPModule)
    return _accumulated(model, rank, model.set_is_last_backward)


def _accumulated(model: nn.Module, rank: int, begin: Callable[[bool], Any]) -> Step:
    """A step of replicas: each micro-batch's own half, gradients added up."""
    optimizer, (inputs, target) = _optimizer(model.parameters()), _batch()
    share = _ROWS // _MICRO_BATCHES // _RANKS

    def passed(number: int) -> torch.Tensor:
        start = (number * _RANKS + rank) * share
        rows = slice(start, start + share)
        loss: Any = nn.functional.mse_loss(model(inputs[rows]), target[rows]) / _MICRO_BATCHES
        loss.backward()
        return loss.detach()  # type: ignore[no-any-return]

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        total = torch.zeros(())
        for number in range(_MICRO_BATCHES):
            around = begin(number == _MICRO_BATCHES - 1)
            if around is None:
                total += passed(number)
            else:
                with around:
                    total += passed(number)
        optimizer.step()
        dist.all_reduce(total)
        return total / _RANKS

    return step


def _tensor_parallel(_: int) -> Step:
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("cpu", (_RANKS,))
    model = _model()
    for block in model:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer, (inputs, target) = _optimizer(model.parameters()), _batch()

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        total = torch.zeros(())
        for rows in range(0, _ROWS, _ROWS // _MICRO_BATCHES):
            part = slice(rows, rows + _ROWS // _MICRO_BATCHES)
            loss: Any = nn.functional.mse_loss(model(inputs[part]), target[part]) / _MICRO_BATCHES
            loss.backward()
            total += loss.detach()
        optimizer.step()
        return total

    return step


def _pipelined(rank: int) -> Step:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    whole = _model()
    half = _LAYERS // _RANKS
    module = nn.Sequential(*list(whole)[rank * half : (rank + 1) * half])
    stage = PipelineStage(module, rank, _RANKS, torch.device("cpu"))
    schedule = Schedule1F1B(stage, _MICRO_BATCHES, loss_fn=nn.functional.mse_loss)
    optimizer, (inputs, target) = _optimizer(module.parameters()), _batch()

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        losses: list[torch.Tensor] = []
        if rank == 0:
            schedule.step(inputs)
        else:
            schedule.step(target=target, losses=losses)
        optimizer.step()
        total = torch.stack(losses).mean().detach() if losses else torch.zeros(())
        dist.all_reduce(total)
        return total

    return step


_SPLITS: Mapping[str, tuple[Mapping[str, Any], Callable[[int], Step]]] = {
    "replicas (DistributedDataParallel)": ({"dp": 2}, _replicated),
    "replicas, ZeRO 3 (fully_shard)": ({"dp": 2, "zero": 3}, _sharded),
    "tensor parallel (parallelize_module)": ({"tp": 2}, _tensor_parallel),
    # the view tells the first block, into which no gradient goes, apart from its five layers
    "pipeline, 1F1B (PipelineStage)": ({"pp": 2, "stage_layers": (2, 3)}, _pipelined),
}


def _run_rank(rank: int, meeting: str, name: str, answers: Any) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(_RANKS), "LOCAL_RANK": str(rank)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=_RANKS)
    split, by_hand = _SPLITS[name]
    steps = {"ours": _by_plan(split), "by hand": by_hand(rank)}
    seconds: dict[str, list[float]] = {each: [] for each in steps}
    losses: dict[str, float] = {}
    for turn in range(_WARM + _ROUNDS):
        for each in list(steps) if turn % 2 else list(steps)[::-1]:
            dist.barrier()
            began = time.perf_counter()
            losses[each] = float(steps[each]())
            dist.barrier()
            if turn >= _WARM:
                seconds[each].append(time.perf_counter() - began)
    if rank == 0:
        answers.put((seconds, losses))
    dist.destroy_process_group()


def main() -> None:
    """Print the table."""
    context = multiprocessing.get_context("spawn")
    heading("Steps of `distribute` against torch by hand")
    for name in _SPLITS:
        answers: Any = context.Queue()
        with tempfile.TemporaryDirectory() as folder:
            ranks = [
                context.Process(
                    target=_run_rank, args=(rank, f"file://{folder}/meeting", name, answers)
                )
                for rank in range(_RANKS)
            ]
            for each in ranks:
                each.start()
            seconds, losses = answers.get(timeout=600)
            for each in ranks:
                each.join()
        ours, theirs = (median(seconds[each]) for each in ("ours", "by hand"))
        apart = abs(losses["ours"] - losses["by hand"]) / losses["by hand"]
        note = f"by hand {1000 * theirs:.0f} ms; losses {apart:.0e} apart"
        figure(f"step, {name}", ours / theirs, "", target=f"<= {_MOST}", note=note)


if __name__ == "__main__":
    main()
