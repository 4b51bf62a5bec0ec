"""Rules of matrix multiplication, element-wise operators and reductions."""

from __future__ import annotations

from typing import Literal

from airflow_training.planning.view.computation import Operator
from airflow_training.planning.view.rules.registry import OperatorRule, Tensors, rule

Saves = Literal["nothing", "inputs", "outputs", "extra outputs"]

FUNCTIONS: dict[str, Saves] = {
    "add": "nothing",
    "sub": "nothing",
    "neg": "nothing",
    "scale": "nothing",
    "cast": "nothing",
    "rotary": "nothing",
    "relu": "outputs",
    "sigmoid": "outputs",
    "tanh": "outputs",
    "exp": "outputs",
    "dropout": "extra outputs",
    "bias_dropout_add": "extra outputs",
}
"""What the gradient of an element-wise function reads; of one not listed here, its inputs.

The second output of the dropouts is the mask.
"""

PASSES = {"add": (0, 1), "bias_dropout_add": (2,)}
"""Inputs whose gradient is the result's gradient, where the shapes are equal."""

LINEAR = frozenset({"add", "sub", "neg", "scale"})


def equation_of(operator: Operator) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]:
    """Return the factors of the inputs and of the output of an einsum equation (`mk,kn->mn`)."""
    left, _, right = str(operator.attributes["equation"]).partition("->")
    return tuple(tuple(term) for term in left.split(",")), tuple(right)


@rule("matmul")
def matmul(operator: Operator, tensors: Tensors) -> OperatorRule:
    """A product of two tensors by an einsum `equation`; a third operand is a bias, added for free."""
    del tensors
    inputs, output = equation_of(operator)
    saves = frozenset(operator.inputs[:2])
    return OperatorRule(
        inputs=inputs,
        outputs=(output,),
        kind="matmul",
        flops=2.0,
        saves=saves,
        once=frozenset(operator.inputs[2:]),
    )


@rule("elementwise")
def elementwise(operator: Operator, tensors: Tensors) -> OperatorRule:
    """A function of each element; shapes are broadcast from the right."""
    shape = tensors[operator.outputs[0]].shape
    name = str(operator.attributes.get("function", ""))
    extra = operator.outputs[1:] if name in {"dropout", "bias_dropout_add"} else ()
    saved = {
        "nothing": (),
        "inputs": operator.inputs,
        "outputs": operator.outputs,
        "extra outputs": extra,
    }[FUNCTIONS.get(name, "inputs")]
    return OperatorRule(
        inputs=tuple(aligned(tensors[i].shape, shape) for i in operator.inputs),
        outputs=tuple(aligned(tensors[o].shape, shape) for o in operator.outputs),
        flops=float(operator.attributes.get("flops", 1.0)),
        saves=frozenset(saved),
        passes=frozenset(
            operator.inputs[place]
            for place in PASSES.get(name, ())
            if place < len(operator.inputs) and tensors[operator.inputs[place]].shape == shape
        ),
        linear=name in LINEAR,
    )


@rule("reduce")
def reduce(operator: Operator, tensors: Tensors) -> OperatorRule:
    """A sum, mean, max or min over the dimensions `dims`; `keep` leaves them with length 1."""
    shape = tensors[operator.inputs[0]].shape
    dims = {dim % len(shape) for dim in operator.attributes["dims"]}
    factors = tuple(f"d{i}" for i in range(len(shape)))
    sums = operator.attributes.get("function", "sum") in {"sum", "mean"}
    keep = bool(operator.attributes.get("keep", False))
    output = tuple("" if i in dims else f for i, f in enumerate(factors) if keep or i not in dims)
    return OperatorRule(
        inputs=(factors,),
        outputs=(output,) * len(operator.outputs),
        whole=frozenset() if sums else frozenset(factors[i] for i in dims),
        saves=frozenset() if sums else frozenset((*operator.inputs, *operator.outputs)),
        linear=sums,
    )


@rule("sum_of")
def sum_of(operator: Operator, tensors: Tensors) -> OperatorRule:
    """The sum of tensors of one shape: gradients that meet where a tensor was used more than once."""
    factors = tuple(f"d{i}" for i in range(len(tensors[operator.outputs[0]].shape)))
    return OperatorRule(inputs=(factors,) * len(operator.inputs), outputs=(factors,), linear=True)


@rule("adam")
def adam(operator: Operator, tensors: Tensors) -> OperatorRule:
    """The update of one parameter with two moments and a master copy: about twelve operations."""
    factors = tuple(f"d{i}" for i in range(len(tensors[operator.inputs[0]].shape)))
    return OperatorRule(
        inputs=(factors,) * len(operator.inputs),
        outputs=(factors,) * len(operator.outputs),
        flops=12.0,
    )


def aligned(shape: tuple[int, ...], output: tuple[int, ...]) -> tuple[str, ...]:
    """Return the factors of an operand that is broadcast to the shape `output`."""
    start = len(output) - len(shape)
    return tuple(
        f"d{start + i}" if start + i >= 0 and size == output[start + i] else ""
        for i, size in enumerate(shape)
    )
