"""From a view and a sharding to the program of one device.

The pattern of a sharding (which of its mesh axes are longer than 1) settles the layouts, the kernels and
the collectives; this is done once per view and pattern. The sizes are then plain arithmetic, on numbers
or on arrays of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from airflow_training.planning.activations import Activations
from airflow_training.planning.computation import ComputationView, Operator, Unit
from airflow_training.planning.control_flow import inlined
from airflow_training.planning.labels import settle
from airflow_training.planning.layouts import Layout, Layouts, layouts, memory_of
from airflow_training.planning.naming import named
from airflow_training.planning.partition import Kernel, Move, Partition, Task
from airflow_training.planning.program import (
    Compute,
    MeshAxis,
    Number,
    Parameters,
    Piece,
    Program,
    Recompute,
    Sharding,
    Transfer,
)
from airflow_training.planning.rules import Rule, rule_of
from airflow_training.planning.seeding import seeds
from airflow_training.planning.symbols import Box, Evaluator, Extent, Memory
from airflow_training.planning.training import is_parameter_gradient, with_backward

ORDER: tuple[MeshAxis, ...] = ("ep", "cp", "tp")
"""Mesh axes inside a layer, the neighbours last. Data parallelism is the micro-batch itself."""
MODES: tuple[Recompute, ...] = ("none", "selective", "full")


@dataclass(frozen=True, slots=True)
class Pattern:
    """What of a sharding decides the layouts."""

    axes: tuple[MeshAxis, ...]
    sequence_parallel: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stretch:
    """A `Piece` without numbers."""

    unit: Unit
    tasks: tuple[Task, ...]
    update: tuple[Task, ...]
    parameters: tuple[tuple[tuple[Box, ...], tuple[MeshAxis, ...], str], ...]
    saved: Mapping[Recompute, tuple[Memory, ...]]
    working: tuple[tuple[Memory, ...], ...]
    boundary: tuple[Memory, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitParameter:
    """A parameter, and how the axes inside a layer split it."""

    name: str
    shape: tuple[int, ...]
    dims: tuple[tuple[str, ...], ...]
    """Per dimension the mesh axes that split it, major first."""
    units: tuple[str, ...]
    """Names of the units that use it: more than one where units share weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Split:
    stretches: tuple[_Stretch, ...]
    parameters: tuple[SplitParameter, ...]
    warnings: tuple[str, ...]


def lower(view: ComputationView, sharding: Sharding) -> Program:
    """Return what each device runs, keeps and sends for one micro-batch.

    Args:
        view: A forward pass or a whole training step.
        sharding: How a layer is split; its sizes may be arrays of one shape, and then so are the numbers
            of the program. The axes that are 1 everywhere leave no trace in it.

    """
    split = _split(view, _pattern(sharding))
    numbers = Evaluator(
        growth=_number(sharding.micro_batch) * _number(sharding.ep) / view.batch,
        axes={axis: _number(getattr(sharding, axis)) for axis in ORDER},
        precision=sharding.precision,
    )
    pieces = tuple(_piece(stretch, numbers) for stretch in split.stretches)
    return Program(name=view.name, sharding=sharding, pieces=pieces, warnings=split.warnings)


def split_parameters(view: ComputationView, sharding: Sharding) -> tuple[SplitParameter, ...]:
    """Return every parameter of a view with the axes that split it; sizes do not matter."""
    return _split(view, _pattern(sharding)).parameters


def _pattern(sharding: Sharding) -> Pattern:
    on = tuple(axis for axis in ORDER if np.any(np.asarray(getattr(sharding, axis)) > 1))
    return Pattern(on, sharding.sequence_parallel and "tp" in on)


_SPLITS: OrderedDict[tuple[int, Pattern], tuple[ComputationView, _Split]] = OrderedDict()
_MOST = 256


def _split(view: ComputationView, pattern: Pattern) -> _Split:
    """Return the split view, from memory where it is known.

    Views are compared by identity (the memory holds on to them): they are large and cannot be hashed.
    """
    key = (id(view), pattern)
    if key not in _SPLITS:
        _SPLITS[key] = (view, _split_anew(training_step(view), pattern))
        if len(_SPLITS) > _MOST:
            _SPLITS.popitem(last=False)
    return _SPLITS[key][1]


def training_step(view: ComputationView) -> ComputationView:
    """Return the whole step of a view: loops and branches laid open, dimensions named, gradients added."""
    return with_backward(named(inlined(view)))


def _split_anew(view: ComputationView, pattern: Pattern) -> _Split:
    known = {operator.name: operator for operator in view.operators}
    rules = {name: rule_of(operator, view.tensors, known) for name, operator in known.items()}
    unreduced = frozenset(
        name for name in view.tensors if is_parameter_gradient(name, view.tensors)
    )
    known_splits = tuple(seeds(view, sequence_parallel=pattern.sequence_parallel))
    placed = layouts(
        view,
        rules,
        settle(view, rules, pattern.axes, known_splits),
        unreduced=unreduced,
        fixed=frozenset(seed.tensor for seed in known_splits),
    )
    partition = Partition(view, rules, placed)
    stretches = [
        _stretch(view, unit, tuple(known[name] for name in unit.operators), rules, partition)
        for unit in view.units
    ]
    warnings = tuple(
        f"no rule for operators of kind {kind!r}: every device runs all of them"
        for kind in sorted({known[name].kind for name, rule in rules.items() if not rule.known})
    )
    parameters = tuple(_split_parameters(view, placed))
    return _Split(stretches=tuple(stretches), parameters=parameters, warnings=warnings)


def _split_parameters(view: ComputationView, placed: Layouts) -> Iterator[SplitParameter]:
    forward = {op.name: op.inputs for op in view.operators if op.phase == "forward"}
    used = [{name for op in unit.operators for name in forward.get(op, ())} for unit in view.units]
    for name, tensor in view.tensors.items():
        if tensor.kind == "parameter":
            units = tuple(
                unit.name for unit, names in zip(view.units, used, strict=True) if name in names
            )
            yield SplitParameter(
                name=name, shape=tensor.shape, dims=placed.tensors[name].dims, units=units
            )


def _stretch(
    view: ComputationView,
    unit: Unit,
    operators: tuple[Operator, ...],
    rules: Mapping[str, Rule],
    partition: Partition,
) -> _Stretch:
    if unit == view.units[-1]:
        operators = tuple(map(_once, operators))
    life = Activations(view, rules, operators)
    placed = partition.layouts
    tensors = view.tensors

    def memory(name: str) -> Memory:
        return memory_of(tensors[name], placed.tensors[name])

    def kept(name: str) -> Memory:
        held = memory(name)
        return replace(held, box=(*held.box, Extent(life.times(name))))

    working = tuple(
        (*map(memory, alive), *_copies(view, operator, placed)) for operator, alive in life.alive()
    )
    passes = tuple(op for op in operators if op.phase != "optimizer")
    updates = tuple(op for op in operators if op.kind == "adam")
    return _Stretch(
        unit=unit,
        tasks=partition.tasks(passes),
        update=tuple(task for task in partition.tasks(updates) if isinstance(task, Kernel)),
        parameters=_parameters(view, unit, operators, placed),
        saved={mode: tuple(map(kept, life.saved(mode))) for mode in MODES},
        working=tuple(dict.fromkeys(working)),
        boundary=tuple(map(memory, _leaving(view, unit))),
    )


def _once(operator: Operator) -> Operator:
    """The last unit's backward pass follows at once: running it again would save nothing."""
    return replace(operator, attributes={**operator.attributes, "recompute": ()})


def _copies(view: ComputationView, operator: Operator, placed: Layouts) -> tuple[Memory, ...]:
    """Return the inputs that had to be moved for an operator: a second copy, while it runs."""
    return tuple(
        memory_of(view.tensors[name], layout)
        for name, layout in zip(operator.inputs, placed.inputs[operator.name], strict=True)
        if layout.dims != placed.tensors[name].dims and view.tensors[name].kind != "parameter"
    )


def _leaving(view: ComputationView, unit: Unit) -> tuple[str, ...]:
    """Return the activations that cross the end of a unit on their way forward."""
    place = {name: i for i, other in enumerate(view.units) for name in other.operators}
    here = view.units.index(unit)
    made: dict[str, int] = {}
    crossing: dict[str, None] = {}
    for operator in view.operators:
        if operator.phase != "forward":
            continue
        for name in operator.inputs:
            if name in made and made[name] <= here < place[operator.name]:
                crossing[name] = None
        made.update(dict.fromkeys(operator.outputs, place[operator.name]))
    return tuple(crossing)


def _parameters(
    view: ComputationView, unit: Unit, operators: tuple[Operator, ...], placed: Layouts
) -> tuple[tuple[tuple[Box, ...], tuple[MeshAxis, ...], str], ...]:
    owner: dict[str, str] = {}
    for other in view.units:
        for operator in view.operators:
            if operator.name in other.operators and operator.phase == "forward":
                for name in operator.inputs:
                    owner.setdefault(name, other.name)
    groups: dict[tuple[tuple[MeshAxis, ...], str], list[Box]] = {}
    forward = (op for op in operators if op.phase == "forward")
    names = dict.fromkeys(name for op in forward for name in op.inputs)
    for name in names:
        tensor = view.tensors[name]
        if tensor.kind != "parameter":
            continue
        layout = placed.tensors[name]
        shared = owner[name] if owner[name] != unit.name else ""
        key = (_replicas(layout, _gradient_layout(view, name, placed)), shared)
        groups.setdefault(key, []).append(memory_of(tensor, layout).box)
    return tuple((tuple(boxes), over, shared) for (over, shared), boxes in groups.items())


def _gradient_layout(view: ComputationView, name: str, placed: Layouts) -> frozenset[str]:
    return frozenset(
        axis
        for made, layout in placed.tensors.items()
        if made.startswith(f"d:{name}") and made.removeprefix(f"d:{name}")[:1] in {"", "@"}
        for axis in layout.partial
        if made in view.tensors
    )


def _replicas(layout: Layout, partial: frozenset[str]) -> tuple[MeshAxis, ...]:
    split = {axis for axes in layout.dims for axis in axes}
    inner = tuple(axis for axis in ("ep", "cp") if axis not in split)
    return ("dp", *inner, *(("tp",) if "tp" in partial else ()))


def _piece(stretch: _Stretch, numbers: Evaluator) -> Piece:
    return Piece(
        name=stretch.unit.name,
        repeat=stretch.unit.repeat,
        work=tuple(_work(task, numbers) for task in stretch.tasks),
        update=tuple(
            _compute(task, numbers) for task in stretch.update if isinstance(task, Kernel)
        ),
        parameters=tuple(
            Parameters(elements=_sum(boxes, numbers), replicated_over=over, shared_with=shared)
            for boxes, over, shared in stretch.parameters
        ),
        saved_bytes={mode: numbers.memory(*parts) for mode, parts in stretch.saved.items()},
        working_bytes=_most([numbers.memory(*parts) for parts in stretch.working]),
        boundary_bytes=numbers.memory(*stretch.boundary),
    )


def _work(task: Task, numbers: Evaluator) -> Compute | Transfer:
    return _transfer(task, numbers) if isinstance(task, Move) else _compute(task, numbers)


def _compute(kernel: Kernel, numbers: Evaluator) -> Compute:
    gemm = None
    if kernel.gemm is not None:
        batch, m, n, k = (numbers.box(box) for box in kernel.gemm)
        gemm = (batch, m, n, k * kernel.depth)
    return Compute(
        name=kernel.name,
        kind=kernel.kind,
        phase=kernel.phase,
        flops=kernel.flops * numbers.box(kernel.points),
        read_bytes=numbers.memory(*kernel.reads),
        written_bytes=numbers.memory(*kernel.writes),
        gemm=gemm,
        dtype=kernel.dtype,
        count=kernel.count,
        recomputed_in=kernel.again,
    )


def _transfer(move: Move, numbers: Evaluator) -> Transfer:
    payload = numbers.memory(*move.payload)
    if move.collective == "send_recv":
        # Round a ring every device passes on all parts but the one that it gets last.
        payload = payload * (numbers.size(move.axis) - 1.0)
    return Transfer(
        name=move.name,
        collective=move.collective,
        axis=move.axis,
        phase=move.phase,
        payload_bytes=payload,
        count=move.count,
        recomputed_in=move.again,
        overlaps=move.overlaps,
    )


def _sum(boxes: Iterable[Box], numbers: Evaluator) -> Number:
    total: Number = 0.0
    for box in boxes:
        total = total + numbers.box(box)
    return total


def _most(values: list[Number]) -> Number:
    most: Number = 0.0
    for value in values:
        most = np.maximum(most, value)
    return most


def _number(value: Number) -> Number:
    return np.asarray(value, dtype=np.float64) if isinstance(value, np.ndarray) else float(value)
