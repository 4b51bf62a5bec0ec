"""PyTorch's operators that only look at the same numbers in another way, in a computation view."""

from __future__ import annotations

from typing import Any

from torch import fx

from airflow_training.planning.sources.aten import GraphWriter, arguments, converts, name_of


@converts(
    "view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "flatten", "unflatten", "expand"
)
def _reshape(scribe: GraphWriter, node: fx.Node) -> None:
    (source,) = scribe.inputs(node)
    if scribe.shape(source) == tuple(node.meta["val"].shape):
        scribe.alias(node, source)
    else:
        kind = "expand" if name_of(node.target) == "expand" else "reshape"
        scribe.operator(node.name, kind, [source], [scribe.result(node)])


@converts("clone", "contiguous", "detach", "alias", "lift_fresh_copy", "_to_copy", "to")
def _copy(scribe: GraphWriter, node: fx.Node) -> None:
    source = scribe.inputs(node)[0]
    if scribe.tensors[source].dtype == scribe.type_of(node.meta["val"].dtype):
        scribe.alias(node, source)
    else:
        scribe.operator(node.name, "elementwise", [source], [scribe.result(node)], function="cast")


@converts("permute", "transpose", "t")
def _transpose(scribe: GraphWriter, node: fx.Node) -> None:
    order = order_of(node)
    scribe.operator(node.name, "transpose", scribe.inputs(node), [scribe.result(node)], order=order)


def order_of(node: fx.Node) -> tuple[int, ...]:
    """Return the order of dimensions that a transposing node makes."""
    rank = len(node.meta["val"].shape)
    order = list(range(rank))
    if name_of(node.target) == "permute":
        return tuple(int(dim) % rank for dim in arguments(node)[1])
    one, other = (-2, -1) if name_of(node.target) == "t" else arguments(node)[1:3]
    if rank > 1:
        order[one], order[other] = order[other], order[one]
    return tuple(order)


@converts("cat")
def _concatenate(scribe: GraphWriter, node: fx.Node) -> None:
    dim = arguments(node)[1] if len(arguments(node)) > 1 else 0
    scribe.operator(node.name, "concatenate", scribe.inputs(node), [scribe.result(node)], dim=dim)


@converts("split", "split_with_sizes", "chunk", "tensor_split")
def _split(scribe: GraphWriter, node: fx.Node) -> None:
    dim: Any = arguments(node)[2] if len(arguments(node)) > 2 else node.kwargs.get("dim", 0)
    (source,) = scribe.inputs(node)
    rank = len(scribe.shape(source))
    # The rows of a weight may lie in any order: a device's slice can hold its share of every part.
    mixed = _is_linear(scribe, source) and dim % rank == rank - 1
    outputs = scribe.results(node)
    scribe.operator(node.name, "split", [source], outputs, dim=dim, interleaved=mixed)


def _is_linear(scribe: GraphWriter, name: str) -> bool:
    """Return whether a tensor is the product of something with a parameter."""
    makers = (op for op in scribe.operators if name in op.outputs and op.kind == "matmul")
    return any(scribe.tensors[own].kind == "parameter" for op in makers for own in op.inputs[1:2])


@converts("slice")
def _slice(scribe: GraphWriter, node: fx.Node) -> None:
    (source,) = scribe.inputs(node)
    if scribe.shape(source) == tuple(node.meta["val"].shape):
        scribe.alias(node, source)
        return
    dim = arguments(node)[1] if len(arguments(node)) > 1 else 0
    scribe.operator(node.name, "split", [source], [scribe.result(node)], dim=dim)


@converts("select")
def _select(scribe: GraphWriter, node: fx.Node) -> None:
    (source,), dim = scribe.inputs(node), int(arguments(node)[1])
    shape = list(scribe.shape(source))
    shape[dim] = 1
    one = scribe.made(f"{node.name}.one", tuple(shape), scribe.tensors[source].dtype)
    scribe.operator(f"{node.name}.slice", "split", [source], [one], dim=dim)
    scribe.operator(node.name, "reshape", [one], [scribe.result(node)])
