"""Where every tensor of a view lies, and where every operator wants it, by the names of mesh axes.

A layout is a distribution without sizes: it holds for every mesh with these axes. Tensors and operators
have layouts of their own; where they differ, the numbers have to be moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from airflow_training.planning.computation import ComputationView, Operator, Tensor
from airflow_training.planning.labels import Labels
from airflow_training.planning.rules import Rule
from airflow_training.planning.symbols import Box, Extent, Memory


@dataclass(frozen=True, slots=True)
class Layout:
    """Per dimension the mesh axes that split it, major first, and the axes it is a partial sum over."""

    dims: tuple[tuple[str, ...], ...]
    partial: frozenset[str] = frozenset()

    def dim_of(self, axis: str) -> int | None:
        """Return the dimension that a mesh axis splits."""
        return next((dim for dim, axes in enumerate(self.dims) if axis in axes), None)

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
    rules: Mapping[str, Rule],
    labels: Mapping[str, Labels],
    *,
    unreduced: frozenset[str] = frozenset(),
) -> Layouts:
    """Return the layouts that settled labels mean.

    Args:
        view: The computation.
        rules: The rule of each operator.
        labels: The settled labels of every mesh axis, major first.
        unreduced: Tensors that stay the partial sums as which they are made (gradients of parameters,
            which are reduced once per step).

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
    for operator in view.operators:
        rule = rules[operator.name]
        split = _split(operator, labels)
        factors[operator.name] = split
        inputs[operator.name] = tuple(_layout(box, split, order) for box in rule.inputs)
        outputs[operator.name] = tuple(_made(box, split, order, rule) for box in rule.outputs)
        for name, made in zip(operator.outputs, outputs[operator.name], strict=True):
            if name in unreduced:
                tensors[name] = Layout(tensors[name].dims, made.partial)
    return Layouts(order, tensors, inputs, outputs, factors)


def memory_of(tensor: Tensor, layout: Layout) -> Memory:
    """Return what one device holds of a tensor."""
    return Memory(_box(tensor, layout.dims), tensor.dtype)


def points(
    operator: Operator,
    rule: Rule,
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
    return tuple(Extent(*sizes[factor], split.get(factor, ())) for factor in factors)


def scales(axis: str) -> bool:
    """Return whether a dimension of this name grows with the batch."""
    return "batch" in axis.split("*")


def _split(operator: Operator, labels: Mapping[str, Labels]) -> dict[str, tuple[str, ...]]:
    split: dict[str, tuple[str, ...]] = {}
    for axis, settled in labels.items():
        factor = settled.operators.get(operator.name)
        if factor is not None:
            split[factor] = (*split.get(factor, ()), axis)
    return split


def _made(
    box: tuple[str, ...], split: Mapping[str, tuple[str, ...]], order: Sequence[str], rule: Rule
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
        Extent(size, scales(axis), axes)
        for size, axis, axes in zip(tensor.shape, tensor.axes, dims, strict=True)
    )
