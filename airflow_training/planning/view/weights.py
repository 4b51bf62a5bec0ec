"""Which parameters the units of a split view hold, and over which axes of the mesh they are replicated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_training.planning.view.computation import ComputationView, Unit
from airflow_training.planning.view.layouts import Layouts, memory_of
from airflow_training.planning.view.program import MeshAxis
from airflow_training.planning.view.symbols import Box
from airflow_training.planning.view.training import is_parameter_gradient, of_gradient


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightPlacement:
    """`Parameters` of a program without numbers."""

    boxes: tuple[Box, ...]
    replicated_over: tuple[MeshAxis, ...]
    shared_with: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitParameter:
    """A parameter, and how the axes inside a layer split it."""

    name: str
    shape: tuple[int, ...]
    dims: tuple[tuple[str, ...], ...]
    """Per dimension the mesh axes that split it, major first."""
    units: tuple[str, ...]
    """Names of the units that use it: more than one where units share weights."""


class Weights:
    """The parameters of one split view."""

    def __init__(self, view: ComputationView, layouts: Layouts) -> None:
        self.tensors = view.tensors
        self.layouts = layouts
        self.users = _users(view)
        self.summed: dict[str, frozenset[str]] = {}
        """Per parameter the axes over which its gradient is made as a sum."""
        for name, layout in layouts.tensors.items():
            if is_parameter_gradient(name, view.tensors):
                of = of_gradient(name)
                self.summed[of] = self.summed.get(of, frozenset()) | layout.partial

    def parameters(self) -> tuple[SplitParameter, ...]:
        """Return every parameter with the axes that split it."""
        return tuple(
            SplitParameter(
                name=name,
                shape=tensor.shape,
                dims=self.layouts.tensors[name].dims,
                units=self.users.get(name, ()),
            )
            for name, tensor in self.tensors.items()
            if tensor.kind == "parameter"
        )

    def held_by(self, unit: Unit) -> tuple[WeightPlacement, ...]:
        """Return the parameters of a unit, those together that are replicated over the same axes.

        A parameter belongs to the first unit that uses it; the others share it.
        """
        groups: dict[tuple[tuple[MeshAxis, ...], str], list[Box]] = {}
        for name, units in self.users.items():
            if unit.name in units:
                shared = units[0] if units[0] != unit.name else ""
                box = memory_of(self.tensors[name], self.layouts.tensors[name]).box
                groups.setdefault((self._replicas(name), shared), []).append(box)
        return tuple(
            WeightPlacement(boxes=tuple(boxes), replicated_over=over, shared_with=shared)
            for (over, shared), boxes in groups.items()
        )

    def _replicas(self, name: str) -> tuple[MeshAxis, ...]:
        """Return the axes along which its gradient is to be reduced: tp only where it is a sum there."""
        split = {axis for axes in self.layouts.tensors[name].dims for axis in axes}
        inner: tuple[MeshAxis, ...] = ("ep", "cp")
        over = tuple(axis for axis in inner if axis not in split)
        return ("dp", *over, *(("tp",) if "tp" in self.summed.get(name, ()) else ()))


def _users(view: ComputationView) -> Mapping[str, tuple[str, ...]]:
    """Return per parameter the names of the units that use it, first to last."""
    unit_of = {name: unit.name for unit in view.units for name in unit.operators}
    found: dict[str, dict[str, None]] = {}
    for operator in view.operators:
        if operator.phase == "forward":
            for name in operator.inputs:
                if view.tensors[name].kind == "parameter":
                    found.setdefault(name, {})[unit_of[operator.name]] = None
    return {name: tuple(units) for name, units in found.items()}
