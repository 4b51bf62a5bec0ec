"""Which units of a program a pipeline stage holds. Shared by time, memory and search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from airflow_training.errors import InputError


class RepeatedUnit(Protocol):
    """A unit of a view or a piece of a program: so many equal copies after each other."""

    @property
    def repeat(self) -> int:
        """Return the number of copies."""


def expanded(pieces: Sequence[RepeatedUnit]) -> npt.NDArray[np.int64]:
    """Return the index of the piece of every unit, each repeat counted: shape (units,)."""
    return np.repeat(np.arange(len(pieces)), [piece.repeat for piece in pieces])


def layer_span(pieces: Sequence[RepeatedUnit]) -> tuple[int, int]:
    """Return where the layers begin and end among the units (end excluded).

    Layers are what `stage_layers` counts. Where a view repeats a unit (a transformer), all units from
    the first repeated one to the last are layers; what comes before belongs to the first stage (the
    embedding), what comes after to the last (the head). Where none repeats, every unit is a layer.
    """
    repeated = [index for index, piece in enumerate(pieces) if piece.repeat > 1]
    starts = np.concatenate(([0], np.cumsum([piece.repeat for piece in pieces])))
    if not repeated:
        return 0, int(starts[-1])
    return int(starts[repeated[0]]), int(starts[repeated[-1] + 1])


def even_layers(layers: int, stages: int) -> npt.NDArray[np.int64]:
    """Return how many layers each of `stages` gets when they are spread as evenly as they divide.

    Where they do not divide, the last and the first stage are the first to get fewer, as they hold
    the head and the embedding as well (DeepSpeed's partition of BLOOM's 70 layers over 12 stages);
    then the stages from the end on.
    """
    base, extra = divmod(layers, stages)
    counts = np.full(stages, base, dtype=np.int64)
    shorter_first = [stages - 1, 0, *range(stages - 2, 0, -1)][:stages]
    counts[shorter_first[stages - extra :]] += 1
    return counts


def boundaries(
    pieces: Sequence[RepeatedUnit], stages: int, stage_layers: Sequence[int] | None = None
) -> npt.NDArray[np.int64]:
    """Return where the stages begin among the units: shape (stages + 1,), the last is the end.

    Raises:
        InputError: there are fewer layers than stages, or `stage_layers` does not add up.
    """
    begin, end = layer_span(pieces)
    layers = end - begin
    if stage_layers is None:
        if stages > layers:
            raise InputError.of(
                code="TooManyStages",
                field="strategy.pp",
                message=f"{stages} stages are more than the {layers} layers of the model",
                value=stages,
                allowed=(f"1 to {layers}",),
            )
        counts = even_layers(layers, stages)
    else:
        counts = np.asarray(stage_layers, dtype=np.int64)
        if len(counts) != stages or int(counts.sum()) != layers:
            raise InputError.of(
                code="StageLayersMismatch",
                field="strategy.stage_layers",
                message=f"{list(stage_layers)} does not place {layers} layers on {stages} stages",
                value=list(stage_layers),
                allowed=(f"{stages} numbers that add up to {layers}",),
            )
    starts = begin + np.concatenate(([0], np.cumsum(counts)))
    starts[0] = 0
    starts[-1] = sum(piece.repeat for piece in pieces)
    return starts
