"""The units of a view that came without any: where a pipeline may part it, and which of them are equal.

A pipeline parts a view best where a single activation crosses. Two blocks are equal if the same
operators run on the same shapes in the same way; equal ones in a row become one that repeats.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from airflow_training.planning.view.computation import ComputationView, Operator, Unit

__all__ = ["cut_into_units"]

Segment = tuple[Operator, ...]


def cut_into_units(view: ComputationView) -> ComputationView:
    """Return the view in units, with one copy of what repeats.

    A unit starts where one activation crosses that depends on parameters; what does not (labels, masks)
    can be had on any stage. What holds no matrix of parameters and repeats nothing joins a neighbour.
    """
    segments = _segments(view)
    numbers = _signatures(view, segments)
    starts = [any(_dims_read(view, op) > 0 for op in segment) for segment in segments]
    groups = _joined(_repeats(numbers, starts), view, segments)
    renamed: dict[str, str] = {}
    kept: list[tuple[Segment, int]] = []
    for group in groups:
        copies = [
            tuple(op for segment in segments[start : start + group.period] for op in segment)
            for start in range(group.start, group.stop, group.period)
        ]
        for copy in copies[1:]:
            renamed.update(_same(copies[0], copy))
        kept.append((copies[0], group.repeat))
    return _assembled(view, kept, renamed)


@dataclass(frozen=True, slots=True)
class _Group:
    """Segments from `start`: `period` of them, `repeat` times."""

    start: int
    period: int
    repeat: int

    @property
    def stop(self) -> int:
        return self.start + self.period * self.repeat


def _segments(view: ComputationView) -> list[Segment]:
    carried = _carried(view)
    last_read = {name: place for place, op in enumerate(view.operators) for name in op.inputs}
    segments: list[list[Operator]] = []
    alive: set[str] = set()
    for place, op in enumerate(view.operators):
        alive = {name for name in alive if last_read.get(name, -1) >= place}
        if len(alive) == 1 or not segments:
            segments.append([])
        segments[-1].append(op)
        alive.update(name for name in op.outputs if name in carried)
    return [tuple(segment) for segment in segments]


def _carried(view: ComputationView) -> frozenset[str]:
    """Return the activations that parameters have a say in."""
    found = {name for name, tensor in view.tensors.items() if tensor.kind == "parameter"}
    for op in view.operators:
        if found.intersection(op.inputs):
            found.update(op.outputs)
    return frozenset(found)


def _dims_read(view: ComputationView, op: Operator) -> int:
    """Return how many dimensions the largest parameter has that an operator reads; 0: it reads none."""
    tensors = (view.tensors[name] for name in op.inputs)
    return max((len(t.shape) for t in tensors if t.kind == "parameter"), default=0)


def _signatures(view: ComputationView, segments: Sequence[Segment]) -> list[int]:
    """Return a number per segment, the same for equal ones.

    Segments that share parameters are not equal to any other: copies have parameters of their own.
    """
    carried = _carried(view)
    users = Counter(
        name
        for segment in segments
        for name in {name for op in segment for name in op.inputs}
        if view.tensors[name].kind == "parameter"
    )
    known: dict[object, int] = {}
    numbers = []
    for place, segment in enumerate(segments):
        shared = any(users[name] > 1 for op in segment for name in op.inputs)
        signature = place if shared else tuple(_described(view, segment, carried))
        numbers.append(known.setdefault(signature, len(known)))
    return numbers


def _described(
    view: ComputationView, operators: Sequence[Operator], carried: frozenset[str]
) -> Iterator[object]:
    """Yield what operators do, their tensors numbered as they come."""
    numbers: dict[str, int] = {}
    for op in operators:
        tensors = []
        for name in (*op.inputs, *op.outputs):
            tensor = view.tensors[name]
            own = name in carried or tensor.kind == "buffer" or name in op.outputs
            number = numbers.setdefault(name, len(numbers))
            tensors.append(
                (number if own else name, tensor.shape, tensor.dtype, tensor.kind == "parameter")
            )
        bodies = tuple(
            tuple(_described(body, body.operators, frozenset(body.tensors))) for body in op.bodies
        )
        yield (
            op.kind,
            len(op.inputs),
            tuple(tensors),
            repr(sorted(op.attributes.items())),
            op.count,
            bodies,
        )


def _repeats(numbers: Sequence[int], starts: Sequence[bool]) -> Iterator[_Group]:
    """Yield rows of equal segments, each time the one that covers most, of the shortest period.

    A row starts with a segment of `starts`: modules begin with what has parameters.
    """
    start = 0
    while start < len(numbers):
        best = _Group(start, 1, 1)
        longest = (len(numbers) - start) // 2 if starts[start] else 0
        for period in range(1, longest + 1):
            block = numbers[start : start + period]
            repeat = 1
            while numbers[start + repeat * period :][:period] == block:
                repeat += 1
            if repeat > 1 and repeat * period > best.stop - start:
                best = _Group(start, period, repeat)
        yield best
        start = best.stop


def _joined(
    groups: Iterator[_Group], view: ComputationView, segments: Sequence[Segment]
) -> list[_Group]:
    """Join single segments without a matrix to a single neighbour: the one before, or the next."""
    joined: list[_Group] = []
    light: list[bool] = []
    for group in groups:
        single = group.repeat == 1
        is_light = single and not any(
            _dims_read(view, op) > 1
            for segment in segments[group.start : group.stop]
            for op in segment
        )
        if joined and joined[-1].repeat == 1 and single and (is_light or light[-1]):
            before = joined.pop()
            is_light &= light.pop()
            group = _Group(before.start, group.stop - before.start, 1)
        joined.append(group)
        light.append(is_light)
    return joined


def _same(first: Segment, copy: Segment) -> Iterator[tuple[str, str]]:
    """Yield each tensor that a copy makes with the one it stands for."""
    for op, other in zip(first, copy, strict=True):
        yield from zip(other.outputs, op.outputs, strict=True)


def _assembled(
    view: ComputationView, kept: Sequence[tuple[Segment, int]], renamed: dict[str, str]
) -> ComputationView:
    operators: list[Operator] = []
    units: list[Unit] = []
    for segment, repeat in kept:
        ops = [
            replace(op, inputs=tuple(renamed.get(name, name) for name in op.inputs))
            for op in segment
        ]
        operators += ops
        name = _name(view, segment, {unit.name for unit in units})
        units.append(Unit(name=name, operators=tuple(op.name for op in ops), repeat=repeat))
    touched = {name for op in operators for name in (*op.inputs, *op.outputs)}
    results = {renamed.get(name, name) for name, t in view.tensors.items() if t.kind == "output"}
    tensors = {
        name: replace(tensor, kind="output") if name in results else tensor
        for name, tensor in view.tensors.items()
        if name in touched or tensor.kind == "input"
    }
    return replace(view, tensors=tensors, operators=tuple(operators), units=tuple(units))


def _name(view: ComputationView, segment: Segment, taken: set[str]) -> str:
    """Name a unit after the module whose parameters it holds (`layers.0`), or its first operator."""
    paths = [
        name.split(".")[:-1]
        for op in segment
        for name in op.inputs
        if view.tensors[name].kind == "parameter"
    ]
    common: list[str] = []
    for parts in zip(*paths, strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    name = ".".join(common) or segment[0].name
    return name if name not in taken else segment[0].name
