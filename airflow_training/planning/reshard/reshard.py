"""The cheapest way from one distribution of a tensor to another.

A* over distributions. The measure is the bytes that all devices together receive, as
each step is done on its own: a device is sent what it lacks of its new part; a ring reduces with n - 1
terms of each part received, and an all-reduce gathers these afterwards (Patarasuk and Yuan,
"Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009). Among paths with equal
bytes the one with the fewest calls wins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from heapq import heappop, heappush
from itertools import count

from airflow_training.planning.reshard.distribution import Distribution, even_slices
from airflow_training.planning.reshard.steps import ReshardStep, Shape, steps_from, still_to_receive
from airflow_training.planning.view.computation import Tensor

Cost = tuple[int, int]
"""Elements received by all devices, then effort."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """Steps from one distribution to another; none where nothing changes."""

    steps: tuple[ReshardStep, ...]
    """What all devices together receive in them is the least that there is."""


def reshard(
    tensor: Tensor, source: Distribution, target: Distribution, *, element_bytes: float
) -> Path:
    """Return the cheapest path from `source` to `target`, which may lie on different meshes.

    Raises InputError where explicit slice sizes do not sum to the tensor's shape.
    """
    steps = cheapest(tensor.shape, _normal(source, tensor.shape), _normal(target, tensor.shape))
    return Path(steps=tuple(replace(step, element_bytes=element_bytes) for step in steps))


@lru_cache(maxsize=65536)
def cheapest(shape: Shape, source: Distribution, target: Distribution) -> tuple[ReshardStep, ...]:
    """Return the steps of the cheapest path (A*); both ends in their normal spelling."""
    nothing = (0, 0)
    best: dict[Distribution, Cost] = {source: nothing}
    came: dict[Distribution, ReshardStep] = {}
    order = count()
    queue = [(nothing, next(order), nothing, source)]
    while queue:
        _, _, cost, state = heappop(queue)
        if state == target:
            break
        if cost > best[state]:
            continue
        for step in steps_from(state, target, shape):
            reached = (cost[0] + step.received, cost[1] + _effort(step))
            if step.target not in best or reached < best[step.target]:
                best[step.target] = reached
                came[step.target] = step
                hoped = (reached[0] + still_to_receive(step.target, target, shape), reached[1])
                heappush(queue, (hoped, next(order), reached, step.target))
    path: list[ReshardStep] = []
    state = target
    while state != source:
        path.append(came[state])
        state = path[-1].source
    return tuple(reversed(path))


def _effort(step: ReshardStep) -> int:
    """On one mesh sending piece by piece is the last resort: collectives that move as little are faster."""
    if step.kind in {"slice", "mask"}:
        return 1
    return 100 if step.kind == "send_recv" and step.source.mesh == step.target.mesh else 10


def _normal(state: Distribution, shape: Shape) -> Distribution:
    """Return the state with None for every explicit split that is the even one."""
    return replace(
        state,
        sizes=tuple(
            None
            if state.slices(shape, dim)
            == even_slices(shape[dim], *(state.mesh.size(axis) for axis in axes))
            else state.sizes[dim]
            for dim, axes in enumerate(state.dims)
        ),
    )
