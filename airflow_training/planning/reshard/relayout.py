"""What devices read of a checkpoint when a job goes on under another split.

A checkpoint holds the fp32 weights and both moments of every parameter, each part written by the device
that updates it. Devices are numbered with tensor-parallel ranks next to each other, then replicas, then
stages; a device keeps its number, and where there are fewer the last numbers are gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airflow_training.planning.reshard.distribution import Distribution, Mesh
from airflow_training.planning.view.computation import ComputationView
from airflow_training.planning.view.lowering import lower, split_parameters
from airflow_training.planning.view.program import ProgramPiece, Sharding
from airflow_training.planning.view.stages import boundaries
from airflow_training.planning.view.strategy import Strategy
from airflow_training.planning.view.weights import SplitParameter

STATE_BYTES = 12
"""Per parameter: weight and two moments, 4 bytes each."""

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Relayout:
    """Bytes of the checkpoint that are read when the new split starts."""

    read_bytes: int
    """By all devices together."""
    moved_bytes: int
    """Of these, what another device wrote: nothing where the split stays."""
    busiest_bytes: int
    """By the device that reads most."""


def relayout(view: ComputationView, old: Strategy, new: Strategy) -> Relayout:
    """Reads that start `new` from a checkpoint of `old`, exact to the byte.

    Raises:
        InputError: a strategy has more stages than the view has layers.
    """
    before, after = _Split.of(view, old), _Split.of(view, new)
    read = np.zeros(new.devices, dtype=np.int64)
    held = np.zeros(new.devices, dtype=np.int64)
    for earlier, later in zip(before.parameters, after.parameters, strict=True):
        was, becomes = before.holders(earlier), after.holders(later)
        read += becomes.sum(axis=1)[after.stage] * after.sizes(later)[after.place]
        both = min(old.devices, new.devices)
        common = (was @ becomes.T)[before.stage[:both], after.stage[:both]]
        held[:both] += common * _overlaps(
            before.bounds(earlier)[before.place[:both]], after.bounds(later)[after.place[:both]]
        )
    return Relayout(
        read_bytes=STATE_BYTES * int(read.sum()),
        moved_bytes=STATE_BYTES * int((read - held).sum()),
        busiest_bytes=STATE_BYTES * int(read.max()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Split:
    """Where a strategy puts the units of a view and the parts of its parameters."""

    strategy: Strategy
    parameters: tuple[SplitParameter, ...]
    unit_names: tuple[str, ...]
    """Of every unit in the order of the pipeline, each repeat counted."""
    unit_stages: Counts
    stage: Counts
    """Of every device."""
    place: Counts
    """Of every device within its stage."""

    @classmethod
    def of(cls, view: ComputationView, strategy: Strategy) -> _Split:
        sharding = Sharding(
            tp=strategy.tp,
            cp=strategy.cp,
            ep=strategy.ep,
            sequence_parallel=strategy.sequence_parallel,
        )
        pieces = lower(view, sharding).pieces
        devices = np.arange(strategy.devices)
        per_stage = strategy.devices // strategy.pp
        return cls(
            strategy=strategy,
            parameters=split_parameters(view, sharding),
            unit_names=tuple(piece.name for piece in pieces for _ in range(piece.repeat)),
            unit_stages=_stages_of_units(pieces, strategy),
            stage=devices // per_stage,
            place=devices % per_stage,
        )

    def holders(self, parameter: SplitParameter) -> Counts:
        """Return which stage holds which copy of a parameter: 0 or 1, shape (stages, copies).

        Repeated units have a copy each; units that share weights have one in common.
        """
        units = [i for i, name in enumerate(self.unit_names) if name in parameter.units]
        found = np.zeros((self.strategy.pp, len(units)), dtype=np.int64)
        found[self.unit_stages[units], np.arange(len(units))] = 1
        return found.max(axis=1, keepdims=True) if len(parameter.units) > 1 else found

    def bounds(self, parameter: SplitParameter) -> Counts:
        """Return where the part of each place in a stage starts and stops: (places, dims, 2)."""
        strategy = self.strategy
        replicas = strategy.dp * strategy.cp
        mesh = Mesh.of({"dp": replicas // strategy.ep, "ep": strategy.ep, "tp": strategy.tp})
        dims = list(parameter.dims)
        if strategy.zero >= 1 and dims:
            used = {axis for axes in dims for axis in axes}
            dims[0] = (*dims[0], *(axis for axis in ("dp", "ep") if axis not in used))
        return Distribution(mesh=mesh, dims=tuple(dims)).bounds(parameter.shape)

    def sizes(self, parameter: SplitParameter) -> Counts:
        """Return how many elements each place in a stage updates."""
        bounds = self.bounds(parameter)
        return _overlaps(bounds, bounds)


def _stages_of_units(pieces: Sequence[ProgramPiece], strategy: Strategy) -> Counts:
    """Return the stage of every unit; chunks of virtual stages are dealt out in turn."""
    given = strategy.stage_layers
    chunks = strategy.pp * strategy.virtual_stages if given is None else len(given)
    starts = boundaries(pieces, chunks, given)
    return np.repeat(np.arange(chunks), np.diff(starts)) % strategy.pp


def _overlaps(one: Counts, other: Counts) -> Counts:
    """Return how many elements two boxes have in common, for each of a row of pairs."""
    low = np.maximum(one[..., 0], other[..., 0])
    high = np.minimum(one[..., 1], other[..., 1])
    common: Counts = np.maximum(high - low, 0).prod(axis=-1)
    return common
