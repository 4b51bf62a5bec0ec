"""The mesh of ranks that a plan asks for: stages outermost, tensor parallel ranks next to each other."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow_training.errors import InputError
from airflow_training.execution.execution_plan import ExecutionPlan, check_world

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

__all__ = ["form_group", "make_mesh", "replica_of", "stage_of", "world_size"]


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
        form_group(device_type)
    replicas, shards = (plan.dp, 1) if plan.zero == 0 else (1, plan.dp)
    return init_device_mesh(
        device_type,
        (plan.pp, replicas, shards, plan.tp),
        mesh_dim_names=("pp", "replicas", "shards", "tp"),
    )


def replica_of(plan: ExecutionPlan, rank: int) -> int:
    """Return the replica that a rank of the mesh belongs to: its ranks train on the same samples."""
    return rank // plan.tp % plan.dp


def stage_of(plan: ExecutionPlan, rank: int) -> int:
    """Return a rank's place along the pipeline."""
    return rank // (plan.tp * plan.dp)


def form_group(device_type: str, *, meet: Callable[[], Any] | None = None) -> None:
    """Form the process group of the ranks in the environment.

    Args:
        device_type: what they train on.
        meet: returns the store of a group that all ranks have come to; None: that at their address is new.

    Raises:
        InputError: an address is missing, or ranks would have to share a GPU.
        RuntimeError: a rank has gone.

    """
    import torch
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    absent = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if absent:
        raise InputError.of(
            code="NoRendezvous",
            field=absent[0],
            message=f"WORLD_SIZE says several ranks, and {', '.join(absent)} is not set",
            hint="start the script with torchrun or as a job, or call init_process_group first",
        )
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if device_type != "cuda":
        store = None if meet is None else meet()
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
        return
    local, count = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if local >= count:
        raise InputError.of(
            code="NoDevice",
            field="LOCAL_RANK",
            message=f"rank {os.environ['RANK']} is process {local} of its machine, which shows {count} GPUs",
            value=local,
            allowed=tuple(range(count)),
            hint="start as many processes on a machine as it has GPUs",
        )
    torch.cuda.set_device(local)
    store = next(rendezvous("env://"))[0] if meet is None else meet()
    _check_devices(store, rank, world, str(torch.cuda.get_device_properties(local).uuid))
    dist.init_process_group("nccl", store=store, rank=rank, world_size=world)


def _check_devices(store: Any, rank: int, world: int, device: str) -> None:
    """Check, on every rank, that each has a GPU of its own: NCCL refuses others, and says only a bus number."""
    # what NCCL tells machines apart by
    machine = os.environ.get("NCCL_HOSTID") or socket.gethostname()
    store.set(f"device/{rank}", f"{machine} {device}")
    owners: dict[str, list[int]] = {}
    for each in range(world):
        owners.setdefault(store.get(f"device/{each}").decode(), []).append(each)
    shared = next(((name, ranks) for name, ranks in owners.items() if len(ranks) > 1), None)
    if shared is None:
        return
    store.set(f"device-read/{rank}", "")
    if rank == 0:  # the store may end with it, and others still read
        for each in range(world):
            store.get(f"device-read/{each}")
    name, ranks = shared
    together = ", ".join(map(str, ranks))
    raise InputError.of(
        code="SharedDevice",
        field="CUDA_VISIBLE_DEVICES",
        message=f"ranks {together} have the same GPU, GPU-{name.split()[-1]}",
        value=ranks,
        hint="let each instance ask for a GPU of its own: `nvidia.com/gpu: 1`",
    )
