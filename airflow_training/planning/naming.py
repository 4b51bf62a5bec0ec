"""Names for the dimensions that nobody named: they follow from the inputs', by the operators' rules."""

from __future__ import annotations

from dataclasses import replace

from airflow_training.planning.computation import ComputationView
from airflow_training.planning.labels import Seed, settle
from airflow_training.planning.rules import rule_of


def named(view: ComputationView) -> ComputationView:
    """Return the view with the names of its inputs' dimensions on all dimensions that run with them.

    Names that are there stay. A view whose tensors all have names is returned as it is.
    """
    if all(any(tensor.axes) or not tensor.shape for tensor in view.tensors.values()):
        return view
    known = {operator.name: operator for operator in view.operators}
    rules = {name: rule_of(operator, view.tensors, known) for name, operator in known.items()}
    inputs = [tensor for tensor in view.tensors.values() if tensor.kind == "input"]
    names = dict.fromkeys(axis for tensor in inputs for axis in tensor.axes if axis)
    found = settle(
        view,
        rules,
        tuple(names),
        [
            Seed(tensor.name, axis, dim)
            for tensor in inputs
            for dim, axis in enumerate(tensor.axes)
            if axis
        ],
    )
    tensors = dict(view.tensors)
    for axis, labels in found.items():
        for name, dim in labels.tensors.items():
            tensor = tensors[name]
            if tensor.kind != "parameter" and not tensor.axes[dim] and axis not in tensor.axes:
                axes = (*tensor.axes[:dim], axis, *tensor.axes[dim + 1 :])
                tensors[name] = replace(tensor, axes=axes)
    return replace(view, tensors=tensors)
