"""What layers make of shapes, as PyTorch computes it. Shapes are without the batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

__all__ = ["SHAPE_FUNCTIONS", "Shape", "ShapeError"]

Shape = list[int]


class ShapeError(Exception):
    """A layer cannot take such a shape; `param` names the parameter that is at fault, `inputs` by default."""

    def __init__(self, message: str, *, param: str = "inputs", hint: str = "") -> None:
        super().__init__(message)
        self.param = param
        self.hint = hint


def _each(value: Any, count: int) -> list[Any]:
    """Return one value for each of so many dimensions."""
    return list(value) if isinstance(value, list) else [value] * count


def numel(shape: Any) -> int:
    """Return how many numbers a shape holds; that of a parameter may be their number itself, or None."""
    if shape is None or isinstance(shape, int):
        return shape or 0
    return math.prod(shape)


def windows(
    sizes: Shape,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any = 1,
    ceil_mode: bool = False,  # noqa: FBT001, FBT002 - as formulas call it
) -> Shape:
    """Return how often a kernel fits into each dimension."""
    count = len(sizes)
    if padding == "same":
        return list(sizes)
    pads = _each(0 if padding == "valid" else padding, count)
    found = []
    for size, kernel, step, pad, gap in zip(
        sizes,
        _each(kernel_size, count),
        _each(stride, count),
        pads,
        _each(dilation, count),
        strict=True,
    ):
        span = gap * (kernel - 1) + 1
        room = size + 2 * pad - span
        if room < 0:
            raise ShapeError(
                f"a kernel over {span} does not fit into {size}"
                + (f" with a padding of {pad}" if pad else ""),
                param="kernel_size",
                hint=f"at most {size + 2 * pad}, a larger padding, or less pooling before it",
            )
        number = (-(-room // step) if ceil_mode else room // step) + 1
        if ceil_mode and (number - 1) * step >= size + pad:
            number -= 1  # the last window would begin in the padding
        found.append(number)
    return found


def widened(
    sizes: Shape, kernel_size: Any, stride: Any, padding: Any, output_padding: Any, dilation: Any
) -> Shape:
    """Return the sizes that a transposed convolution makes."""
    count = len(sizes)
    parts = (_each(v, count) for v in (kernel_size, stride, padding, output_padding, dilation))
    found = [
        (size - 1) * step - 2 * pad + gap * (kernel - 1) + more + 1
        for size, kernel, step, pad, more, gap in zip(sizes, *parts, strict=True)
    ]
    if min(found) < 1:
        raise ShapeError(f"nothing is left: {found}", param="padding", hint="a smaller padding")
    return found


def kernel(kernel_size: Any, count: int) -> Shape:
    """Return the sizes of a kernel in so many dimensions."""
    return _each(kernel_size, count)


def half_covers(kernel_size: Any, padding: Any) -> bool:
    """Return whether a padding is at most half of its kernel in every dimension."""
    count = max(len(v) if isinstance(v, list) else 1 for v in (kernel_size, padding))
    pairs = zip(_each(kernel_size, count), _each(padding, count), strict=True)
    return all(2 * pad <= size for size, pad in pairs)


def flattened(x: Shape, start: int, end: int) -> Shape:
    """Return the shape with the dimensions from `start` to `end` as one."""
    if not x:
        return [1]
    if end < start:
        raise ShapeError("ends before it starts", param="end_dim")
    return [*x[:start], math.prod(x[start : end + 1]), *x[end + 1 :]]


def reshaped(x: Shape, shape: Shape) -> Shape:
    """Return the shape asked for, with its -1 as what is left."""
    total, known = math.prod(x), math.prod(size for size in shape if size != -1)
    open_places = shape.count(-1)
    fits = (known > 0 and total % known == 0) if open_places else total == known
    if not fits or open_places > 1:
        raise ShapeError(
            f"{total} numbers do not fit into {shape}", param="shape", hint="one size may be -1"
        )
    return [total // known if size == -1 else size for size in shape]


def without(x: Shape, dim: int) -> Shape:
    """Return the shape without a dimension."""
    return [*x[:dim], *x[dim + 1 :]]


def permuted(x: Shape, dims: Sequence[int]) -> Shape:
    """Return the shape with its dimensions in another order, which begins with the batch: 0."""
    if sorted(dims) != list(range(len(x) + 1)) or dims[0] != 0:
        raise ShapeError(
            f"must name each of {list(range(len(x) + 1))} once, and 0, the batch, first",
            param="dims",
        )
    return [x[dim - 1] for dim in dims[1:]]


def joined(shapes: Sequence[Shape], dim: int) -> Shape:
    """Return the shape of tensors side by side in a dimension, which are equal in all others."""
    first = shapes[0]
    for other in shapes[1:]:
        if without(other, dim) != without(first, dim) or len(other) != len(first):
            raise ShapeError(
                f"takes shapes that differ in dimension {dim + 1} only, not {first} and {other}",
                hint="pad or resize one of them",
            )
    return [*first[:dim], sum(shape[dim] for shape in shapes), *first[dim + 1 :]]


def equal(shapes: Sequence[Shape]) -> bool:
    """Return whether all shapes are the same."""
    return all(shape == shapes[0] for shape in shapes)


def recurrent_weights(
    gates: int, inputs: int, hidden: int, layers: int, directions: int, biases: int
) -> int:
    """Return how many parameters a recurrent network has; the first layer alone takes `inputs`."""
    widths = inputs + (layers - 1) * hidden * directions
    return directions * gates * hidden * (widths + layers * (hidden + 2 * biases))


SHAPE_FUNCTIONS = {
    each.__name__: each
    for each in (
        equal, flattened, half_covers, joined, kernel, numel, permuted, recurrent_weights, reshaped,
        widened, windows, without,
    )
}  # fmt: skip
"""What formulas of the catalogue may call."""
