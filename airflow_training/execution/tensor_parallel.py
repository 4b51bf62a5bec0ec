"""Tensor parallel modules: parameters become DTensors, and torch's rules say what each operator moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from airflow_training.execution.forwarding import wrap_forward

if TYPE_CHECKING:
    import torch
    from torch.distributed.device_mesh import DeviceMesh

__all__ = ["distribute_parameters", "register_attention", "whole_at_the_edges"]


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
    from torch.distributed.tensor.experimental import implicit_replication

    register_attention()
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
            with implicit_replication():
                args, kwargs = torch.utils._pytree.tree_map(enter, (args, kwargs))
                return torch.utils._pytree.tree_map(leave, forward(*args, **kwargs))

        return wrapped

    wrap_forward(module, wrap)


@cache
def register_attention() -> None:
    """Give DTensor the rule of fused attention on CPUs, which it has for CUDA only: by batch and by heads."""
    import torch
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.experimental import register_sharding

    aten = torch.ops.aten

    def rows(tensors: int, outputs: int) -> Callable[..., Any]:
        def rule(*args: Any, **kwargs: Any) -> Any:
            others = len(args) - tensors
            return [
                ([place] * outputs, [place] * tensors + [None] * others)
                for place in (Replicate(), Shard(0), Shard(1))
            ]

        return rule

    register_sharding(aten._scaled_dot_product_flash_attention_for_cpu.default)(rows(3, 2))
    register_sharding(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)(rows(6, 3))
