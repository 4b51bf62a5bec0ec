"""Tensor parallel modules: parameters become DTensors, and torch's rules say what each operator moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from airflow_training.execution.forwarding import wrap_forward

if TYPE_CHECKING:
    import torch
    from torch.distributed.device_mesh import DeviceMesh

__all__ = ["distribute_parameters", "function_rules", "tensor_rules", "whole_at_the_edges"]

WHOLE = frozenset(
    {
        *(f"conv{dims}d" for dims in (1, 2, 3)),
        *(f"conv_transpose{dims}d" for dims in (1, 2, 3)),
        *("lstm", "gru", "rnn_tanh", "rnn_relu", "batch_norm", "group_norm"),
        "multi_head_attention_forward",  # its three projections are one weight, which no axis cuts evenly
    }
)
"""Functions that DTensor has no rule for, or none that splits channels: each rank runs all of it."""
_EMBEDDING_ARGUMENTS = (
    "input", "weight", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse",
)  # fmt: skip
_ROW_ARGUMENTS = ("weight", "indices", "padding_idx", "scale_grad_by_freq", "sparse")
"""What `torch.nn.functional.embedding` calls its arguments, in their order, and what torch's operator does."""
_PART_ARGUMENTS = {
    **dict.fromkeys(("input", "self"), "tensor"),
    **dict.fromkeys(("chunks", "split_size", "split_size_or_sections"), "size"),
}
"""What `chunk` and `split` call their arguments, in torch's functions, methods and operators -> what `_part` does."""


def distribute_parameters(
    module: torch.nn.Module, mesh: DeviceMesh, splits: Mapping[str, int | None]
) -> None:
    """Make every parameter a DTensor over `mesh`, in place: split along the dimension given, else whole.

    A parameter that several modules share stays shared.
    """
    import torch
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    names = {id(parameter): name for name, parameter in module.named_parameters()}
    made: dict[int, torch.nn.Parameter] = {}
    for inner in module.modules():
        for key, parameter in list(inner._parameters.items()):
            if parameter is None:
                continue
            if id(parameter) not in made:
                dim = splits.get(names[id(parameter)])
                placements = [Replicate() if dim is None else Shard(dim)]
                made[id(parameter)] = torch.nn.Parameter(
                    distribute_tensor(parameter.detach(), mesh, placements),
                    requires_grad=parameter.requires_grad,
                )
            setattr(inner, key, made[id(parameter)])


def whole_at_the_edges(
    module: torch.nn.Module, mesh: DeviceMesh, *, sequence_parallel: bool
) -> None:
    """Let a module of DTensors take and return plain tensors, equal on all ranks of `mesh`.

    With `sequence_parallel` what comes in is split along dimension 1, where that divides: norms and dropout
    between products then work on a part of the sequence (Korthikanti et al. 2022, arXiv:2205.05198).
    """
    import torch
    from torch.distributed.tensor import DTensor, Replicate, Shard

    def enter(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or isinstance(value, DTensor):
            return value
        whole = DTensor.from_local(value, mesh, [Replicate()], run_check=False)
        if sequence_parallel and value.dim() == 3 and value.shape[1] % mesh.size() == 0:
            return whole.redistribute(mesh, [Shard(1)])
        return whole

    def leave(value: Any) -> Any:
        if not isinstance(value, DTensor):
            return value
        return value.redistribute(mesh, [Replicate()]).to_local()

    def wrap(forward: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = torch.utils._pytree.tree_map(enter, (args, kwargs))
            return torch.utils._pytree.tree_map(leave, forward(*args, **kwargs))

        return wrapped

    wrap_forward(module, wrap)


@contextmanager
def tensor_rules() -> Iterator[None]:
    """Hold what DTensor lacks, around whole steps: the backward pass and what it runs again need it too.

    Tensors that the module makes itself are taken to be the same on all tensor parallel ranks.
    """
    from torch.distributed.tensor.experimental import implicit_replication

    _register_attention()
    with implicit_replication(), function_rules():
        yield


@contextmanager
def function_rules() -> Iterator[None]:
    """Run functions of `WHOLE` on whole tensors, sum some at once, and part fused projections.

    Summed are what a part of a table has looked up, what is dropped of, and what is added to a residual.
    """
    import torch
    from torch.distributed.tensor import DTensor, Replicate
    from torch.overrides import TorchFunctionMode

    # each as modules call it, as torch does, and as a traced stage does
    functional, aten = torch.nn.functional, torch.ops.aten
    tables = {functional.embedding, torch.embedding, aten.embedding.default}
    drops = {functional.dropout, torch.dropout, aten.dropout.default}
    sums = {
        torch.add,
        torch.Tensor.add,
        torch.Tensor.__add__,
        torch.Tensor.__radd__,
        aten.add.Tensor,
    }
    parts = {
        torch.chunk,
        torch.split,
        torch.Tensor.chunk,
        torch.Tensor.split,
        aten.chunk.default,
        aten.split.Tensor,
    }
    special = tables | drops | sums | parts

    class FunctionRules(TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            whole = getattr(function, "__name__", "").partition(".")[0] in WHOLE
            if not whole and function not in special:
                return function(*args, **kwargs)
            leaves = torch.utils._pytree.tree_leaves((args, kwargs))
            mesh = next((leaf.device_mesh for leaf in leaves if isinstance(leaf, DTensor)), None)
            if mesh is None:
                return function(*args, **kwargs)

            def gathered(value: Any) -> Any:
                return (
                    value.redistribute(mesh, [Replicate()]) if isinstance(value, DTensor) else value
                )

            def local(value: Any) -> Any:
                return gathered(value).to_local() if isinstance(value, DTensor) else value

            def spread(value: Any) -> Any:
                if not isinstance(value, torch.Tensor):
                    return value
                return DTensor.from_local(value, mesh, [Replicate()], run_check=False)

            def summed(value: Any) -> Any:
                if not isinstance(value, DTensor):
                    return value
                places = [Replicate() if each.is_partial() else each for each in value.placements]
                return value.redistribute(mesh, places)

            tree_map = torch.utils._pytree.tree_map
            if function in sums and not _joins_residual(leaves):
                return function(*args, **kwargs)
            if function in drops or function in sums:
                return function(*tree_map(summed, args), **kwargs)
            if function in tables:
                return _look_up(function, mesh, args, kwargs)
            if function in parts:
                return _part(function, mesh, args, kwargs)
            args, kwargs = tree_map(local, (args, kwargs))
            return tree_map(spread, function(*args, **kwargs))

    with FunctionRules():
        yield


def _joins_residual(leaves: Sequence[Any]) -> bool:
    """Return whether what each rank has a part of the sum of is added to what all have whole.

    torch leaves the sum to whoever reads it: to a norm, and once more to the norm's backward pass.
    """
    from torch.distributed.tensor import DTensor

    placements = [leaf.placements for leaf in leaves if isinstance(leaf, DTensor)]
    return any(all(each.is_replicate() for each in places) for places in placements) and any(
        each.is_partial() for places in placements for each in places
    )


def _look_up(function: Any, mesh: DeviceMesh, args: tuple[Any, ...], kwargs: Any) -> Any:
    """Look up rows of a table; of one that is split by rows, each rank has those it holds, and zeros."""
    import torch
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

    whole = (Replicate(),)
    module_call = function is torch.nn.functional.embedding
    names = _EMBEDDING_ARGUMENTS if module_call else _ROW_ARGUMENTS
    given = dict(zip(names, args, strict=False)) | kwargs
    indices, weight = given["input" if module_call else "indices"], given["weight"]
    if not isinstance(weight, DTensor) or weight.placements != (Shard(0),):
        return function(**given).redistribute(mesh, whole)
    padding = given.get("padding_idx")
    special = padding is not None and (module_call or padding >= 0)  # torch.embedding's -1: none
    if special or any(given.get(name) for name in ("max_norm", "scale_grad_by_freq", "sparse")):
        # these go by the place in the whole table
        given["weight"] = weight.redistribute(mesh, whole)
        return function(**given).redistribute(mesh, whole)
    if isinstance(indices, DTensor):
        indices = indices.redistribute(mesh, whole).to_local()
    rows = weight.to_local()
    start = weight.__create_chunk_list__()[0].offsets[0] if len(rows) else 0
    inside = (indices >= start) & (indices < start + len(rows))
    outside = (indices < 0) | (indices >= weight.shape[0])
    looks = indices.device.type == "cpu"  # on a GPU to look would be to wait for it
    if looks and bool(outside.any()):
        raise IndexError(f"index out of range: a table of {weight.shape[0]} rows")
    if len(rows):
        found = torch.nn.functional.embedding((indices - start).masked_fill(~inside, 0), rows)
    else:
        found = rows.new_zeros((*indices.shape, rows.shape[1])) + rows.sum()
    found = found * inside.unsqueeze(-1)
    return DTensor.from_local(found, mesh, [Partial()], run_check=False).redistribute(mesh, whole)


def _part(function: Any, mesh: DeviceMesh, args: tuple[Any, ...], kwargs: Any) -> Any:
    """Part a tensor along the dimension that is split over ranks, so that every part is split there again.

    As queries, keys and values of one projection are: where torch would gather all of it, each rank gets its share of
    each part. Other cuts are torch's.
    """
    import torch
    from torch.distributed._functional_collectives import all_to_all_single_autograd
    from torch.distributed.tensor import DTensor, Shard

    given = {"dim": 0, **dict(zip(("tensor", "size", "dim"), args, strict=False))}
    given |= {_PART_ARGUMENTS.get(name, name): value for name, value in kwargs.items()}
    tensor, size = given["tensor"], given["size"]
    dim = given["dim"] % tensor.dim()
    ranks, length = mesh.size(), tensor.shape[dim]
    number = size if isinstance(size, int) else 0
    if getattr(function, "__name__", "").partition(".")[0] == "split":
        number = length // number if number and length % number == 0 else 0
    even = number > 0 and length % (number * ranks) == 0
    if tuple(tensor.placements) != (Shard(dim),) or not even:
        return function(*args, **kwargs)
    # the tensor is number x ranks blocks in a row, each of the part and for the rank that its place says
    mine = mesh.get_local_rank()
    owners = [[(rank * number + block) % ranks for block in range(number)] for rank in range(ranks)]
    blocks = tensor.to_local().unflatten(dim, (number, -1)).movedim(dim, 0)
    sent = torch.tensor(sorted(range(number), key=owners[mine].__getitem__), device=blocks.device)
    got = all_to_all_single_autograd(
        blocks.index_select(0, sent).contiguous(),
        [owners[rank].count(mine) for rank in range(ranks)],
        [owners[mine].count(rank) for rank in range(ranks)],
        mesh.get_group(),
    )
    return tuple(DTensor.from_local(each, mesh, [Shard(dim)], run_check=False) for each in got)


@cache
def _register_attention() -> None:
    """Give DTensor the rule of fused attention on CPUs, which it has for CUDA only: by batch and by heads."""
    import torch
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.experimental import register_sharding

    aten = torch.ops.aten

    def rows(tensors: int, outputs: int) -> Callable[..., Any]:
        def rule(*args: Any, **_: Any) -> Any:
            others = len(args) - tensors
            return [
                ([place] * outputs, [place] * tensors + [None] * others)
                for place in (Replicate(), Shard(0), Shard(1))
            ]

        return rule

    register_sharding(aten._scaled_dot_product_flash_attention_for_cpu.default)(rows(3, 2))
    register_sharding(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)(rows(6, 3))
