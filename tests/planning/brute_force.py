"""The fewest elements that a reshard can move, found by trying every way. Shares no code with it.

Between any two distributions one jump is priced by the sets of elements that devices hold and want,
not by what some collective can do; the minimum runs over all chains of jumps.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import permutations, product

import numpy as np

from airflow_training.planning.reshard.distribution import Distribution, Mesh, Reduction


def states(mesh: Mesh, shape: tuple[int, ...], ends: list[Distribution]) -> list[Distribution]:
    """Return every distribution over the mesh with even slices, and with those of the two ends."""
    reductions: set[Reduction] = {end.reduction for end in ends if end.partial} or {"sum"}
    no_terms: set[Reduction] = {"sum"}
    found = dict.fromkeys(end for end in ends if end.mesh == mesh)
    for dims, partial in assignments(mesh, len(shape)):
        odd = [
            {None, *(end.sizes[dim] for end in ends if end.mesh == mesh and end.dims[dim] == axes)}
            for dim, axes in enumerate(dims)
        ]
        for sizes, reduction in product(product(*odd), reductions if partial else no_terms):
            state = Distribution(
                mesh=mesh, dims=dims, partial=partial, reduction=reduction, sizes=sizes
            )
            found[state] = None
    return list(found)


def assignments(
    mesh: Mesh, rank: int
) -> Iterator[tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]]:
    seen = set()
    for order in permutations(mesh.axes):
        for uses in product(range(-2, rank), repeat=len(order)):
            dims = tuple(
                tuple(axis for axis, use in zip(order, uses, strict=True) if use == dim)
                for dim in range(rank)
            )
            partial = tuple(axis for axis in mesh.axes if uses[order.index(axis)] == -1)
            if (dims, partial) not in seen:
                seen.add((dims, partial))
                yield dims, partial


def fewest_elements(shape: tuple[int, ...], source: Distribution, target: Distribution) -> Fraction:
    """Return the least that all devices together receive on any chain of jumps (Bellman-Ford)."""
    ends = [source, target]
    nodes = [s for mesh in dict.fromkeys(e.mesh for e in ends) for s in states(mesh, shape, ends)]
    held = {state: holdings(state, shape) for state in nodes}
    best = {source: Fraction(0)}
    changed = {source}
    while changed:
        again = set()
        for here in changed:
            for there in nodes:
                price = jump(here, there, held)
                if price is None:
                    continue
                reached = best[here] + price
                if there not in best or reached < best[there]:
                    best[there] = reached
                    again.add(there)
        changed = again
    return best[target]


def holdings(
    state: Distribution, shape: tuple[int, ...]
) -> dict[int, tuple[tuple[int, ...], np.ndarray]]:
    """Return per device the term it holds and which elements of it."""
    cuts = [np.cumsum([0, *state.slices(shape, dim)]).tolist() for dim in range(len(shape))]
    held = {}
    for place, device in zip(np.ndindex(state.mesh.shape), state.mesh.devices, strict=True):
        at = dict(zip(state.mesh.axes, place, strict=True))
        inside = np.zeros(shape, dtype=bool)
        box = []
        for axes, cut in zip(state.dims, cuts, strict=True):
            number = 0
            for axis in axes:
                number = number * state.mesh.size(axis) + at[axis]
            box.append(slice(cut[number], cut[number + 1]))
        inside[tuple(box)] = True
        held[device] = (tuple(at[axis] for axis in state.partial), inside)
    return held


def jump(here: Distribution, there: Distribution, held) -> Fraction | None:
    if here == there:
        return None
    if here.partial and there.partial and here.reduction != there.reduction:
        return None
    before, after = held[here], held[there]
    if same_terms(here, there):
        return Fraction(sum(lacked(device, before, after) for device in after))
    if here.mesh != there.mesh:
        return None
    if set(there.partial) < set(here.partial):
        return reduced(here, there, before, after)
    if set(here.partial) < set(there.partial):
        return masked(here, there, before, after)
    return None


def same_terms(here: Distribution, there: Distribution) -> bool:
    return here.partial == there.partial and all(
        here.mesh.size(axis) == there.mesh.size(axis) for axis in here.partial
    )


def lacked(device, before, after) -> int:
    term, wanted = after[device]
    if device in before and before[device][0] == term:
        return int((wanted & ~before[device][1]).sum())
    return int(wanted.sum())


def reduced(here, there, before, after) -> Fraction | None:
    """Each device pulls the terms of some of what it holds; or a ring reduces all of it."""
    n = here.mesh.size(*(axis for axis in here.partial if axis not in there.partial))
    wanted = sum(int(inside.sum()) for _, inside in after.values())
    if any((inside & ~before[device][1]).any() for device, (_, inside) in after.items()):
        return None
    if all(np.array_equal(inside, before[device][1]) for device, (_, inside) in after.items()):
        return Fraction(2 * (n - 1) * wanted, n)
    return Fraction((n - 1) * wanted)


def masked(here, there, before, after) -> Fraction | None:
    """Free, where each device's new part is covered by what its group holds, and it holds its own."""
    new = [axis for axis in there.partial if axis not in here.partial]
    for group in here.mesh.groups(*new):
        devices = [here.mesh.devices[place] for place in group]
        covered = np.logical_or.reduce([before[device][1] for device in devices])
        if any((after[device][1] & ~covered).any() for device in devices):
            return None
    return Fraction(0)
