"""When each stage of a pipeline works on which micro-batch, for a picture. Draws nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["TimelineBox", "timeline"]

_PIPELINED = ("compute", "recompute", "launch", "accumulation", "tp", "cp", "ep", "pp")
"""Parts of a breakdown that are spent inside the passes of micro-batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineBox:
    """One pass of one micro-batch over what a stage holds (a chunk of it, when interleaved)."""

    stage: int
    chunk: int
    micro_batch: int
    forward: bool
    begin: float
    end: float


def timeline(plan: Mapping[str, Any]) -> tuple[list[TimelineBox], int, int]:
    """Return the boxes of a plan, how many micro-batches they show, and how many there are.

    Every stage takes the time of the slowest one, less where it has fewer layers: what a plan
    document knows. A backward pass takes twice a forward one, three times with full recompute.
    """
    split = plan["strategy"]
    stages, chunks = split["pp"], split["virtual_stages"]
    rounds = max(1, split["global_batch"] // (split["dp"] * split["micro_batch"]))
    drawn = min(rounds, stages * (2 if chunks > 1 else 3))
    parts = {each["name"]: each["value"] for each in plan["breakdown"]["time_s"]}
    whole = sum(parts.get(name, 0.0) for name in _PIPELINED) / rounds / chunks
    backward = 3.0 if split["recompute"] == "full" else 2.0
    layers = split["stage_layers"] or [1] * stages
    pace = [layers[stage] / max(layers) for stage in range(stages)]
    orders = [
        _order(stage, stages=stages, chunks=chunks, micro_batches=drawn, schedule=split["schedule"])
        for stage in range(stages)
    ]
    times = {
        (stage, forward): pace[stage] * whole * (1.0 if forward else backward) / (1.0 + backward)
        for stage in range(stages)
        for forward in (True, False)
    }
    return _played(orders, times, chunks=chunks), drawn, rounds


Pass = tuple[int, int, bool]
"""Micro-batch, chunk, forward."""


def _order(
    stage: int, *, stages: int, chunks: int, micro_batches: int, schedule: str
) -> list[Pass]:
    """Return the passes of a stage in the order in which it does them.

    One forward, one backward after a warm-up; with several chunks as Narayanan et al. 2021
    (arXiv:2104.04473) interleave them.
    """
    forward = _sequence(stages, chunks, micro_batches, backwards=False)
    backward = _sequence(stages, chunks, micro_batches, backwards=True)
    if schedule == "gpipe":
        return [*forward, *backward]
    ahead = stages - stage - 1
    if chunks > 1:
        ahead = 2 * ahead + (chunks - 1) * stages
    ahead = min(ahead, len(forward))
    order = forward[:ahead]
    for place, each in enumerate(forward[ahead:]):
        order += [each, backward[place]]
    return [*order, *backward[len(forward) - ahead :]]


def _sequence(stages: int, chunks: int, micro_batches: int, *, backwards: bool) -> list[Pass]:
    """Return all forward (or backward) passes: groups of micro-batches, chunk by chunk."""
    group = stages if chunks > 1 else 1
    in_turn = range(chunks - 1, -1, -1) if backwards else range(chunks)
    return [
        (micro_batch, chunk, not backwards)
        for first in range(0, micro_batches, group)
        for chunk in in_turn
        for micro_batch in range(first, min(first + group, micro_batches))
    ]


def _played(
    orders: Sequence[Sequence[Pass]],
    times: Mapping[tuple[int, bool], float],
    *,
    chunks: int,
) -> list[TimelineBox]:
    """Return when each pass runs if every stage works as soon as it can."""
    stages = len(orders)
    done: dict[tuple[int, Pass], float] = {}
    free = [0.0] * stages
    next_up = [0] * stages
    boxes = []
    moved = True
    while moved:
        moved = False
        for stage, order in enumerate(orders):
            while next_up[stage] < len(order):
                wanted = order[next_up[stage]]
                ready = _ready(stage, wanted, stages=stages, chunks=chunks, done=done)
                if ready is None:
                    break
                micro_batch, chunk, forward = wanted
                begin = max(free[stage], ready)
                end = begin + times[stage, forward]
                boxes.append(
                    TimelineBox(
                        stage=stage,
                        chunk=chunk,
                        micro_batch=micro_batch,
                        forward=forward,
                        begin=begin,
                        end=end,
                    )
                )
                done[stage, wanted] = free[stage] = end
                next_up[stage] += 1
                moved = True
    return boxes


def _ready(
    stage: int, wanted: Pass, *, stages: int, chunks: int, done: Mapping[tuple[int, Pass], float]
) -> float | None:
    """Return when what a pass needs is there; None while nobody has made it."""
    micro_batch, chunk, forward = wanted
    if forward:
        if stage == 0 and chunk == 0:
            return 0.0
        before = (stage - 1, chunk) if stage else (stages - 1, chunk - 1)
        return done.get((before[0], (micro_batch, before[1], True)))
    if stage == stages - 1 and chunk == chunks - 1:
        return done.get((stage, (micro_batch, chunk, True)))
    after = (stage + 1, chunk) if stage < stages - 1 else (0, chunk + 1)
    return done.get((after[0], (micro_batch, after[1], False)))
