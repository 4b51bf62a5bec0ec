"""What kinds of operators compute, on whole tensors and on parts alike. Integers only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray
Box = tuple[slice, ...]


@dataclass(frozen=True)
class Call:
    """One run of an operator on one device."""

    inputs: tuple[Array, ...]
    attributes: Mapping[str, Any]
    input_boxes: tuple[Box, ...]
    """Where the inputs lie in their whole tensors."""
    output_shapes: tuple[tuple[int, ...], ...]
    """The shapes that the parts of the results are to have here."""


def matmul(call: Call) -> list[Array]:
    return [np.einsum(call.attributes["equation"], *call.inputs)]


FUNCTIONS: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "relu": lambda x: np.maximum(x, 0),
}


def elementwise(call: Call) -> list[Array]:
    return [FUNCTIONS[call.attributes["function"]](*call.inputs)]


def reduce(call: Call) -> list[Array]:
    function = {"sum": np.sum, "max": np.max}[call.attributes["function"]]
    dims, keep = tuple(call.attributes["dims"]), call.attributes.get("keep", False)
    return [function(call.inputs[0], axis=dims, keepdims=keep)]


def sum_of(call: Call) -> list[Array]:
    return [np.sum(call.inputs, axis=0)]


def embedding(call: Call) -> list[Array]:
    """Rows that another device holds are zero here."""
    numbers, table = call.inputs
    first = call.input_boxes[1][0].start
    mine = (numbers >= first) & (numbers < first + len(table))
    found = np.zeros((*numbers.shape, table.shape[1]), dtype=np.int64)
    found[mine] = table[numbers[mine] - first]
    return [found]


def transpose(call: Call) -> list[Array]:
    return [np.transpose(call.inputs[0], call.attributes["order"])]


def reshape(call: Call) -> list[Array]:
    return [call.inputs[0].reshape(call.output_shapes[0])]


def split(call: Call) -> list[Array]:
    dim = call.attributes["dim"]
    ends = np.cumsum([shape[dim] for shape in call.output_shapes])[:-1]
    return np.split(call.inputs[0], ends, axis=dim)


def concatenate(call: Call) -> list[Array]:
    return [np.concatenate(call.inputs, axis=call.attributes["dim"])]


def unheard_of(call: Call) -> list[Array]:
    """A kind without a rule: it needs the whole tensor."""
    return [np.cumsum(call.inputs[0]).reshape(call.inputs[0].shape)]


KINDS: dict[str, Callable[[Call], list[Array]]] = {
    function.__name__: function
    for function in (
        matmul,
        elementwise,
        reduce,
        sum_of,
        embedding,
        transpose,
        reshape,
        split,
        concatenate,
        unheard_of,
    )
}
