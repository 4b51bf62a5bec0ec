"""The splits that a view asks for before anything is propagated.

Names decide where there are names: a description of a transformer calls its dimensions `heads`, `ffn`,
`vocab`. A traced module has none; there the split of weights is found by walking forward: a product that
is given whole data is split by its results (columns), one that is given split data by what it sums over
(rows), so that two products in a row cost one reduction (Shoeybi et al. 2019, arXiv:1909.08053).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_training.planning.computation import ComputationView, Operator
from airflow_training.planning.labels import Seed
from airflow_training.planning.rules import Rule

SPLIT_WEIGHTS = {
    "heads": "tp",
    "kv_heads": "tp",
    "heads+kv_heads": "tp",
    "ffn": "tp",
    "vocab": "tp",
    "experts": "ep",
}
"""Which mesh axis splits a dimension of a parameter, by its name."""
SPLIT_INPUTS = {"batch": "ep", "sequence": "cp"}
STREAM = ("batch", "sequence", "hidden")
"""The activations that sequence parallelism splits (Korthikanti et al. 2022, arXiv:2205.05198)."""


def seeds(
    view: ComputationView, rules: Mapping[str, Rule], *, sequence_parallel: bool
) -> Iterator[Seed]:
    """Yield the known splits over the mesh axes tp, cp and ep.

    Parameters come first (their split is what makes tensor and expert parallelism), then the inputs'
    batch and sequence, then the residual stream.
    """
    parameters = [tensor for tensor in view.tensors.values() if tensor.kind == "parameter"]
    for tensor in parameters:
        for dim, axis in enumerate(tensor.axes):
            if axis in SPLIT_WEIGHTS:
                yield Seed(tensor.name, SPLIT_WEIGHTS[axis], dim, 0)
    if not any(SPLIT_WEIGHTS.get(axis) == "tp" for tensor in parameters for axis in tensor.axes):
        yield from alternating(view, rules)
    for tensor in view.tensors.values():
        for dim, axis in enumerate(tensor.axes):
            if tensor.kind == "input" and axis in SPLIT_INPUTS:
                yield Seed(tensor.name, SPLIT_INPUTS[axis], dim, 1)
        if sequence_parallel and tensor.axes == STREAM:
            yield Seed(tensor.name, "tp", STREAM.index("sequence"), 2)


def alternating(view: ComputationView, rules: Mapping[str, Rule]) -> Iterator[Seed]:
    """Yield splits of unnamed weights over `tp`, by columns and by rows in turn."""
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
                yield Seed(operator.inputs[weight], "tp", rule.inputs[weight].index(factor))
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


def _arriving(operator: Operator, rule: Rule, split: Mapping[str, int]) -> str:
    """Return the factor along which data arrives split, if the operator can take it so."""
    for name, box in zip(operator.inputs, rule.inputs, strict=True):
        if name in split:
            factor = box[split[name]]
            if factor and factor not in rule.whole:
                return factor
    return ""


def _column(view: ComputationView, operator: Operator, rule: Rule, weight: int) -> str:
    """Return the first factor that the weight brings and the data does not have."""
    data = rule.inputs[1 - weight]
    shape = view.tensors[operator.inputs[weight]].shape
    for factor, size in zip(rule.inputs[weight], shape, strict=True):
        if factor and factor not in data and factor not in rule.whole and size > 1:
            return factor
    return ""
