"""The processes of a training: which one this is, and what they tell each other."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["TrainerGroup", "form_group"]


@dataclass(frozen=True)
class TrainerGroup:
    """This process among all of a training."""

    rank: int
    world: int
    device: Any
    """A torch.device."""
    first_of_instance: bool
    """Whether it reports and writes for its instance."""

    def gather(self, value: Any) -> list[Any]:
        """Exchange values: those of all ranks, in their order. All of them call it."""
        import torch.distributed as dist

        if self.world == 1:
            return [value]
        found: list[Any] = [None] * self.world
        dist.all_gather_object(found, value)
        return found

    def sum(self, *values: float) -> list[float]:
        """Return the sums over all ranks; all of them call it."""
        import torch
        import torch.distributed as dist

        if self.world == 1:
            return [*values]
        told = torch.tensor(values, dtype=torch.float64)
        if self.device.type == "cuda":
            told = told.to(self.device)
        dist.all_reduce(told)
        return [float(each) for each in told.cpu()]

    def spread(self, tensors: Sequence[Any]) -> None:
        """Give all ranks the values of rank 0, one message for each dtype; all of them call it."""
        import torch
        import torch.distributed as dist

        if self.world == 1:
            return
        for dtype in dict.fromkeys(each.dtype for each in tensors):
            alike = [each for each in tensors if each.dtype == dtype]
            flat: Any = torch.cat([each.detach().reshape(-1) for each in alike])
            dist.broadcast(flat, 0)
            parts = flat.split([each.numel() for each in alike])
            for tensor, values in zip(alike, parts, strict=True):
                tensor.copy_(values.view_as(tensor))

    def leave(self) -> None:
        """End the group, once all have come here."""
        import torch.distributed as dist

        if self.world > 1:
            dist.barrier()
            dist.destroy_process_group()


def form_group(environment: Mapping[str, str] = os.environ) -> TrainerGroup:
    """Return this process's place, with `torch.distributed` set up where there are others."""
    import torch
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    rank, world = int(environment.get("RANK", "0")), int(environment.get("WORLD_SIZE", "1"))
    local = int(environment.get("LOCAL_RANK", "0"))
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", local % torch.cuda.device_count())
        torch.cuda.set_device(device)
    if world > 1:
        store, _, _ = next(rendezvous("env://"))
        backend = "gloo"
        if device.type == "cuda" and _own_devices(store, rank, world, device):
            backend = "nccl"
        dist.init_process_group(backend, store=store, rank=rank, world_size=world)
    return TrainerGroup(rank, world, device, first_of_instance=local == 0)


def _own_devices(store: Any, rank: int, world: int, device: Any) -> bool:
    """Whether each process has a GPU of its own: NCCL refuses processes that share one, gloo takes them."""
    import torch

    identity = torch.cuda.get_device_properties(device).uuid
    store.set(f"device/{rank}", f"{socket.gethostname()} {identity}")
    return len({store.get(f"device/{each}") for each in range(world)}) == world
