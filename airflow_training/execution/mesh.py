"""The mesh of ranks that a plan asks for: stages outermost, tensor parallel ranks next to each other."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from airflow_training.errors import InputError
from airflow_training.execution.execution_plan import ExecutionPlan, check_world

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

__all__ = ["make_mesh", "world_size"]


def world_size() -> int:
    """Ranks that were started, by the process group or else by the environment (`WORLD_SIZE`)."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_world_size()
    return int(os.environ.get("WORLD_SIZE", "1"))


def make_mesh(plan: ExecutionPlan, device_type: str) -> DeviceMesh | None:
    """Form the process group where it is not formed, and the mesh over it; None for one rank.

    `replicas` and `shards` together are data parallel: ZeRO splits over `shards`, plain replicas lie along
    `replicas`.

    Raises:
        InputError: another number of ranks was started than the plan is for.

    """
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    world = world_size()
    check_world(plan, world)
    if world == 1:
        return None
    if not dist.is_initialized():
        _form(device_type)
    replicas, shards = (plan.dp, 1) if plan.zero == 0 else (1, plan.dp)
    return init_device_mesh(
        device_type,
        (plan.pp, replicas, shards, plan.tp),
        mesh_dim_names=("pp", "replicas", "shards", "tp"),
    )


def _form(device_type: str) -> None:
    import torch
    import torch.distributed as dist

    absent = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if absent:
        raise InputError.of(
            code="NoRendezvous",
            field=absent[0],
            message=f"WORLD_SIZE says several ranks, and {', '.join(absent)} is not set",
            hint="start the script with torchrun or as a job, or call init_process_group first",
        )
    if device_type == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if device_type == "cuda" else "gloo")
