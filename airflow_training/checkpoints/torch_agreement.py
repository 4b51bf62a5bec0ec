"""How ranks that have a torch process group tell each other what they know: over that network, not the store."""

from __future__ import annotations

import json
from typing import Any

import torch
import torch.distributed as dist

__all__ = ["TorchAgreement"]

_ROOM = 512
"""Bytes that one exchange carries from each rank; longer values take a second one."""


class TorchAgreement:
    """Calls that all ranks make in the same order. Values are JSON; nothing is pickled."""

    def __init__(self) -> None:
        """Make a gloo group of its own: training's collectives and devices are not touched."""
        self._group = dist.new_group(backend="gloo")
        self._world = dist.get_world_size()

    def broadcast(self, value: Any) -> Any:
        """Return the value that rank 0 gave."""
        return self.gather(value)[0]

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, by rank."""
        mine = json.dumps(value).encode()
        rows = self._exchange(len(mine).to_bytes(8, "little") + mine[:_ROOM], 8 + _ROOM)
        sizes = [int.from_bytes(row[:8], "little") for row in rows]
        if max(sizes) <= _ROOM:
            texts = [row[8:] for row in rows]
        else:
            texts = self._exchange(mine, max(sizes))
        return [json.loads(text[:size]) for text, size in zip(texts, sizes, strict=True)]

    def _exchange(self, mine: bytes, room: int) -> list[bytes]:
        sent = torch.frombuffer(bytearray(mine.ljust(room, b"\0")), dtype=torch.uint8)
        received = [torch.empty(room, dtype=torch.uint8) for _ in range(self._world)]
        dist.all_gather(received, sent, group=self._group)
        return [bytes(row.tolist()) for row in received]
