"""Hypothesis strategies for meshes of up to three axes and for what can lie on them."""

from __future__ import annotations

from math import prod

from hypothesis import strategies as st

from airflow_training.planning.reshard.distribution import Distribution, Mesh

shapes = st.lists(st.integers(1, 6), max_size=3).map(tuple)


@st.composite
def meshes(draw: st.DrawFn, devices: int = 12, max_axes: int = 3) -> Mesh:
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=max_axes))
    while prod(sizes) > 12:
        sizes.pop()
    numbers = draw(st.permutations(range(devices)))
    return Mesh(tuple("abc"[: len(sizes)]), tuple(sizes), tuple(numbers[: prod(sizes)]))


@st.composite
def distributions(
    draw: st.DrawFn, mesh: Mesh, shape: tuple[int, ...], *, odd_sizes: bool = True
) -> Distribution:
    """Each axis replicates, holds terms, or splits one dimension, into slices of any size if wanted."""
    dims: list[tuple[str, ...]] = [()] * len(shape)
    partial = []
    for axis in draw(st.permutations(mesh.axes)):
        use = draw(st.integers(-2, len(shape) - 1))
        if use >= 0:
            dims[use] += (axis,)
        elif use == -1:
            partial.append(axis)
    sizes = tuple(
        draw(st.none() | slices(size, mesh.size(*axes))) if odd_sizes else None
        for size, axes in zip(shape, dims, strict=True)
    )
    return Distribution(
        mesh=mesh,
        dims=tuple(dims),
        partial=tuple(partial),
        reduction=draw(st.sampled_from(["sum", "max"])),
        sizes=sizes,
    )


@st.composite
def slices(draw: st.DrawFn, size: int, count: int) -> tuple[int, ...]:
    cuts = sorted(draw(st.lists(st.integers(0, size), min_size=count - 1, max_size=count - 1)))
    return tuple(b - a for a, b in zip([0, *cuts], [*cuts, size], strict=True))
