"""Data parallel: plain replicas by DistributedDataParallel, ZeRO and what goes with other axes by `fully_shard`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_training.execution.execution_plan import ExecutionPlan

if TYPE_CHECKING:
    import torch
    from torch.distributed.device_mesh import DeviceMesh

__all__ = ["blocks", "replica_axis", "replicate_module", "sync_gradients"]


def blocks(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Yield the layers of a module: the entries of its outermost lists, those with parameters of their own only.

    What shares a parameter with the rest of the module is left to the module itself.
    """
    import torch

    owners: dict[int, int] = {}
    for inner in module.modules():
        for parameter in inner._parameters.values():
            if parameter is not None:
                owners[id(parameter)] = owners.get(id(parameter), 0) + 1

    def found(inner: torch.nn.Module) -> Iterator[torch.nn.Module]:
        for child in inner.children():
            if isinstance(inner, torch.nn.ModuleList | torch.nn.Sequential):
                parameters = list(child.parameters())
                if parameters and all(owners[id(parameter)] == 1 for parameter in parameters):
                    yield child
            else:
                yield from found(child)

    yield from found(module)


def replica_axis(plan: ExecutionPlan) -> str:
    """Return the axis of the mesh along which replicas lie."""
    return "shards" if plan.zero else "replicas"


def replicate_module(
    module: torch.nn.Module, plan: ExecutionPlan, mesh: DeviceMesh
) -> torch.nn.Module:
    """Return the module with its gradients averaged over the replicas of the plan.

    ZeRO 1 and 2 keep the parameters of a step gathered and split gradients and optimizer; 3 splits the
    parameters between passes as well.
    """
    import torch
    from torch.distributed.fsdp import fully_shard

    if plan.dp == 1:
        return module
    if plan.zero == 0 and plan.tp == 1 and plan.pp == 1:
        replicate = partial(
            torch.nn.parallel.DistributedDataParallel,
            module,
            process_group=mesh["replicas"].get_group(),
        )
        # buffers are equal from the start; torch 2.13 warns of the name that older ones have
        if "forward_sync_buffers" in inspect.signature(replicate).parameters:
            return replicate(forward_sync_buffers=False)
        return replicate(broadcast_buffers=False)
    over = mesh["replicas", "shards"] if plan.zero == 0 else mesh["shards"]
    for block in [*blocks(module), module]:
        fully_shard(block, mesh=over, reshard_after_forward=plan.zero == 3)
    return module


def sync_gradients(module: torch.nn.Module, plan: ExecutionPlan, *, last: bool) -> Any:
    """Return the context of one micro-batch's passes: gradients are exchanged when they must be.

    ZeRO 2 and 3 keep no gradient whole, so they exchange those of every micro-batch.
    """
    from contextlib import nullcontext

    from torch.distributed.fsdp import FSDPModule
    from torch.nn.parallel import DistributedDataParallel

    if isinstance(module, DistributedDataParallel):
        return nullcontext() if last else module.no_sync()
    if isinstance(module, FSDPModule):
        module.set_requires_gradient_sync(last or plan.zero > 1)
        module.set_is_last_backward(last)
    return nullcontext()
