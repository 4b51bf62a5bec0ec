"""The steps that change how a tensor lies on its mesh, and what each of them moves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, permutations
from math import prod
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from airflow_training.planning.reshard.distribution import Distribution, even_slices

StepKind = Literal[
    "slice", "mask", "all_gather", "all_reduce", "reduce_scatter", "all_to_all", "send_recv"
]
Shape: TypeAlias = tuple[int, ...]
Counts: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReshardStep:
    """One step of a reshard, with what it moves in elements of the tensor, and in bytes."""

    kind: StepKind
    """Two kinds are local: `slice` drops what others keep, `mask` makes a value one of several terms."""
    axes: tuple[str, ...]
    """The axes of the source's mesh that the group stands along; none for `send_recv`."""
    source: Distribution
    target: Distribution
    received: int
    """What all devices together receive."""
    busiest: float
    """What the device that receives most receives."""
    payload: int
    """Size of the (largest) whole that a group reduces, gathers or exchanges: nccl-tests' `size`."""
    element_bytes: float = 1.0

    @property
    def received_bytes(self) -> float:
        return self.element_bytes * self.received

    @property
    def busiest_bytes(self) -> float:
        return self.element_bytes * self.busiest

    @property
    def payload_bytes(self) -> float:
        return self.element_bytes * self.payload


def steps_from(state: Distribution, target: Distribution, shape: Shape) -> Iterator[ReshardStep]:
    """Yield every step out of `state` that can be of use on the way to `target`."""
    yield from _gathers_and_exchanges(state, target, shape)
    yield from _slices(state, target, shape)
    yield from _reductions(state, target, shape)
    yield from _masks(state, target, shape)
    for landing in _landings(state, target, shape):
        if landing != state:
            yield _move("send_recv", (), state, landing, shape)


def still_to_receive(state: Distribution, target: Distribution, shape: Shape) -> int:
    """Return a lower bound of what all devices receive on any way from `state` to `target`.

    Every element that a device lacks is sent to it. Of an element that is still in n terms, n - 1
    are sent to where they meet, and the sum to each further device that wants it. Terms that the
    target has too may stay, or be summed and masked again.
    """
    kept = _kept_terms(state, target)
    terms = state.mesh.size(*kept)
    meeting = state.mesh.size(*state.partial) // terms
    if len(kept) < len(state.partial):
        copies = target.mesh.size(*target.replicated)
        least = prod(shape) * terms * (meeting - 1 + copies - 1)
    elif len(kept) < len(target.partial):
        least = 0
    else:
        least = int(_lacked(state, target, shape).sum())
    if kept:
        fewer = terms // min(state.mesh.size(axis) for axis in kept)
        least = min(least, prod(shape) * (terms * meeting - fewer))
    return least


def _gathers_and_exchanges(
    state: Distribution, target: Distribution, shape: Shape
) -> Iterator[ReshardStep]:
    """Only the last axes of a dimension: the others' slices are not contiguous in a group."""
    for dim, axes in enumerate(state.dims):
        for kept in range(len(axes)):
            moved = axes[kept:]
            whole = _unsplit(state, dim, kept, shape)
            yield _move("all_gather", moved, state, whole, shape)
            for other in range(len(shape)):
                if other != dim:
                    for split in _splits(whole, target, other, moved, shape):
                        yield _move("all_to_all", moved, state, split, shape)


def _slices(state: Distribution, target: Distribution, shape: Shape) -> Iterator[ReshardStep]:
    for axis in state.replicated:
        for dim in range(len(shape)):
            for split in _splits(state, target, dim, (axis,), shape):
                yield _move("slice", (axis,), state, split, shape)


def _reductions(state: Distribution, target: Distribution, shape: Shape) -> Iterator[ReshardStep]:
    """What a ring receives: n - 1 terms of a device's part, and the n - 1 other parts to gather."""
    local = _elements(state, shape)
    for count in range(1, len(state.partial) + 1):
        for axes in combinations(state.partial, count):
            n = state.mesh.size(*axes)
            yield ReshardStep(
                kind="all_reduce",
                axes=axes,
                source=state,
                target=_without_terms(state, axes),
                received=2 * (n - 1) * int(local.sum()) // n,
                busiest=2 * (n - 1) * int(local.max()) / n,
                payload=int(local.max()),
            )
    for axis in state.partial:
        n = state.mesh.size(axis)
        reduced = _without_terms(state, (axis,))
        for dim in range(len(shape)):
            for split in _scatters(reduced, target, dim, axis, shape):
                part = _elements(split, shape)
                yield ReshardStep(
                    kind="reduce_scatter",
                    axes=(axis,),
                    source=state,
                    target=split,
                    received=(n - 1) * int(part.sum()),
                    busiest=float((n - 1) * int(part.max())),
                    payload=int(local.max()),
                )


def _scatters(
    state: Distribution, target: Distribution, dim: int, axis: str, shape: Shape
) -> Iterator[Distribution]:
    """Yield the ways to scatter over `axis`, also with the work shared by replicas."""
    others = [other for other in state.replicated if other != axis]
    for count in range(len(others) + 1):
        for sharing in permutations(others, count):
            yield from _splits(state, target, dim, (axis, *sharing), shape)


def _masks(state: Distribution, target: Distribution, shape: Shape) -> Iterator[ReshardStep]:
    """A part becomes a term: padded with the reduction's neutral element, on all but one replica."""
    if state.mesh != target.mesh or (state.partial and state.reduction != target.reduction):
        return
    for axis in target.partial:
        if axis in state.partial:
            continue
        whole = state
        for dim, axes in enumerate(state.dims):
            if axes[-1:] == (axis,):
                whole = _unsplit(state, dim, len(axes) - 1, shape)
        if axis in whole.replicated:
            terms = replace(whole, partial=(*whole.partial, axis), reduction=target.reduction)
            yield _local("mask", (axis,), state, terms)


def _landings(state: Distribution, target: Distribution, shape: Shape) -> Iterator[Distribution]:
    """Yield where sending may land: at the target, or from where masks (and sums elsewhere) finish.

    No gather needs to follow, as each device can be sent all that it lacks. On one mesh sums come
    first, as they make it less; terms may be sent to another mesh where fewer replicas sum them.
    """
    if not set(state.partial) <= set(target.mesh.axes):
        return
    if any(state.mesh.size(axis) != target.mesh.size(axis) for axis in state.partial):
        return
    loose = tuple(axis for axis in target.partial if axis not in state.partial)
    if state.mesh != target.mesh:
        yield from _split_further(_with_terms_of(state, target), target, loose, shape)
    elif _kept_terms(state, target) == list(state.partial):
        landing = replace(target, partial=state.partial)
        for split in _split_further(landing, target, loose, shape):
            yield split
            yield _sliced_as_before(split, state, loose)


@lru_cache(maxsize=4096)
def _split_further(
    state: Distribution, target: Distribution, axes: tuple[str, ...], shape: Shape
) -> tuple[Distribution, ...]:
    """Return `state` and all that slicing it by some of these axes makes, in any order."""
    found = {state: None}
    last = [state]
    while last:
        made = [
            split
            for one in last
            for axis in axes
            if axis in one.replicated
            for dim in range(len(shape))
            for split in _splits(one, target, dim, (axis,), shape)
        ]
        last = [one for one in dict.fromkeys(made) if one not in found]
        found |= dict.fromkeys(last)
    return tuple(found)


def _sliced_as_before(
    split: Distribution, state: Distribution, axes: tuple[str, ...]
) -> Distribution:
    """Return `split` with the slices that `state` has where some of these axes split both alike."""
    sizes = tuple(
        given if now == before and set(now) & set(axes) else size
        for size, now, given, before in zip(
            split.sizes, split.dims, state.sizes, state.dims, strict=True
        )
    )
    return replace(split, sizes=sizes)


def _with_terms_of(state: Distribution, target: Distribution) -> Distribution:
    dims = tuple(tuple(axis for axis in axes if axis not in state.partial) for axes in target.dims)
    sizes = tuple(
        given if now == axes else None
        for now, axes, given in zip(dims, target.dims, target.sizes, strict=True)
    )
    return replace(target, dims=dims, sizes=sizes, partial=state.partial, reduction=state.reduction)


def _kept_terms(state: Distribution, target: Distribution) -> list[str]:
    """Return the axes whose terms can stay terms up to the target."""
    if state.reduction != target.reduction:
        return []
    return [
        axis
        for axis in state.partial
        if axis in target.partial and state.mesh.size(axis) == target.mesh.size(axis)
    ]


def _move(
    kind: StepKind,
    axes: tuple[str, ...],
    source: Distribution,
    target: Distribution,
    shape: Shape,
) -> ReshardStep:
    """Return a step in which each device receives just what it lacks; a local one if that is nothing."""
    lacked = _lacked(source, target, shape)
    received = int(lacked.sum())
    if not received:
        return _local("slice", axes, source, target)
    busiest = int(lacked.max())
    payload = busiest
    if kind in {"all_gather", "all_to_all"}:
        whole = target if kind == "all_gather" else source
        payload = int(_elements(whole, shape).max())
    return ReshardStep(
        kind=kind,
        axes=axes,
        source=source,
        target=target,
        received=received,
        busiest=float(busiest),
        payload=payload,
    )


def _local(
    kind: StepKind, axes: tuple[str, ...], source: Distribution, target: Distribution
) -> ReshardStep:
    return ReshardStep(
        kind=kind, axes=axes, source=source, target=target, received=0, busiest=0.0, payload=0
    )


@lru_cache(maxsize=65536)
def _lacked(source: Distribution, target: Distribution, shape: Shape) -> Counts:
    """Return per device of `target` the elements of its part that it does not hold in `source`.

    Where terms are moved, a device holds (and is sent) only those of its own place along their axes.
    """
    wanted, held = target.bounds(shape), source.bounds(shape)
    holds = np.ones(len(wanted), dtype=np.int64)
    if source.mesh != target.mesh:
        place = {device: number for number, device in enumerate(source.mesh.devices)}
        mine = np.array([place.get(device, -1) for device in target.mesh.devices])
        theirs = source.mesh.index(*source.partial)[mine]
        holds = ((mine >= 0) & (theirs == target.mesh.index(*source.partial))).astype(np.int64)
        held = held[mine]
    shared = np.minimum(wanted[:, :, 1], held[:, :, 1]) - np.maximum(wanted[:, :, 0], held[:, :, 0])
    kept = np.maximum(shared, 0).prod(axis=1) * holds
    lacked: Counts = _elements(target, shape) - kept
    return lacked


@lru_cache(maxsize=65536)
def _elements(state: Distribution, shape: Shape) -> Counts:
    bounds = state.bounds(shape)
    elements: Counts = (bounds[:, :, 1] - bounds[:, :, 0]).prod(axis=1)
    return elements


def _splits(
    state: Distribution, target: Distribution, dim: int, axes: tuple[str, ...], shape: Shape
) -> Iterator[Distribution]:
    """Yield `state` with its slices of `dim` split by `axes`: evenly, and as `target` has them."""
    before = state.slices(shape, dim)
    counts = tuple(state.mesh.size(axis) for axis in axes)
    split = (*state.dims[dim], *axes)
    evenly = tuple(part for whole in before for part in even_slices(whole, *counts))
    yield _with(state, dim, split, evenly, shape)
    if target.sizes[dim] and state.mesh == target.mesh and target.dims[dim][: len(split)] == split:
        finest = target.slices(shape, dim)
        wanted = _merged(finest, len(finest) // state.mesh.size(*split))
        if wanted != evenly and _merged(wanted, prod(counts)) == before:
            yield _with(state, dim, split, wanted, shape)


def _unsplit(state: Distribution, dim: int, kept: int, shape: Shape) -> Distribution:
    """Return `state` with only the first `kept` axes left on `dim`."""
    axes = state.dims[dim]
    slices = _merged(state.slices(shape, dim), state.mesh.size(*axes[kept:]))
    return _with(state, dim, axes[:kept], slices, shape)


def _with(
    state: Distribution, dim: int, axes: tuple[str, ...], slices: tuple[int, ...], shape: Shape
) -> Distribution:
    even = slices == even_slices(shape[dim], *(state.mesh.size(axis) for axis in axes))
    return replace(
        state,
        dims=(*state.dims[:dim], axes, *state.dims[dim + 1 :]),
        sizes=(*state.sizes[:dim], None if even else slices, *state.sizes[dim + 1 :]),
    )


def _without_terms(state: Distribution, axes: tuple[str, ...]) -> Distribution:
    return replace(state, partial=tuple(axis for axis in state.partial if axis not in axes))


def _merged(slices: tuple[int, ...], count: int) -> tuple[int, ...]:
    return tuple(sum(slices[start : start + count]) for start in range(0, len(slices), count))
