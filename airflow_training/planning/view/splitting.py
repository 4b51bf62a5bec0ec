"""A view split by a pattern: which axes of the mesh there are, however long they will be.

Splitting settles the layouts, the kernels and the moves of every unit, once per view and pattern.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from airflow_training.planning.view.activations import Activations
from airflow_training.planning.view.axis_names import name_dimensions
from airflow_training.planning.view.computation import ComputationView, Operator, Unit
from airflow_training.planning.view.control_flow import inline_bodies
from airflow_training.planning.view.labels import resolve_labels
from airflow_training.planning.view.layouts import layouts, memory_of
from airflow_training.planning.view.partition import Kernel, Partition, Task
from airflow_training.planning.view.program import MeshAxis, Recompute
from airflow_training.planning.view.rules import OperatorRule, rule_of
from airflow_training.planning.view.seeding import seeds
from airflow_training.planning.view.symbols import DimensionSize, TensorMemory
from airflow_training.planning.view.training import is_parameter_gradient, with_backward
from airflow_training.planning.view.weights import SplitParameter, WeightPlacement, Weights

MODES: tuple[Recompute, ...] = ("none", "selective", "full")


@dataclass(frozen=True, slots=True)
class SplitPattern:
    """What of a sharding decides the layouts."""

    axes: tuple[MeshAxis, ...]
    sequence_parallel: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SymbolicPiece:
    """A `ProgramPiece` of a program without numbers."""

    unit: Unit
    tasks: tuple[Task, ...]
    update: tuple[Kernel, ...]
    parameters: tuple[WeightPlacement, ...]
    saved: Mapping[Recompute, tuple[TensorMemory, ...]]
    working: tuple[tuple[TensorMemory, ...], ...]
    """What is alive beside what is saved, at each operator."""
    boundary: tuple[TensorMemory, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitView:
    """All units of a view, split."""

    stretches: tuple[SymbolicPiece, ...]
    parameters: tuple[SplitParameter, ...]
    warnings: tuple[str, ...]


class IdentityKey:
    """A view as a key, by identity: views are large, and hold what cannot be hashed."""

    __slots__ = ("view",)

    def __init__(self, view: ComputationView) -> None:
        self.view = view

    def __hash__(self) -> int:
        return id(self.view)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdentityKey) and self.view is other.view


def split(view: ComputationView, pattern: SplitPattern) -> SplitView:
    """Return the split view, from memory where it is known."""
    return _split(IdentityKey(view), pattern)


@lru_cache(maxsize=256)
def _split(same: IdentityKey, pattern: SplitPattern) -> SplitView:
    return _Splitter(_step(same), pattern).split()


@lru_cache(maxsize=32)
def _step(same: IdentityKey) -> ComputationView:
    return training_step(same.view)


def training_step(view: ComputationView) -> ComputationView:
    """Return the whole step of a view: loops and branches laid open, dimensions named, gradients added."""
    return with_backward(name_dimensions(inline_bodies(view)))


class _Splitter:
    def __init__(self, view: ComputationView, pattern: SplitPattern) -> None:
        self.view = view
        self.known = {operator.name: operator for operator in view.operators}
        self.rules: dict[str, OperatorRule] = {
            name: rule_of(operator, view.tensors, self.known)
            for name, operator in self.known.items()
        }
        splits = tuple(seeds(view, sequence_parallel=pattern.sequence_parallel))
        self.layouts = layouts(
            view,
            self.rules,
            resolve_labels(view, self.rules, pattern.axes, splits),
            unreduced=frozenset(
                name for name in view.tensors if is_parameter_gradient(name, view.tensors)
            ),
            fixed=frozenset(seed.tensor for seed in splits),
        )
        self.partition = Partition(view, self.rules, self.layouts)
        self.weights = Weights(view, self.layouts)
        self.crossing = _crossing(view)

    def split(self) -> SplitView:
        unknown = {self.known[name].kind for name, rule in self.rules.items() if not rule.known}
        return SplitView(
            stretches=tuple(self._stretch(unit) for unit in self.view.units),
            parameters=self.weights.parameters(),
            warnings=tuple(
                f"no rule for operators of kind {kind!r}: every device runs all of them"
                for kind in sorted(unknown)
            ),
        )

    def _stretch(self, unit: Unit) -> SymbolicPiece:
        operators = tuple(self.known[name] for name in unit.operators)
        if unit == self.view.units[-1]:
            operators = tuple(map(_once, operators))
        life = Activations(self.view, self.rules, operators)
        passes = tuple(op for op in operators if op.phase != "optimizer")
        updates = self.partition.tasks(tuple(op for op in operators if op.kind == "adam"))
        working = (
            (*map(self._memory, alive), *self._copies(operator)) for operator, alive in life.alive()
        )
        return SymbolicPiece(
            unit=unit,
            tasks=self.partition.tasks(passes),
            update=tuple(task for task in updates if isinstance(task, Kernel)),
            parameters=self.weights.held_by(unit),
            saved={
                mode: tuple(self._kept(name, life.times(name)) for name in life.saved(mode))
                for mode in MODES
            },
            working=tuple(dict.fromkeys(working)),
            boundary=tuple(map(self._memory, self.crossing[unit.name])),
        )

    def _memory(self, name: str) -> TensorMemory:
        return memory_of(self.view.tensors[name], self.layouts.tensors[name])

    def _kept(self, name: str, times: float) -> TensorMemory:
        held = self._memory(name)
        return replace(held, box=(*held.box, DimensionSize(times)))

    def _copies(self, operator: Operator) -> tuple[TensorMemory, ...]:
        """Return what an operator needs or makes elsewhere than it lies: a second copy, for a moment."""
        placed = self.layouts
        names = (*operator.inputs, *operator.outputs)
        wanted = (*placed.inputs[operator.name], *placed.outputs[operator.name])
        return tuple(
            memory_of(self.view.tensors[name], layout)
            for name, layout in zip(names, wanted, strict=True)
            if layout.dims != placed.tensors[name].dims
            and self.view.tensors[name].kind != "parameter"
        )


def _once(operator: Operator) -> Operator:
    """The last unit's backward pass follows at once: running it again would save nothing."""
    return replace(operator, attributes={**operator.attributes, "recompute": ()})


def _crossing(view: ComputationView) -> dict[str, tuple[str, ...]]:
    """Return per unit the activations that cross its end on their way forward."""
    place = {name: i for i, unit in enumerate(view.units) for name in unit.operators}
    made: dict[str, int] = {}
    until: dict[str, int] = {}
    for operator in view.operators:
        if operator.phase == "forward":
            until.update(dict.fromkeys(operator.inputs, place[operator.name]))
            made.update(dict.fromkeys(operator.outputs, place[operator.name]))
    return {
        unit.name: tuple(
            name for name, start in made.items() if start <= here < until.get(name, start)
        )
        for here, unit in enumerate(view.units)
    }
