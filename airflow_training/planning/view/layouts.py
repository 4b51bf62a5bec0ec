"""Where every tensor of a view lies, and where every operator wants it, by the names of mesh axes.

A layout is a distribution without sizes: it holds for every mesh with these axes. Tensors and operators
have layouts of their own; where they differ, the numbers have to be moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from airflow_training.planning.view.computation import ComputationView, Operator, Tensor
from airflow_training.planning.view.labels import Labels
from airflow_training.planning.view.rules import OperatorRule
from airflow_training.planning.view.symbols import Box, DimensionSize, TensorMemory


@dataclass(frozen=True, slots=True)
class Layout:
    """Per dimension the mesh axes that split it, major first, and the axes it is a partial sum over."""

    dims: tuple[tuple[str, ...], ...]
    partial: frozenset[str] = frozenset()

    def dim_of(self, axis: str) -> int | None:
        """Return the dimension that a mesh axis splits."""
        return next((dim for dim, axes in enumerate(self.dims) if axis in axes), None)

    def as_sum(self, axes: frozenset[str]) -> Layout:
        """Return the layout with these axes holding terms of a sum."""
        dims = tuple(tuple(axis for axis in dim if axis not in axes) for dim in self.dims)
        return Layout(dims, self.partial | axes)

    def with_dim(self, axis: str, dim: int | None, order: Sequence[str]) -> Layout:
        """Return the layout with `axis` on another dimension, or on none, and summed."""
        dims = tuple(
            tuple(
                one
                for one in order
                if (one in axes and one != axis) or (one == axis and place == dim)
            )
            for place, axes in enumerate(self.dims)
        )
        return Layout(dims, self.partial - {axis})


@dataclass(frozen=True, slots=True)
class Layouts:
    """The layouts of a view on a mesh whose axes are `order`, major first."""

    order: tuple[str, ...]
    tensors: Mapping[str, Layout]
    inputs: Mapping[str, tuple[Layout, ...]]
    """Per operator what it needs of its inputs, and below what it makes of its outputs."""
    outputs: Mapping[str, tuple[Layout, ...]]
    factors: Mapping[str, Mapping[str, tuple[str, ...]]]
    """Per operator the mesh axes of each factor that is split."""


def layouts(
    view: ComputationView,
    rules: Mapping[str, OperatorRule],
    labels: Mapping[str, Labels],
    *,
    unreduced: frozenset[str] = frozenset(),
    fixed: frozenset[str] = frozenset(),
) -> Layouts:
    """Return the layouts that settled labels mean.

    Args:
        view: The computation.
        rules: The rule of each operator.
        labels: The settled labels of every mesh axis, major first.
        unreduced: Tensors that stay the partial sums as which they are made (gradients of parameters,
            which are reduced once per step).
        fixed: Tensors that lie as their labels say; others may stay partial up to the last of a row of
            linear operators, so that one sum is reduced instead of its terms.

    """
    order = tuple(labels)
    tensors = {
        name: Layout(
            tuple(
                tuple(axis for axis in order if labels[axis].tensors.get(name) == dim)
                for dim in range(len(tensor.shape))
            )
        )
        for name, tensor in view.tensors.items()
    }
    inputs: dict[str, tuple[Layout, ...]] = {}
    outputs: dict[str, tuple[Layout, ...]] = {}
    factors: dict[str, dict[str, tuple[str, ...]]] = {}
    late = deferred(view, rules, labels, fixed)
    for operator in view.operators:
        rule = rules[operator.name]
        summed = late[operator.name]
        split = _split(operator, labels, summed)
        factors[operator.name] = split
        inputs[operator.name] = tuple(
            Layout(_layout(box, split, order).dims, summed) for box in rule.inputs
        )
        for name in operator.inputs if summed else ():
            tensors[name] = tensors[name].as_sum(summed)
        results = (_made(box, split, order, rule) for box in rule.outputs)
        outputs[operator.name] = tuple(Layout(one.dims, one.partial | summed) for one in results)
        for name, made in zip(operator.outputs, outputs[operator.name], strict=True):
            if name in unreduced:
                tensors[name] = Layout(tensors[name].dims, made.partial)
    return Layouts(order, tensors, inputs, outputs, factors)


def deferred(
    view: ComputationView,
    rules: Mapping[str, OperatorRule],
    labels: Mapping[str, Labels],
    fixed: frozenset[str],
) -> dict[str, frozenset[str]]:
    """Return per operator the mesh axes whose sums it leaves to those who read its result.

    A linear operator may do so if all its inputs are terms of a sum over the axis, and everyone who reads
    one of them does the same.
    """
    makers = {name: operator for operator in view.operators for name in operator.outputs}
    users: dict[str, list[str]] = {}
    for operator in view.operators:
        for name in operator.inputs:
            users.setdefault(name, []).append(operator.name)

    late = {
        operator.name: frozenset(labels) if rules[operator.name].linear else frozenset()
        for operator in view.operators
    }

    def sums(name: str) -> frozenset[str]:
        """Return the axes over which a tensor is made as terms and only wanted as terms."""
        maker = makers.get(name)
        if maker is None or name in fixed:
            return frozenset()
        rule = rules[maker.name]
        split = _split(maker, labels, late[maker.name])
        made = _made(rule.outputs[maker.outputs.index(name)], split, tuple(labels), rule)
        wanted = [late[user] for user in users.get(name, ())]
        return frozenset.intersection(made.partial | late[maker.name], *wanted)

    changed = True
    while changed:
        changed = False
        for operator in view.operators:
            axes = late[operator.name]
            for name in operator.inputs if axes else ():
                axes &= sums(name)
            if axes != late[operator.name]:
                late[operator.name] = axes
                changed = True
    return late


def memory_of(tensor: Tensor, layout: Layout) -> TensorMemory:
    """Bytes of a tensor on one device."""
    return TensorMemory(_box(tensor, layout.dims), tensor.dtype)


def points(
    operator: Operator,
    rule: OperatorRule,
    tensors: Mapping[str, Tensor],
    split: Mapping[str, tuple[str, ...]],
    factors: Iterable[str],
) -> Box:
    """Return the box that some factors of an operator span on one device."""
    sizes: dict[str, tuple[int, bool]] = {}
    names = (*operator.inputs, *operator.outputs)
    for name, box in zip(names, (*rule.inputs, *rule.outputs), strict=True):
        tensor = tensors[name]
        for factor, size, axis in zip(box, tensor.shape, tensor.axes, strict=True):
            known = sizes.get(factor, (0, False))
            sizes[factor] = max(known[0], size), known[1] or scales(axis)
    return tuple(DimensionSize(*sizes[factor], split.get(factor, ())) for factor in factors)


def scales(axis: str) -> bool:
    """Return whether a dimension of this name grows with the batch."""
    return "batch" in axis.split("*")


def _split(
    operator: Operator, labels: Mapping[str, Labels], summed: frozenset[str]
) -> dict[str, tuple[str, ...]]:
    split: dict[str, tuple[str, ...]] = {}
    for axis, settled in labels.items():
        factor = settled.operators.get(operator.name)
        if factor is not None and axis not in summed:
            split[factor] = (*split.get(factor, ()), axis)
    return split


def _made(
    box: tuple[str, ...],
    split: Mapping[str, tuple[str, ...]],
    order: Sequence[str],
    rule: OperatorRule,
) -> Layout:
    """Return the layout of a result: partial over the axes of the factors that it lacks."""
    present = {factor for entry in box for factor in entry.split("*")}
    present.update(exchange.factor for exchange in rule.exchanges)
    partial = frozenset(axis for f, axes in split.items() if f not in present for axis in axes)
    return Layout(_layout(box, split, order).dims, partial)


def _layout(
    box: tuple[str, ...], split: Mapping[str, tuple[str, ...]], order: Sequence[str]
) -> Layout:
    found = [
        {axis for factor in entry.split("*") for axis in split.get(factor, ())} for entry in box
    ]
    return Layout(tuple(tuple(axis for axis in order if axis in axes) for axes in found))


def _box(tensor: Tensor, dims: tuple[tuple[str, ...], ...]) -> Box:
    return tuple(
        DimensionSize(size, scales(axis), axes)
        for size, axis, axes in zip(tensor.shape, tensor.axes, dims, strict=True)
    )
