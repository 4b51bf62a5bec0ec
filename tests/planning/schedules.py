"""Pipeline schedules run event by event: what the closed forms are held against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

Pass = tuple[Literal["forward", "backward"], int, int]
"""Which pass, of which micro-batch, through which chunk of the stage."""


def gpipe(stage: int, stages: int, micro_batches: int) -> list[Pass]:
    """Return what a stage does, in order: all forward passes first."""
    return [
        *(("forward", i, 0) for i in range(micro_batches)),
        *(("backward", i, 0) for i in range(micro_batches)),
    ]


def one_forward_one_backward(stage: int, stages: int, micro_batches: int) -> list[Pass]:
    """Return what a stage does: as many forward passes as stages follow it, then one of each."""
    warm_up = min(stages - stage - 1, micro_batches)
    order: list[Pass] = [("forward", i, 0) for i in range(warm_up)]
    for i in range(micro_batches - warm_up):
        order += [("forward", warm_up + i, 0), ("backward", i, 0)]
    return order + [("backward", i, 0) for i in range(micro_batches - warm_up, micro_batches)]


def interleaved(stage: int, stages: int, micro_batches: int, chunks: int) -> list[Pass]:
    """Return what a stage with several chunks does (Megatron-LM; micro-batches in rounds of stages)."""
    total = micro_batches * chunks

    def nth(number: int, kind: Literal["forward", "backward"]) -> Pass:
        within = number % (stages * chunks)
        chunk = within // stages
        micro_batch = number // (stages * chunks) * stages + within % stages
        return kind, micro_batch, chunk if kind == "forward" else chunks - 1 - chunk

    warm_up = min((stages - stage - 1) * 2 + (chunks - 1) * stages, total)
    order = [nth(i, "forward") for i in range(warm_up)]
    for i in range(total - warm_up):
        order += [nth(warm_up + i, "forward"), nth(i, "backward")]
    return order + [nth(i, "backward") for i in range(total - warm_up, total)]


def run(
    orders: Sequence[Sequence[Pass]],
    forward: Sequence[float],
    backward: Sequence[float],
    *,
    chunks: int = 1,
) -> float:
    """Return when the last pass of any stage ends; `forward` and `backward` are for all its chunks."""
    stages = len(orders)
    ends: dict[tuple[str, int, int], float] = {}
    free, place = [0.0] * stages, [0] * stages
    waiting = True
    while waiting:
        waiting = False
        for stage, order in enumerate(orders):
            while place[stage] < len(order):
                kind, micro_batch, chunk = order[place[stage]]
                link = chunk * stages + stage
                if kind == "forward":
                    needs = ("forward", micro_batch, link - 1) if link else None
                elif link == stages * chunks - 1:
                    needs = ("forward", micro_batch, link)
                else:
                    needs = ("backward", micro_batch, link + 1)
                if needs is not None and needs not in ends:
                    break
                ready = ends[needs] if needs else 0.0
                takes = (forward if kind == "forward" else backward)[stage] / chunks
                free[stage] = max(free[stage], ready) + takes
                ends[kind, micro_batch, link] = free[stage]
                place[stage] += 1
                waiting = True
    assert all(done == len(order) for done, order in zip(place, orders, strict=True))
    return max(free)
