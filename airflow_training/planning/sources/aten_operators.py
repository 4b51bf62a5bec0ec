"""What PyTorch's operators are in a computation view. Importing this registers them.

An operator that is not here is written under its own name, which has no rule: every device runs all of
it, and lowering warns.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import fx

from airflow_training.planning.sources.aten import GraphWriter, arguments, converts, name_of
from airflow_training.planning.sources.aten_shapes import order_of

LETTERS = "abcdefghijlmopqrstuvwxyz"
"""For einsum equations; k is what is summed over, n a new dimension."""
ONE_OF_MANY = {"mul": "scale", "div": "scale"}
"""Element-wise functions with a number as their second operand."""
WHOLE = ("selective", "full")


@converts("linear")
def _linear(scribe: GraphWriter, node: fx.Node) -> None:
    inputs = scribe.inputs(node)
    rows = LETTERS[: len(scribe.shape(inputs[0])) - 1]
    bias = ",n" if len(inputs) > 2 else ""
    equation = f"{rows}k,nk{bias}->{rows}n"
    scribe.operator(node.name, "matmul", inputs, [scribe.result(node)], equation=equation)


@converts("mm", "bmm", "matmul", "mv", "dot", "vdot")
def _matmul(scribe: GraphWriter, node: fx.Node) -> None:
    _product(scribe, node, arguments(node)[0], arguments(node)[1])


@converts("addmm", "baddbmm")
def _addmm(scribe: GraphWriter, node: fx.Node) -> None:
    _product(scribe, node, arguments(node)[1], arguments(node)[2], arguments(node)[0])


def _product(scribe: GraphWriter, node: fx.Node, left: Any, right: Any, bias: Any = None) -> None:
    """Write a product of the last dimension of `left` with the last but one of `right`."""
    (one,), (other, order) = scribe.of(left), _untransposed(scribe, right)
    first, second = scribe.shape(one), [scribe.shape(other)[i] for i in order]
    result = scribe.result(node)
    shape = scribe.shape(result)
    columns = "n" if len(second) > 1 else ""
    rows = LETTERS[: len(shape) - len(columns)]
    row = rows[-1:] if len(first) > 1 else ""
    batch = rows[: len(rows) - len(row)]
    spare = iter(LETTERS[len(shape) :])
    mine = [_letter(shape, batch, first[:-2], i, spare) for i in range(len(first) - 2)]
    yours = [_letter(shape, batch, second[:-2], i, spare) for i in range(len(second) - 2)]
    terms = ["".join([*mine, row, "k"])]
    straight = [*yours, "k", columns] if columns else ["k"]
    terms.append("".join(straight[order.index(i)] for i in range(len(order))))
    inputs = [one, other]
    if bias is not None:
        (name,) = scribe.of(bias)
        own, out = scribe.shape(name), rows + columns
        inputs.append(name)
        terms.append(
            "".join(
                letter if size == whole else next(spare)
                for letter, size, whole in zip(
                    out[len(out) - len(own) :], own, shape[len(out) - len(own) :], strict=True
                )
            )
        )
    equation = f"{','.join(terms)}->{rows}{columns}"
    scribe.operator(node.name, "matmul", inputs, [result], equation=equation)


def _letter(shape: Sequence[int], batch: str, dims: Sequence[int], place: int, spare: Any) -> str:
    """Return the letter of a batch dimension; one of its own for a dimension that is broadcast."""
    at = len(batch) - len(dims) + place
    return batch[at] if shape[at] == dims[place] else next(spare)


def _untransposed(scribe: GraphWriter, node: Any) -> tuple[str, tuple[int, ...]]:
    """Return a tensor and the order of its dimensions; a transposed parameter as it was before."""
    if name_of(node.target) in {"permute", "t", "transpose"} and node.op == "call_function":
        (source,) = scribe.inputs(node)
        if scribe.tensors[source].kind == "parameter":
            order = order_of(node)
            return source, order
    (name,) = scribe.of(node)
    return name, tuple(range(len(scribe.shape(name))))


@converts("einsum")
def _einsum(scribe: GraphWriter, node: fx.Node) -> None:
    equation = str(arguments(node)[0]).replace(" ", "")
    left, arrow, _ = equation.partition("->")
    terms = left.split(",")
    if len(terms) != 2 or not arrow or "." in equation or any(len(set(t)) < len(t) for t in terms):
        _unknown(scribe, node)
        return
    inputs = scribe.inputs(node)
    scribe.operator(node.name, "matmul", inputs, [scribe.result(node)], equation=equation)


@converts("convolution")
def _convolution(scribe: GraphWriter, node: fx.Node) -> None:
    if arguments(node)[6]:
        _unknown(scribe, node)
        return
    scribe.operator(node.name, "conv", scribe.inputs(node), [scribe.result(node)])


@converts("layer_norm", "rms_norm")
def _norm(scribe: GraphWriter, node: fx.Node) -> None:
    rank = len(arguments(node)[1])
    inputs = scribe.inputs(node)
    scribe.operator(node.name, "norm", inputs, [scribe.result(node)], rank=rank)


@converts(
    "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit_no_training",
    "_native_batch_norm_legit",
    "native_batch_norm",
    "cudnn_batch_norm",
)
def _batch_norm(scribe: GraphWriter, node: fx.Node) -> None:
    """Write it without its running statistics, which nothing waits for."""
    inputs = [
        name
        for source in arguments(node)[:3]
        if isinstance(source, fx.Node)
        for name in scribe.of(source)
    ]
    scribe.operator(node.name, "batch_norm", inputs, [scribe.result(node)])


@converts("group_norm")
def _group_norm(scribe: GraphWriter, node: fx.Node) -> None:
    scribe.operator(node.name, "group_norm", scribe.inputs(node), [scribe.result(node)])


@converts("_softmax", "_log_softmax")
def _softmax(scribe: GraphWriter, node: fx.Node) -> None:
    scribe.operator(
        node.name, "softmax", scribe.inputs(node), [scribe.result(node)], dim=arguments(node)[1]
    )


@converts("scaled_dot_product_attention")
def _attention(scribe: GraphWriter, node: fx.Node) -> None:
    """Write q, k and v of (batch, heads, sequence, head); other ranks have no rule."""
    query, key, value = scribe.inputs(node)[:3]
    shape = scribe.shape(query)
    if len(shape) != 4:
        _unknown(scribe, node)
        return
    causal = bool(
        node.kwargs.get("is_causal", arguments(node)[5] if len(arguments(node)) > 5 else False)
    )
    rows = scribe.made(f"{node.name}.rows", shape[:3], "float32")
    scribe.operator(
        node.name,
        "attention",
        (query, key, value),
        (scribe.result(node), rows),
        heads_first=True,
        causal=causal,
        recompute=WHOLE,
    )


@converts("embedding")
def _embedding(scribe: GraphWriter, node: fx.Node) -> None:
    table, numbers = scribe.inputs(node)
    scribe.operator(node.name, "embedding", (numbers, table), [scribe.result(node)])


@converts("cross_entropy_loss", "nll_loss_forward", "nll_loss")
def _cross_entropy(scribe: GraphWriter, node: fx.Node) -> None:
    """Write a loss per row, and its mean."""
    logits, labels = scribe.inputs(node)[:2]
    shape = scribe.shape(logits)
    if scribe.tensors[labels].dtype != "int64" or len(scribe.shape(labels)) != len(shape) - 1:
        _unknown(scribe, node)
        return
    if len(shape) > 2:
        order = (0, *range(2, len(shape)), 1)
        last = scribe.made(f"{node.name}.logits", tuple(shape[i] for i in order))
        scribe.operator(f"{node.name}.transpose", "transpose", [logits], [last], order=order)
        logits = last
    result = scribe.result(node)
    rows = scribe.shape(labels)
    if scribe.shape(result) == rows:
        scribe.operator(node.name, "cross_entropy", (logits, labels), [result])
        return
    each = scribe.made(f"{node.name}.rows", rows)
    scribe.operator(node.name, "cross_entropy", (logits, labels), [each])
    dims = tuple(range(len(rows)))
    scribe.operator(f"{node.name}.mean", "reduce", [each], [result], dims=dims, function="mean")


@converts(
    "sum", "mean", "amax", "amin", "max", "min", "var", "var_mean", "prod", "argmax", "argmin",
    "any", "all", "logsumexp", "linalg_vector_norm",
)  # fmt: skip
def _reduce(scribe: GraphWriter, node: fx.Node) -> None:
    inputs = scribe.inputs(node)
    if len(inputs) > 1:
        _pointwise(scribe, node)
        return
    rank = len(scribe.shape(inputs[0]))
    at = 2 if name_of(node.target) == "linalg_vector_norm" else 1
    dims: Any = arguments(node)[at] if len(arguments(node)) > at else node.kwargs.get("dim")
    dims = (dims,) if isinstance(dims, int) else tuple(dims or range(rank))
    several = isinstance(node.meta["val"], (tuple, list))
    outputs = scribe.results(node) if several else (scribe.result(node),)
    keep = len(scribe.shape(outputs[0])) == rank
    function = name_of(node.target)
    scribe.operator(node.name, "reduce", inputs, outputs, dims=dims, keep=keep, function=function)


@converts("native_dropout")
def _dropout(scribe: GraphWriter, node: fx.Node) -> None:
    scribe.operator(
        node.name, "elementwise", scribe.inputs(node), scribe.results(node), function="dropout"
    )


@converts(
    "max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool2d", "constant_pad_nd",
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_bilinear2d",
    "reflection_pad1d", "reflection_pad2d", "replication_pad1d", "replication_pad2d",
)  # fmt: skip
def _pool(scribe: GraphWriter, node: fx.Node) -> None:
    (source,) = scribe.inputs(node)
    before, result = scribe.shape(source), scribe.result(node)
    after = scribe.shape(result)
    if len(before) < 3 or before[:2] != after[:2]:
        scribe.operator(node.name, name_of(node.target), [source], [result])
        return
    window = 1
    if "pool" in name_of(node.target):
        kernel = arguments(node)[1]
        adaptive = "adaptive" in name_of(node.target)
        window = prod(before[2:]) // prod(after[2:]) if adaptive else prod(_numbers(kernel, before))
    scribe.operator(node.name, "pool", [source], [result], window=window)


def _numbers(kernel: Any, shape: Sequence[int]) -> list[int]:
    sizes = [kernel] if isinstance(kernel, int) else list(kernel)
    return sizes * (len(shape) - 2) if len(sizes) == 1 else sizes


@converts("pointwise")
def _pointwise(scribe: GraphWriter, node: fx.Node) -> None:
    """Write any function of single elements: torch marks them."""
    inputs = scribe.inputs(node)
    function = name_of(node.target)
    if len(inputs) == 1:
        function = ONE_OF_MANY.get(function, function)
    scribe.operator(node.name, "elementwise", inputs, [scribe.result(node)], function=function)


@converts("cond")
def _cond(scribe: GraphWriter, node: fx.Node) -> None:
    """Write the branches; the condition itself is the last input, which no branch reads."""
    condition, *branches, operands = arguments(node)
    names = [name for source in operands for name in scribe.of(source)]
    chances: dict[str, Any] = {}
    if node.name in scribe.probabilities:
        chances["probability"] = tuple(scribe.probabilities[node.name])
    scribe.operator(
        node.name,
        "cond",
        (*names, *scribe.of(condition)),
        scribe.results(node),
        bodies=tuple(scribe.body(node, branch) for branch in branches),
        **chances,
    )


@converts("while_loop")
def _while_loop(scribe: GraphWriter, node: fx.Node) -> None:
    """Write the body; the test is a comparison of numbers, which costs nothing beside it."""
    names = [name for part in arguments(node)[2:] for source in part for name in scribe.of(source)]
    scribe.operator(
        node.name,
        "while_loop",
        names,
        scribe.results(node),
        bodies=(scribe.body(node, arguments(node)[1]),),
        count=scribe.trips.get(node.name, 1.0),
    )


@converts("scan")
def _scan(scribe: GraphWriter, node: fx.Node) -> None:
    combine, carried, sequences, *more = arguments(node)
    names = [
        name
        for part in (carried, sequences, *more)
        for source in part
        for name in scribe.of(source)
    ]
    turns = scribe.shape(scribe.of(sequences[0])[0])[0]
    scribe.operator(
        node.name,
        "scan",
        names,
        scribe.results(node),
        bodies=(scribe.body(node, combine),),
        count=scribe.trips.get(node.name, float(turns)),
        carried=len(carried),
    )


@converts("unknown")
def _unknown(scribe: GraphWriter, node: fx.Node) -> None:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        outputs: tuple[str, ...] = (scribe.result(node),)
    elif isinstance(value, (tuple, list)):
        outputs = scribe.results(node)
    else:
        return
    scribe.operator(node.name, name_of(node.target), scribe.inputs(node), outputs)
