"""What operators compute, on integers, as a function of what their rule says they need.

Functions with rounding (softmax, norms, GeLU) are stood in for by integer functions that depend on the
same elements: a wrong split shows, and results can be compared bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from airflow_training.planning.reshard.propagation import OperatorPlacement
from airflow_training.planning.view.computation import ComputationView, Operator, Tensor
from airflow_training.planning.view.rules import OperatorRule, rule_of
from tests.planning.execution import Sharded, collect, distribute

Array = Any
"""An array of whole numbers."""


@dataclass(frozen=True)
class Call:
    """One device's part of an operator."""

    operator: Operator
    inputs: Sequence[Array]
    starts: Sequence[tuple[int, ...]]
    """Where each input's part begins in the whole."""
    shapes: Sequence[tuple[int, ...]]
    """The shapes of this device's outputs."""

    def __getitem__(self, key: str) -> Any:
        return self.operator.attributes[key]


def matmul(call: Call) -> Array:
    left, right, *bias = call.inputs
    terms, _, out = call["equation"].partition("->")
    first, second, *third = terms.split(",")
    product = np.einsum(f"{first},{second}->{out}", left, right)
    for factors, value in zip(third, bias, strict=True):
        shape = [value.shape[factors.index(f)] if f in factors else 1 for f in out]
        product = product + value.reshape(shape)
    return product


def elementwise(call: Call) -> Array:
    functions: Mapping[str, Callable[..., Array]] = {
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "neg": np.negative,
        "relu": lambda x: np.maximum(x, 0),
        "scale": lambda x: 3 * x,
        "square": lambda x: x * x,
    }
    return functions[call["function"]](*call.inputs)


def reduce(call: Call) -> Array:
    keep = bool(call.operator.attributes.get("keep", False))
    reduced = np.max if call.operator.attributes.get("function") == "max" else np.sum
    return np.asarray(reduced(call.inputs[0], axis=tuple(call["dims"]), keepdims=keep))


def sum_of(call: Call) -> Array:
    return np.sum(np.stack(call.inputs), axis=0)


def transpose(call: Call) -> Array:
    return call.inputs[0].transpose(call["order"])


def reshape(call: Call) -> Array:
    return call.inputs[0].reshape(call.shapes[0])


def expand(call: Call) -> Array:
    return np.broadcast_to(call.inputs[0], call.shapes[0]).copy()


def split(call: Call) -> list[Array]:
    """Interleaved parts lie block by block; a device then holds whole blocks."""
    (source,), dim = call.inputs, call["dim"]
    sizes = [shape[dim] for shape in call.shapes]
    if not call.operator.attributes.get("interleaved"):
        return np.split(source, np.cumsum(sizes)[:-1], axis=dim)
    blocks = min(sizes)
    if not blocks:
        return [np.zeros(shape, dtype=np.int64) for shape in call.shapes]
    shares = [size // blocks for size in sizes]
    rows = np.moveaxis(source, dim, 0)
    rows = rows.reshape(blocks, sum(shares), *rows.shape[1:])
    parts = np.split(rows, np.cumsum(shares)[:-1], axis=1)
    return [
        np.moveaxis(part.reshape(size, *part.shape[2:]), 0, dim)
        for part, size in zip(parts, sizes, strict=True)
    ]


def concatenate(call: Call) -> Array:
    return np.concatenate(call.inputs, axis=call["dim"])


def softmax(call: Call) -> Array:
    (x,) = call.inputs
    return x * x.sum(axis=call.operator.attributes.get("dim", -1), keepdims=True)


def norm(call: Call) -> Array:
    x, weight, *bias = call.inputs
    axes = tuple(range(x.ndim - weight.ndim, x.ndim))
    y = (x - x.sum(axis=axes, keepdims=True)) * weight
    return y + bias[0] if bias else y


def attention(call: Call) -> Array:
    """Scores without their softmax; a group of query heads shares a key and value head."""
    query, key, value = call.inputs
    if call.operator.attributes.get("heads_first"):
        query, key, value = (each.swapaxes(1, 2) for each in call.inputs)
    group = query.shape[2] // key.shape[2] if key.shape[2] else 1
    key, value = (np.repeat(each, group, axis=2) for each in (key, value))
    out = np.einsum("bshd,bthd,bthe->bshe", query, key, value)
    return out.swapaxes(1, 2) if call.operator.attributes.get("heads_first") else out


def gated(call: Call) -> Array:
    (both,) = call.inputs
    return both[..., 0, :] * both[..., 1, :]


def embedding(call: Call) -> Array:
    numbers, table = call.inputs
    first = call.starts[1][0]
    mine = (numbers >= first) & (numbers < first + len(table))
    rows = table[np.where(mine, numbers - first, 0)] if len(table) else 0
    zeros = np.zeros((*numbers.shape, table.shape[1]), dtype=np.int64)
    return np.where(mine[..., None], rows, zeros)


def cross_entropy(call: Call) -> Array:
    """This device's terms of what the loss reduces: the logits' sum and the one that was asked for."""
    logits, labels = call.inputs
    numbers = np.arange(logits.shape[-1]) + call.starts[0][-1]
    asked = (numbers == labels[..., None]) * logits
    return logits.sum(axis=-1) - 5 * asked.sum(axis=-1)


def conv(call: Call) -> Array:
    x, weight, *bias = call.inputs
    n, _, height, width = x.shape
    out, _, a, b = weight.shape
    y = np.zeros((n, out, height - a + 1, width - b + 1), dtype=np.int64)
    per_channel = call.operator.attributes.get("groups", 1) > 1
    for i in range(height - a + 1):
        for j in range(width - b + 1):
            window = x[:, :, i : i + a, j : j + b]
            if per_channel:
                y[:, :, i, j] = np.einsum("ncab,cab->nc", window, weight[:, 0])
            else:
                y[:, :, i, j] = np.einsum("ncab,ocab->no", window, weight)
    return y + bias[0][:, None, None] if bias else y


def pool(call: Call) -> Array:
    (x,) = call.inputs
    n, c, height, width = x.shape
    return x.reshape(n, c, height // 2, 2, width // 2, 2).max(axis=(3, 5))


def group_norm(call: Call) -> Array:
    x, weight = call.inputs
    total = x.sum(axis=tuple(range(1, x.ndim)), keepdims=True)
    return (x - total) * weight.reshape(-1, *(1,) * (x.ndim - 2))


def unheard_of(call: Call) -> Array:
    """A kind without a rule: it needs the whole tensor."""
    return np.cumsum(call.inputs[0]).reshape(call.inputs[0].shape)


KERNELS: Mapping[str, Callable[[Call], Array | list[Array]]] = {
    function.__name__: function
    for function in (
        matmul,
        elementwise,
        reduce,
        sum_of,
        transpose,
        reshape,
        expand,
        split,
        concatenate,
        softmax,
        norm,
        attention,
        gated,
        embedding,
        cross_entropy,
        conv,
        pool,
        group_norm,
        unheard_of,
    )
}


def run_whole(
    view: ComputationView, operator: Operator, values: Mapping[str, Array]
) -> list[Array]:
    """Return the outputs of an operator on one device that holds everything."""
    call = Call(
        operator,
        [values[name] for name in operator.inputs],
        [(0,) * len(view.tensors[name].shape) for name in operator.inputs],
        [view.tensors[name].shape for name in operator.outputs],
    )
    return _listed(KERNELS[operator.kind](call))


def run_split(
    placed: OperatorPlacement, view: ComputationView, inputs: Sequence[Sharded]
) -> list[Sharded]:
    """Return the outputs of an operator that every device of its mesh runs on its own part."""
    operator, mesh = placed.operator, placed.mesh
    rule = rule_of(operator, view.tensors, {operator.name: operator})
    gathered, summed = _exchanged(rule, placed)
    inputs = [
        _whole_along(tensor, gathered) if name in _travelling(rule) else tensor
        for name, tensor in zip(operator.inputs, inputs, strict=True)
    ]
    outputs = [
        Sharded(view.tensors[name].shape, distribution, {})
        for name, distribution in zip(operator.outputs, placed.outputs, strict=True)
    ]
    for device in mesh.devices:
        boxes = [tensor.box(device) for tensor in inputs]
        call = Call(
            operator,
            [
                tensor.parts[device] * (name not in rule.once or outputs[0].term(device) == 0)
                for name, tensor in zip(operator.inputs, inputs, strict=True)
            ],
            [tuple(part.start for part in box) for box in boxes],
            [tuple(part.stop - part.start for part in out.box(device)) for out in outputs],
        )
        for output, value in zip(outputs, _listed(KERNELS[operator.kind](call)), strict=True):
            output.parts[device] = value
    return [_reduced(output, summed) for output in outputs]


def _listed(value: Array | list[Array]) -> list[Array]:
    return value if isinstance(value, list) else [value]


def _travelling(rule: OperatorRule) -> set[str]:
    return {
        name
        for exchange in rule.exchanges
        if exchange.collective == "send_recv"
        for name in exchange.payload
    }


def _exchanged(
    rule: OperatorRule, placed: OperatorPlacement
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the axes along which the operator itself sends parts round, and those it sums over."""
    found: dict[str, tuple[str, ...]] = {"send_recv": (), "all_reduce": ()}
    for exchange in rule.exchanges:
        found[exchange.collective] += placed.factors.get(exchange.factor, ())
    return found["send_recv"], found["all_reduce"]


def _whole_along(tensor: Sharded, axes: tuple[str, ...]) -> Sharded:
    old = tensor.distribution
    dims = tuple(tuple(a for a in dim if a not in axes) for dim in old.dims)
    sizes = tuple(
        None if set(dim) & set(axes) else given
        for dim, given in zip(old.dims, old.sizes, strict=True)
    )
    whole = type(old)(mesh=old.mesh, dims=dims, partial=old.partial, sizes=sizes)
    return distribute(collect(tensor), whole)


def _reduced(tensor: Sharded, axes: tuple[str, ...]) -> Sharded:
    if not axes:
        return tensor
    old = tensor.distribution
    parts = {}
    for group in old.mesh.groups(*axes):
        devices = [old.mesh.devices[place] for place in group]
        total = np.sum([tensor.parts[device] for device in devices], axis=0)
        parts.update(dict.fromkeys(devices, total))
    return Sharded(tensor.shape, old, parts)


def values_for(view: ComputationView, seed: int = 0) -> dict[str, Array]:
    """Return random whole numbers for what a view starts from; class numbers stay in range."""
    random = np.random.default_rng(seed)
    made = {name for operator in view.operators for name in operator.outputs}
    return {
        name: random.integers(0, _highest(view, tensor), tensor.shape)
        if tensor.dtype == "int64"
        else random.integers(-4, 5, tensor.shape)
        for name, tensor in view.tensors.items()
        if name not in made
    }


def _highest(view: ComputationView, tensor: Tensor) -> int:
    for operator in view.operators:
        if operator.kind == "embedding" and operator.inputs[0] == tensor.name:
            return view.tensors[operator.inputs[1]].shape[0]
        if operator.kind == "cross_entropy" and operator.inputs[1] == tensor.name:
            return view.tensors[operator.inputs[0]].shape[-1]
    return 5
