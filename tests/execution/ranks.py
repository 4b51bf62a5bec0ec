"""Runs of the zoo over real ranks: each does several splits, and says how far they are from the serial training."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from airflow_training.errors import InputError
from airflow_training.execution import ExecutionPlan, distribute
from tests.execution.zoo import BATCH, ZOO, cross_entropy
from tests.ports import free_port
from tests.waiting import PATIENCE

STEPS = 5
ALL_CASES = 3 * PATIENCE
"""How long ranks may take that train up to 14 cases one after the other before they answer; below their tests' own limit of 400 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a split went: its distance from the serial training, or why it was refused."""

    distance: float = 0.0
    refused: str = ""


def make_optimizer(precision: str) -> Callable[..., torch.optim.Optimizer]:
    if precision == "fp64":
        return lambda parameters: torch.optim.AdamW(parameters, lr=0.01)
    return lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


def make(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return ZOO[name].make().double()


def train(
    name: str, plan: ExecutionPlan, steps: int = STEPS
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Train a model of the zoo by a plan; return losses and whole parameters."""
    training = distribute(
        make(name),
        loss=cross_entropy,
        optimizer=make_optimizer(plan.precision),
        example=ZOO[name].batch(0),
        plan=plan,
    )
    losses = [training.step(ZOO[name].batch(step)) for step in range(steps)]
    return torch.stack(losses), training.gather()


def serial(plan: ExecutionPlan) -> ExecutionPlan:
    """Return the serial plan with the same micro-batches."""
    return ExecutionPlan(
        global_batch=plan.global_batch,
        micro_batch=plan.micro_batch * plan.dp,
        precision=plan.precision,
    )


def by_hand(name: str, plan: ExecutionPlan) -> tuple[torch.Tensor, dict[str, Any]]:
    """Train with nothing of this project: the loop that everybody writes."""
    model = make(name)
    model = model.double() if plan.precision == "fp64" else model.float()
    optimizer = make_optimizer(plan.precision)(model.parameters())
    dtype = next(model.parameters()).dtype
    size, losses = plan.micro_batch * plan.dp, []
    for step in range(STEPS):
        given, target = ZOO[name].batch(step)
        inputs = [
            value.to(dtype) if value.is_floating_point() else value
            for value in (given if isinstance(given, tuple) else (given,))
        ]
        optimizer.zero_grad()
        total = torch.zeros((), dtype=dtype)
        for start in range(0, BATCH, size):
            rows = slice(start, start + size)
            loss = cross_entropy(model(*(value[rows] for value in inputs)), target[rows])
            (loss / (BATCH // size)).backward()
            total += loss.detach() / (BATCH // size)
        optimizer.step()
        losses.append(total)
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return torch.stack(losses), {key: value.detach() for key, value in tensors.items()}


def distance(one: tuple[Any, dict[str, Any]], other: tuple[Any, dict[str, Any]]) -> float:
    """Return the largest difference of losses and tensors, relative to the tensor's norm."""
    assert one[1].keys() == other[1].keys(), one[1].keys() ^ other[1].keys()
    pairs = [(one[0], other[0]), *((one[1][key], other[1][key]) for key in one[1])]
    return max(
        float((a.double() - b.double()).norm() / max(float(b.double().norm()), 1e-12))
        for a, b in pairs
    )


def compare(name: str, plan: ExecutionPlan) -> Outcome:
    """Train by the plan and by hand; on every rank."""
    try:
        found = train(name, plan)
    except InputError as error:
        return Outcome(refused=str(error))
    return Outcome(distance=distance(found, by_hand(name, plan)))


def call_ranks(world: int, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Call a function on each of `world` ranks of a gloo group; return what they return."""
    context = multiprocessing.get_context("forkserver")
    port = free_port()
    answers: Any = context.Queue()
    processes = [
        context.Process(target=_call, args=(rank, world, port, answers, function, args))
        for rank in range(world)
    ]
    try:
        for process in processes:
            process.start()
        found: dict[int, Any] = {}
        for _ in processes:  # the first that fails ends the wait: the others wait for it
            rank, found_there = answers.get(timeout=ALL_CASES)
            found[rank] = found_there
            if isinstance(found_there, BaseException):
                break
        else:
            for process in processes:
                process.join(PATIENCE)
        wrong = {rank: each for rank, each in found.items() if isinstance(each, BaseException)}
        assert not wrong, wrong
        assert [process.exitcode for process in processes] == [0] * world
        return [found[rank] for rank in range(world)]
    finally:
        for process in processes:
            if process.pid:
                process.kill()
                process.join()


def _call(
    rank: int, world: int, port: int, answers: Any, function: Callable[..., Any], args: Any
) -> None:
    torch.set_num_threads(1)
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
    }
    try:
        dist.init_process_group("gloo", rank=rank, world_size=world)
        answers.put((rank, function(*args)))
        dist.destroy_process_group()
    except BaseException:
        answers.put((rank, RuntimeError(traceback.format_exc())))
        raise


def compare_all(cases: Sequence[tuple[str, ExecutionPlan]]) -> list[Outcome]:
    return [compare(name, plan) for name, plan in cases]
