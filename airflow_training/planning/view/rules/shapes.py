"""Rules of operators that only look at the same numbers in another way."""

from __future__ import annotations

from airflow_training.planning.view.computation import Operator
from airflow_training.planning.view.rules.algebra import aligned
from airflow_training.planning.view.rules.registry import OperatorRule, Tensors, rule


@rule("transpose")
def transpose(operator: Operator, tensors: Tensors) -> OperatorRule:
    """Dimensions in another order: output dimension i is the input's `order[i]`."""
    del tensors
    order = tuple(operator.attributes["order"])
    factors = tuple(f"d{i}" for i in range(len(order)))
    output = tuple(factors[i] for i in order)
    return OperatorRule(inputs=(factors,), outputs=(output,), flops=0.0, free=True, linear=True)


@rule("reshape")
def reshape(operator: Operator, tensors: Tensors) -> OperatorRule:
    """Dimensions merged or cut up: a run of dimensions can be split along its major one only.

    And only where one of the two major ones divides the other, so that slices of both agree.
    """
    before = tensors[operator.inputs[0]].shape
    after = tensors[operator.outputs[0]].shape
    inputs, outputs = [""] * len(before), [""] * len(after)
    for run, (left, right) in enumerate(runs(before, after)):
        major = sorted((before[left[0]], after[right[0]]))
        if major[1] % major[0] == 0:
            inputs[left[0]] = outputs[right[0]] = f"r{run}"
    return OperatorRule(
        inputs=(tuple(inputs),), outputs=(tuple(outputs),), flops=0.0, free=True, linear=True
    )


@rule("split")
def split(operator: Operator, tensors: Tensors) -> OperatorRule:
    """A tensor cut into its outputs along `dim`.

    With `interleaved` every slice of the input holds its share of each output (the fused query, key and
    value of attention), so that it can be split there too.
    """
    rank = len(tensors[operator.inputs[0]].shape)
    dim = int(operator.attributes["dim"]) % rank
    factors = tuple(f"d{i}" for i in range(rank))
    whole = frozenset() if operator.attributes.get("interleaved") else frozenset({factors[dim]})
    outputs = (factors,) * len(operator.outputs)
    return OperatorRule(
        inputs=(factors,), outputs=outputs, whole=whole, flops=0.0, free=True, linear=True
    )


@rule("concatenate")
def concatenate(operator: Operator, tensors: Tensors) -> OperatorRule:
    """Tensors one after the other along `dim`, which stays whole."""
    rank = len(tensors[operator.outputs[0]].shape)
    factors = tuple(f"d{i}" for i in range(rank))
    whole = frozenset({factors[int(operator.attributes["dim"]) % rank]})
    inputs = (factors,) * len(operator.inputs)
    return OperatorRule(inputs=inputs, outputs=(factors,), whole=whole, flops=0.0, linear=True)


@rule("expand")
def expand(operator: Operator, tensors: Tensors) -> OperatorRule:
    """A tensor seen as longer along dimensions of length 1, or with more dimensions in front."""
    shape = tensors[operator.outputs[0]].shape
    box = aligned(tensors[operator.inputs[0]].shape, shape)
    return OperatorRule(
        inputs=(box,), outputs=(aligned(shape, shape),), flops=0.0, free=True, linear=True
    )


@rule("hand_over")
def hand_over(operator: Operator, tensors: Tensors) -> OperatorRule:
    """Tensors handed in or out of the body of a loop or a branch, aligned from the right."""
    names = (*operator.inputs, *operator.outputs)
    most = max(len(tensors[name].shape) for name in names)
    boxes = tuple(
        tuple(f"d{i}" for i in range(most - len(tensors[name].shape), most)) for name in names
    )
    return OperatorRule(
        inputs=boxes[: len(operator.inputs)],
        outputs=boxes[len(operator.inputs) :],
        flops=0.0,
        free=True,
    )


def runs(
    before: tuple[int, ...], after: tuple[int, ...]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the shortest runs of dimensions of both shapes that hold the same elements.

    Dimensions of length 1 are left out: (2, 3, 4) and (6, 4) give ((0, 1), (0,)) and ((2,), (1,)).
    """
    left = [i for i, size in enumerate(before) if size != 1]
    right = [i for i, size in enumerate(after) if size != 1]
    found: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    while left and right:
        mine, yours = [left.pop(0)], [right.pop(0)]
        size, other = before[mine[0]], after[yours[0]]
        while size != other:
            if size < other and left:
                mine.append(left.pop(0))
                size *= before[mine[-1]]
            elif right:
                yours.append(right.pop(0))
                other *= after[yours[-1]]
            else:
                return found
        found.append((tuple(mine), tuple(yours)))
    return found
