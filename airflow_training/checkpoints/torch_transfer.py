"""One rank's state on its way to ranks that have none: over a gloo group, on which nothing else travels.

What arrived is compared with what its giver said of it before anybody reads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist

from airflow_training.checkpoints.agreement import Agreement
from airflow_training.checkpoints.digests import algorithm, digest_of, digests_of_chunks
from airflow_training.checkpoints.documents import canonical, sha256_of

__all__ = ["TreeOutline", "transfer_state"]

_AT_ONCE = 64 << 20
"""Bytes of one broadcast."""


@dataclass(frozen=True, eq=False)
class TreeOutline:
    """A tree as `tree.outline` sees it."""

    document: Any
    """An object with a key for each section."""
    blobs: Mapping[str, memoryview]

    @cached_property
    def header(self) -> bytes:
        """What is needed to make use of the blobs: the document, and name, size and digest of each."""
        name = algorithm()
        blobs = [
            [key, len(v), digest_of(digests_of_chunks([v], name=name), size=len(v), name=name)]
            for key, v in self.blobs.items()
        ]
        return canonical({"document": self.document, "blobs": blobs})

    @property
    def sections(self) -> dict[str, str]:
        """Return the digest of each section with its blobs: what ranks compare before one copies from another."""
        blobs = json.loads(self.header)["blobs"]
        return {
            section: sha256_of(
                canonical([content, [b for b in blobs if b[0].partition("/")[0] == section]])
            )
            for section, content in self.document.items()
        }

    @property
    def size(self) -> int:
        """Return the bytes of all blobs."""
        return sum(map(len, self.blobs.values()))


def transfer_state(
    state: TreeOutline | None,
    *,
    rank: int,
    source: int,
    newcomers: Sequence[int],
    header: tuple[int, str],
    agreement: Agreement,
) -> TreeOutline | None:
    """Return the state on every newcomer, and on the source; None elsewhere. All ranks call it.

    Args:
        state: of the source.
        rank: of this process.
        source: the rank that gives.
        newcomers: those that get it.
        header: size and digest of the source's `TreeOutline.header`.
        agreement: of all ranks.

    Raises:
        ValueError: on all ranks: what arrived at one of them is not what was sent.
    """
    size, digest = header
    # made by all ranks, also those that have no part in it
    group = dist.new_group([source, *newcomers], backend="gloo")
    takes_part = rank == source or rank in newcomers

    def pass_on(view: memoryview) -> memoryview:
        if takes_part:
            _broadcast(view, source=source, gives=rank == source, group=group)
        return view

    given = state if rank == source else None
    try:
        opening = bytes(pass_on(memoryview(given.header if given else bytearray(size))))
        # without it nobody knows what comes next
        _agree(agreement, right=not takes_part or sha256_of(opening) == digest, source=source)
        if not takes_part:
            _agree(agreement, right=True, source=source)
            return None
        said = json.loads(opening)
        arrived = TreeOutline(
            document=said["document"],
            blobs={
                key: pass_on(given.blobs[key] if given else memoryview(bytearray(length)))
                for key, length, _ in said["blobs"]
            },
        )
        _agree(agreement, right=sha256_of(arrived.header) == digest, source=source)
        return arrived
    finally:
        if takes_part:
            dist.destroy_process_group(group)


def _agree(agreement: Agreement, *, right: bool, source: int) -> None:
    wrong = [rank for rank, each in enumerate(agreement.gather(right)) if not each]
    if wrong:
        raise ValueError(f"what rank {wrong[0]} got is not what rank {source} has")


def _broadcast(view: memoryview, *, source: int, gives: bool, group: Any) -> None:
    for start in range(0, len(view), _AT_ONCE):
        piece = view[start : start + _AT_ONCE]
        staged = bytearray(piece)  # torch wants memory that may be written to, also where it reads
        dist.broadcast(torch.frombuffer(staged, dtype=torch.uint8), src=source, group=group)
        if not gives:
            piece[:] = staged
