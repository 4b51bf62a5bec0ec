"""A training step split over a mesh whose sizes are still open: kernels and the moves between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

from airflow_training.planning.view.computation import ComputationView, Operator, Phase
from airflow_training.planning.view.layouts import Layout, Layouts, memory_of, points
from airflow_training.planning.view.program import Collective, MeshAxis, Recompute
from airflow_training.planning.view.rules import OperatorRule
from airflow_training.planning.view.symbols import Box, TensorMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A `Compute` without numbers."""

    name: str
    kind: str
    phase: Phase
    flops: float
    """Per point."""
    points: Box
    reads: tuple[TensorMemory, ...]
    writes: tuple[TensorMemory, ...]
    gemm: tuple[Box, Box, Box, Box] | None
    row_lengths: tuple[Box, Box, Box] | None
    depth: float
    dtype: str
    count: float
    again: frozenset[Recompute]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A `Transfer` without numbers."""

    name: str
    collective: Collective
    axis: MeshAxis
    phase: Phase
    payload: tuple[TensorMemory, ...]
    count: float
    again: frozenset[Recompute]
    tensor: str
    overlaps: str = ""


Task = Kernel | Move


def recompute_modes(operator: Operator) -> frozenset[Recompute]:
    """Return the modes in which the backward pass runs this forward operator again."""
    if operator.phase != "forward":
        return frozenset()
    return frozenset(operator.attributes.get("recompute", ("full",)))


class Partition:
    """Splits the operators of one view."""

    def __init__(
        self, view: ComputationView, rules: Mapping[str, OperatorRule], layouts: Layouts
    ) -> None:
        self.view = view
        self.rules = rules
        self.layouts = layouts
        self._operators = {operator.name: operator for operator in view.operators}

    def tasks(self, operators: tuple[Operator, ...]) -> tuple[Task, ...]:
        """Tasks of one device for operators of one unit, in their order."""
        found: list[Task] = []
        moved: set[tuple[str, Layout, Phase]] = set()
        for operator in operators:
            found += self._before(operator, moved)
            if not self.rules[operator.name].free:
                found.append(self._kernel(operator))
            found += self._inside(operator)
            found += self._after(operator)
        return tuple(_overlapped(found, operators))

    def _before(self, operator: Operator, moved: set[tuple[str, Layout, Phase]]) -> Iterator[Move]:
        """Bring inputs to where the operator needs them, each once in a pass over the unit."""
        for name, target in zip(operator.inputs, self.layouts.inputs[operator.name], strict=True):
            source = self.layouts.tensors[name]
            key = (name, target, operator.phase)
            if source != target and key not in moved and not self._kept(operator, name, target):
                moved.add(key)
                yield from self._moves(operator, name, source, target)

    def _kept(self, operator: Operator, name: str, target: Layout) -> bool:
        """Return whether a gradient finds an input as its forward operator had it.

        What an all-to-all brought is as large as what it came from, so it is this that is kept. What was
        gathered is larger: it is given up and gathered again.
        """
        forward = self._operators.get(operator.of)
        if forward is None or name not in forward.inputs:
            return False
        had = self.layouts.inputs[forward.name][forward.inputs.index(name)]
        path = steps(self.layouts.tensors[name], target, self.layouts.order)
        return had == target and all(kind == "all_to_all" for kind, _, _ in path)

    def _after(self, operator: Operator) -> Iterator[Move]:
        for name, source in zip(operator.outputs, self.layouts.outputs[operator.name], strict=True):
            yield from self._moves(operator, name, source, self.layouts.tensors[name])

    def _inside(self, operator: Operator) -> Iterator[Move]:
        """Yield what the operator itself sends, when it is split along a factor that needs it."""
        split = self.layouts.factors[operator.name]
        for exchange in self.rules[operator.name].exchanges:
            for axis in split.get(exchange.factor, ()):
                yield Move(
                    name=f"{operator.name}.{exchange.factor}",
                    collective=exchange.collective,
                    axis=cast("MeshAxis", axis),
                    phase=operator.phase,
                    payload=tuple(
                        memory_of(self.view.tensors[name], self.layouts.tensors[name])
                        for name in exchange.payload
                    ),
                    count=exchange.forward * operator.count,
                    again=recompute_modes(operator),
                    tensor="",
                    overlaps=operator.name if exchange.collective == "send_recv" else "",
                )

    def _moves(
        self, operator: Operator, name: str, source: Layout, target: Layout
    ) -> Iterator[Move]:
        tensor = self.view.tensors[name]
        for collective, axis, carried in steps(source, target, self.layouts.order):
            yield Move(
                name=f"{operator.name}: {collective} of {name}",
                collective=collective,
                axis=cast("MeshAxis", axis),
                phase=operator.phase,
                payload=(memory_of(tensor, carried),),
                count=operator.count,
                again=recompute_modes(operator),
                tensor=name,
            )

    def _kernel(self, operator: Operator) -> Kernel:
        rule = self.rules[operator.name]
        split = self.layouts.factors[operator.name]
        tensors = self.view.tensors
        reads = [
            memory_of(tensors[name], layout)
            for name, layout in zip(
                operator.inputs, self.layouts.inputs[operator.name], strict=True
            )
        ]
        writes = [
            memory_of(tensors[name], layout)
            for name, layout in zip(
                operator.outputs, self.layouts.outputs[operator.name], strict=True
            )
        ]
        touched = [
            writes[0] if name in rule.sparse else memory
            for name, memory in zip(operator.inputs, reads, strict=True)
        ]
        made = [
            reads[0] if name in rule.sparse else memory
            for name, memory in zip(operator.outputs, writes, strict=True)
        ]
        return Kernel(
            name=operator.name,
            kind=rule.kind,
            phase=operator.phase,
            flops=rule.flops,
            points=points(operator, rule, tensors, split, rule.factors()),
            reads=tuple(touched),
            writes=tuple(made),
            gemm=self._gemm(operator, rule) if operator.kind in {"matmul", "conv"} else None,
            row_lengths=self._row_lengths(operator, rule) if operator.kind == "matmul" else None,
            depth=rule.depth,
            dtype=tensors[operator.outputs[0]].dtype,
            count=operator.count,
            again=recompute_modes(operator),
        )

    def _gemm(self, operator: Operator, rule: OperatorRule) -> tuple[Box, Box, Box, Box]:
        """Sort the factors of a product into batch, m, n and k."""
        left, right = (frozenset(box) for box in rule.inputs[:2])
        out = frozenset(rule.outputs[0])
        groups: tuple[list[str], ...] = ([], [], [], [])
        for factor in rule.factors():
            if factor not in out:
                place = 3
            elif factor in right:
                place = 0 if factor in left else 2
            else:
                place = 1
            groups[place].append(factor)
        split = self.layouts.factors[operator.name]
        batch, m, n, k = (
            points(operator, rule, self.view.tensors, split, group) for group in groups
        )
        return batch, m, n, k

    def _row_lengths(self, operator: Operator, rule: OperatorRule) -> tuple[Box, Box, Box]:
        """Return the last dimension of both operands and of the result, which lies in one piece."""
        split = self.layouts.factors[operator.name]
        left, right, out = (
            points(
                operator, rule, self.view.tensors, split, [factor for factor in box[-1:] if factor]
            )
            for box in (*rule.inputs[:2], rule.outputs[0])
        )
        return left, right, out


def steps(
    source: Layout, target: Layout, order: tuple[str, ...]
) -> Iterator[tuple[Collective, str, Layout]]:
    """Yield the collectives from one layout to another, each with the layout of what it carries.

    Axis by axis, so that what shrinks a tensor comes first: slices (which cost nothing), reduce-scatters,
    all-to-alls, then all-reduces and at last the gathers.
    """
    now = source
    for wanted in ("slice", "reduce_scatter", "all_to_all", "all_reduce", "all_gather"):
        for axis in order:
            if _step(now, target, axis) != wanted:
                continue
            after = now.with_dim(axis, target.dim_of(axis), order)
            if wanted != "slice":
                carried = after if wanted == "all_gather" else now
                yield cast("Collective", wanted), axis, carried
            now = after


def _step(now: Layout, target: Layout, axis: str) -> str:
    here, there = now.dim_of(axis), target.dim_of(axis)
    if axis in now.partial:
        if axis in target.partial:
            return ""
        return "all_reduce" if there is None else "reduce_scatter"
    if here == there:
        return ""
    if here is None:
        return "slice"
    return "all_gather" if there is None else "all_to_all"


def _overlapped(tasks: list[Task], operators: tuple[Operator, ...]) -> Iterator[Task]:
    """Name for each move of the backward pass the neighbouring kernel that does not depend on it.

    A sum over the mesh can run beside the next kernel (the weight's gradient, where the input's gradient
    is being summed: Narayanan et al. 2021), a gather of a saved tensor beside the kernel before.
    """
    known = {operator.name: operator for operator in operators}
    kernels = [
        place
        for place, task in enumerate(tasks)
        if isinstance(task, Kernel) and task.phase == "backward"
    ]
    for place, task in enumerate(tasks):
        if isinstance(task, Kernel) or task.phase != "backward" or not task.tensor:
            yield task
            continue
        after = next((tasks[k].name for k in kernels if k > place), "")
        before = next((tasks[k].name for k in reversed(kernels) if k < place), "")
        beside = ""
        if after and task.tensor not in known[after].inputs:
            beside = after
        elif before and task.tensor not in (*known[before].outputs, *known[before].inputs):
            beside = before
        yield replace(task, overlaps=beside)
