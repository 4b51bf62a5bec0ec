"""Names for the dimensions that nobody named.

Weights that are to be split over tensor-parallel devices get `columns`; those of the last product, whose
results go to the loss, get `classes`, which frameworks pad where the devices do not divide them. Then
dimensions that run with a named dimension of an input or a weight take its name, by the operators' rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from airflow_training.planning.view.alternation import alternating
from airflow_training.planning.view.computation import ComputationView, Tensor
from airflow_training.planning.view.labels import AxisSeed, resolve_labels
from airflow_training.planning.view.rules import OperatorRule, rule_of
from airflow_training.planning.view.seeding import SPLIT_WEIGHTS


def name_dimensions(view: ComputationView) -> ComputationView:
    """Return the forward view with a name on every dimension that matters for a split.

    Names that are there stay; if a parameter has one that asks for tensor parallelism, no other is split.
    """
    known = {operator.name: operator for operator in view.operators}
    rules = {name: rule_of(operator, view.tensors, known) for name, operator in known.items()}
    tensors = dict(view.tensors)
    weights = _name_weights(view, rules, tensors)
    inputs = [tensor.name for tensor in tensors.values() if tensor.kind == "input"]
    _spread(view, rules, tensors, [*inputs, *weights])
    return replace(view, tensors=tensors)


def _name_weights(
    view: ComputationView, rules: Mapping[str, OperatorRule], tensors: dict[str, Tensor]
) -> list[str]:
    """Name what is to be split of the weights; return which weights these are."""
    parameters = [tensor for tensor in tensors.values() if tensor.kind == "parameter"]
    if any(SPLIT_WEIGHTS.get(axis) == "tp" for tensor in parameters for axis in tensor.axes):
        return []
    weights = list(alternating(view, rules))
    for place, (name, dim, by_columns) in enumerate(weights):
        last = by_columns and place == len(weights) - 1
        _name(tensors, name, dim, "classes" if last else "columns")
    return [name for name, _, _ in weights]


def _spread(
    view: ComputationView,
    rules: Mapping[str, OperatorRule],
    tensors: dict[str, Tensor],
    sources: Sequence[str],
) -> None:
    seeds = [
        AxisSeed(name, axis, dim)
        for name in sources
        for dim, axis in enumerate(tensors[name].axes)
        if axis
    ]
    names = tuple(dict.fromkeys(seed.axis for seed in seeds))
    for axis, labels in resolve_labels(view, rules, names, seeds).items():
        for name, dim in labels.tensors.items():
            if axis not in tensors[name].axes:
                _name(tensors, name, dim, axis)


def _name(tensors: dict[str, Tensor], name: str, dim: int, axis: str) -> None:
    tensor = tensors[name]
    if not tensor.axes[dim]:
        axes = (*tensor.axes[:dim], axis, *tensor.axes[dim + 1 :])
        tensors[name] = replace(tensor, axes=axes)
