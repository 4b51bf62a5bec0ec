"""Where the stages of a pipeline begin, in terms of the parameters that a traced module reads. Pure.

The view says how many units a stage holds; a stage begins where its first unit first reads a parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_training.errors import InputError
from airflow_training.planning.view.computation import ComputationView
from airflow_training.planning.view.stages import boundaries

__all__ = ["UnitParameters", "find_stage_starts", "unit_parameters"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitParameters:
    """What one copy of a unit reads."""

    own: int
    """Parameters that no unit before it reads."""
    shared: tuple[str, ...]
    """Names of those that one before it does."""


def unit_parameters(view: ComputationView) -> list[UnitParameters]:
    """List for every unit, each copy counted, the parameters it reads."""
    operators = {each.name: each for each in view.operators}
    seen: set[str] = set()
    found: list[UnitParameters] = []
    for unit in view.units:
        names = dict.fromkeys(
            name
            for operator in unit.operators
            for name in operators[operator].inputs
            if view.tensors[name].kind == "parameter"
        )
        shared = tuple(name for name in names if name in seen)
        copy = UnitParameters(own=len(names) - len(shared), shared=shared)
        found.extend([copy] * unit.repeat)
        seen.update(names)
    return found


def find_stage_starts(
    view: ComputationView,
    reads: Sequence[str],
    *,
    stages: int,
    stage_layers: Sequence[int] | None = None,
) -> list[int]:
    """Find with which read of a parameter each stage but the first begins.

    Args:
        view: the module's view; none of its units is split.
        reads: names of the parameters in the order in which the traced module reads them.
        stages: how many there are.
        stage_layers: layers of each; None: as even as they divide.

    Raises:
        InputError: there are more stages than layers, a stage would have no parameter, or module and view do
            not read the same parameters.

    """
    units = unit_parameters(view)
    starts = _unit_starts(units, reads)
    edges = boundaries(view.units, stages, stage_layers)
    cuts: list[int] = []
    for stage, edge in enumerate(edges[1:-1], start=1):
        later = [start for start in starts[int(edge) :] if start is not None]
        if not later or later[0] <= (cuts[-1] if cuts else 0):
            raise InputError.of(
                code="EmptyStage",
                field="strategy.pp",
                message=f"stage {stage if not later else stage - 1} of {stages} would hold no parameter",
                value=stages,
                hint="take fewer stages, or say `stage_layers`",
            )
        cuts.append(later[0])
    return cuts


def _unit_starts(units: Sequence[UnitParameters], reads: Sequence[str]) -> list[int | None]:
    """Find for each unit its first read; None where it reads no parameter."""
    first = list({name: place for place, name in reversed(list(enumerate(reads)))}.values())
    first.sort()
    total = sum(unit.own for unit in units)
    if total != len(first):
        raise InputError.of(
            code="ViewMismatch",
            field="module",
            message=f"the traced module reads {len(first)} parameters, its view {total}",
            hint="a parameter that forward does not read cannot lie on a stage",
        )
    taken = 0
    here = -1
    starts: list[int | None] = []
    for unit in units:
        start: int | None = None
        if unit.own:
            start = first[taken]
            taken += unit.own
        elif unit.shared:
            start = next(
                (place for place in range(here + 1, len(reads)) if reads[place] in unit.shared),
                None,
            )
        starts.append(start)
        here = start if start is not None else here
    return starts
