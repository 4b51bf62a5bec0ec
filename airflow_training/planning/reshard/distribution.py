"""How a tensor lies on a mesh of devices: split, replicated or partial over each axis of the mesh."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from math import prod
from typing import Literal

import numpy as np
import numpy.typing as npt

from airflow_training.errors import InputError

Reduction = Literal["sum", "max", "min"]
Bounds = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Mesh:
    """Devices in a box with named axes. Which devices these are is the placement."""

    axes: tuple[str, ...]
    shape: tuple[int, ...]
    devices: tuple[int, ...]
    """Device numbers, the last axis running fastest."""
    _hash: int = field(init=False, repr=False, compare=False)
    """Kept, as meshes are keys of caches and may have thousands of devices."""

    def __post_init__(self) -> None:
        if len(self.axes) != len(self.shape) or len(set(self.axes)) != len(self.axes):
            raise _error("mesh.axes", self.axes, f"needs one own name per size of {self.shape}")
        if any(size < 1 for size in self.shape):
            raise _error("mesh.shape", self.shape, "sizes start at 1")
        if len(self.devices) != prod(self.shape):
            message = f"{len(self.devices)} devices for {prod(self.shape)} places"
            raise _error("mesh.devices", self.devices, message)
        if len(set(self.devices)) != len(self.devices):
            raise _error("mesh.devices", self.devices, "a device stands on a mesh once")
        object.__setattr__(self, "_hash", hash((self.axes, self.shape, self.devices)))

    def __hash__(self) -> int:
        return self._hash

    @classmethod
    def of(cls, sizes: Mapping[str, int], *, first: int = 0) -> Mesh:
        """Return a mesh of consecutive devices, the first of them numbered `first`."""
        shape = tuple(sizes.values())
        return cls(tuple(sizes), shape, tuple(range(first, first + prod(shape))))

    def size(self, *axes: str) -> int:
        """Return how many devices stand along these axes together."""
        return prod(self.shape[self.axes.index(axis)] for axis in axes)

    def index(self, *axes: str) -> npt.NDArray[np.int64]:
        """Return per device its place along these axes together, the last running fastest."""
        return _index(self, axes)

    def groups(self, *axes: str) -> tuple[tuple[int, ...], ...]:
        """Return the positions in `devices` that differ only along `axes`, in the order of `axes`."""
        others = [axis for axis in self.axes if axis not in axes]
        place = np.lexsort((self.index(*axes), self.index(*others)))
        return tuple(tuple(map(int, row)) for row in place.reshape(-1, self.size(*axes)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """The mapping of one tensor to one mesh.

    An axis of the mesh that is neither in `dims` nor in `partial` replicates.
    """

    mesh: Mesh
    dims: tuple[tuple[str, ...], ...]
    """Per dimension of the tensor, the mesh axes that split it one after the other, major first."""
    partial: tuple[str, ...] = ()
    """Axes along which each device holds one term; `reduction` over all terms gives the value."""
    reduction: Reduction = "sum"
    sizes: tuple[tuple[int, ...] | None, ...] = ()
    """Per dimension the sizes of its slices, major first.

    None: every axis splits as evenly as it can what the axes before it left, bigger slices first.
    """

    def __post_init__(self) -> None:
        used = [axis for axes in self.dims for axis in axes] + list(self.partial)
        for axis in used:
            if axis not in self.mesh.axes:
                raise _error("axis", axis, "the mesh has no such axis", self.mesh.axes)
            if used.count(axis) > 1:
                raise _error("axis", axis, "an axis splits (or sums) a tensor once")
        if self.sizes and len(self.sizes) != len(self.dims):
            raise _error("sizes", self.sizes, f"needs one entry for each of {len(self.dims)} dims")
        for axes, sizes in zip(self.dims, self.sizes, strict=False):
            if sizes is not None and len(sizes) != self.mesh.size(*axes):
                raise _error("sizes", sizes, f"needs {self.mesh.size(*axes)} slices")
        # One spelling for each state, so that equal states compare equal.
        ordered = tuple(axis for axis in self.mesh.axes if axis in self.partial)
        object.__setattr__(self, "partial", ordered)
        object.__setattr__(self, "reduction", self.reduction if ordered else "sum")
        object.__setattr__(self, "sizes", self.sizes or (None,) * len(self.dims))

    @classmethod
    def of(
        cls,
        mesh: Mesh,
        rank: int,
        split: Mapping[int, str | Iterable[str]] | None = None,
        *,
        partial: Iterable[str] = (),
        reduction: Reduction = "sum",
    ) -> Distribution:
        """Return the distribution of a tensor of `rank` dimensions, those in `split` split evenly."""
        dims: list[tuple[str, ...]] = [()] * rank
        for dim, axes in (split or {}).items():
            dims[dim] = (axes,) if isinstance(axes, str) else tuple(axes)
        return cls(mesh=mesh, dims=tuple(dims), partial=tuple(partial), reduction=reduction)

    @property
    def replicated(self) -> tuple[str, ...]:
        """Axes along which every device holds the same."""
        used = {axis for axes in self.dims for axis in axes}.union(self.partial)
        return tuple(axis for axis in self.mesh.axes if axis not in used)

    def slices(self, shape: tuple[int, ...], dim: int) -> tuple[int, ...]:
        """Return the sizes of the slices of dimension `dim`, major first."""
        given = self.sizes[dim]
        if given is None:
            return even_slices(shape[dim], *(self.mesh.size(axis) for axis in self.dims[dim]))
        if sum(given) != shape[dim]:
            raise _error("sizes", given, f"slices sum to {sum(given)}, not to {shape[dim]}")
        return given

    def bounds(self, shape: tuple[int, ...]) -> Bounds:
        """Return (devices, dims, 2): where each device's part starts and stops; do not change it."""
        return _bounds(self, shape)


@lru_cache(maxsize=65536)
def even_slices(size: int, *parts: int) -> tuple[int, ...]:
    """Split `size` into parts[0], each of these into parts[1], ...: evenly, bigger slices first."""
    slices: tuple[int, ...] = (size,)
    for count in parts:
        slices = tuple(
            whole // count + (place < whole % count)
            for whole, place in product(slices, range(count))
        )
    return slices


@lru_cache(maxsize=4096)
def _index(mesh: Mesh, axes: tuple[str, ...]) -> npt.NDArray[np.int64]:
    grid = np.indices(mesh.shape).reshape(len(mesh.shape), -1)
    index = np.zeros(len(mesh.devices), dtype=np.int64)
    for axis in axes:
        index = index * mesh.size(axis) + grid[mesh.axes.index(axis)]
    return index


@lru_cache(maxsize=65536)
def _bounds(distribution: Distribution, shape: tuple[int, ...]) -> Bounds:
    mesh = distribution.mesh
    bounds = np.empty((len(mesh.devices), len(shape), 2), dtype=np.int64)
    for dim, axes in enumerate(distribution.dims):
        stops = np.cumsum(distribution.slices(shape, dim))
        bounds[:, dim, 1] = stops[mesh.index(*axes)]
        bounds[:, dim, 0] = bounds[:, dim, 1] - np.diff(stops, prepend=0)[mesh.index(*axes)]
    return bounds


def _error(field: str, value: object, message: str, allowed: Iterable[str] = ()) -> InputError:
    return InputError.of(
        code="bad_distribution", field=field, value=value, message=message, allowed=tuple(allowed)
    )
