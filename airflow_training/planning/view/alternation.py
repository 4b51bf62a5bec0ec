"""How the weights of a network that nobody described can be split: by columns and by rows in turn.

Walking forward, a product that is given whole data is split by its results (columns), one that is given
split data by what it sums over (rows), so that two products in a row cost one reduction (Shoeybi et al.
2019, arXiv:1909.08053). Convolutions go by their channels alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_training.planning.view.computation import ComputationView, Operator
from airflow_training.planning.view.rules import OperatorRule


def alternating(
    view: ComputationView, rules: Mapping[str, OperatorRule]
) -> Iterator[tuple[str, int, bool]]:
    """Yield weights, each with the dimension to split and whether that splits the product's results."""
    split: dict[str, int] = {}
    for operator in view.operators:
        if operator.phase != "forward":
            continue
        rule = rules[operator.name]
        weight = _weight(view, operator)
        factor = _arriving(operator, rule, split)
        if weight is not None:
            factor = factor or _column(view, operator, rule, weight)
            if factor in rule.inputs[weight]:
                by_columns = any(factor in box for box in rule.outputs)
                yield operator.inputs[weight], rule.inputs[weight].index(factor), by_columns
        for name, box in zip(operator.outputs, rule.outputs, strict=True):
            if factor and factor in box:
                split[name] = box.index(factor)


def _weight(view: ComputationView, operator: Operator) -> int | None:
    """Return which input of a product or a lookup is its matrix of parameters."""
    if operator.kind not in {"matmul", "conv", "embedding"}:
        return None
    for place in (1, 0):
        tensor = view.tensors[operator.inputs[place]]
        if tensor.kind == "parameter" and len(tensor.shape) > 1:
            return place
    return None


def _arriving(operator: Operator, rule: OperatorRule, split: Mapping[str, int]) -> str:
    """Return the factor along which data arrives split, if the operator can take it so."""
    for name, box in zip(operator.inputs, rule.inputs, strict=True):
        if name in split:
            factor = box[split[name]]
            if factor and factor not in rule.whole:
                return factor
    return ""


def _column(view: ComputationView, operator: Operator, rule: OperatorRule, weight: int) -> str:
    """Return the first factor that the weight brings and the data does not have."""
    data = rule.inputs[1 - weight]
    shape = view.tensors[operator.inputs[weight]].shape
    for factor, size in zip(rule.inputs[weight], shape, strict=True):
        if factor and factor not in data and factor not in rule.whole and size > 1:
            return factor
    return ""
