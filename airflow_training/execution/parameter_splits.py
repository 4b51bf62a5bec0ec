"""Which dimension of each parameter tensor parallel ranks split, by the planner's own view of the module.

The view folds equal layers in a row into one; the parameters of the others are split as those of the layer
that the view keeps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_training.planning.view.computation import ComputationView

__all__ = ["match_splits", "split_dimensions"]

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")


def split_dimensions(
    view: ComputationView, shapes: Mapping[str, tuple[int, ...]], *, sequence_parallel: bool
) -> dict[str, int | None]:
    """Find for each parameter of the module which dimension `tp` splits; None keeps it whole on every rank."""
    from airflow_training.planning.view.lowering import split_parameters
    from airflow_training.planning.view.program import Sharding

    found = split_parameters(
        view, Sharding(tp=2, micro_batch=1, sequence_parallel=sequence_parallel)
    )
    known = {
        each.name: (
            each.shape,
            next((dim for dim, axes in enumerate(each.dims) if "tp" in axes), None),
        )
        for each in found
    }
    return match_splits(known, shapes)


def match_splits(
    known: Mapping[str, tuple[tuple[int, ...], int | None]],
    shapes: Mapping[str, tuple[int, ...]],
) -> dict[str, int | None]:
    """Give each name of `shapes` the split that is known for it, or for its like in an equal layer."""
    alike: dict[tuple[str, tuple[int, ...]], int | None] = {}
    for name, (shape, dim) in known.items():
        alike.setdefault((_NUMBER.sub("*", name), tuple(shape)), dim)
    return {
        name: known[name][1] if name in known else alike.get((_NUMBER.sub("*", name), tuple(shape)))
        for name, shape in shapes.items()
    }
