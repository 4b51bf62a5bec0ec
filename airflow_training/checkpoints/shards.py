"""How the state of one rank is cut into objects. Pure.

A state is named blobs. Large ones have shards of their own, in pieces of 64 MiB, so that what did not change is
recognised; small ones share a shard, so that a thousand of them are not a thousand objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_training.checkpoints.digests import digest_of, digests_of_chunks
from airflow_training.checkpoints.documents import canonical, sha256_of
from airflow_training.checkpoints.errors import CheckpointError
from airflow_training.checkpoints.keys import SaveId, shard_key

__all__ = ["DOCUMENT", "ShardObject", "as_bytes", "cut", "digested", "state_digest"]

Part = tuple[str, memoryview]

DOCUMENT = ""
"""The blob that holds the document beside the blobs, as JSON; no other has an empty name."""

_LARGEST = 64 << 20
"""Bytes of a shard: one request, and what a thread holds of it."""

_SMALL = 4 << 20
"""A blob of fewer bytes shares its shard with others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardObject:
    """One immutable object of a checkpoint, with what is in it."""

    key: str
    digest: str
    chunks: tuple[str, ...]
    """Digests of its chunks of 8 MiB, in turn."""
    parts: tuple[tuple[str, int], ...]
    """(blob, bytes) in turn. A blob that several shards name continues in the next one."""

    @property
    def size(self) -> int:
        return sum(size for _, size in self.parts)

    def under(self, key: str) -> ShardObject:
        """Return the same content where an earlier save has put it."""
        return replace(self, key=key)


def as_bytes(name: str, value: Any) -> memoryview:
    """Return any contiguous buffer as bytes, without a copy."""
    try:
        view = memoryview(value)
        return view.cast("B") if view.nbytes else memoryview(b"")
    except TypeError as error:
        raise CheckpointError(f"blob {name!r} is no contiguous buffer: {error}") from error


def cut(blobs: Mapping[str, memoryview]) -> Iterator[list[Part]]:
    """Yield what goes into each shard, in the order of the blobs.

    Small blobs share one only within their section, the name up to the first slash: what is the same on all ranks
    lies apart from what is not, and is stored once.
    """
    shared: list[Part] = []
    room = _LARGEST
    for name, view in blobs.items():
        if len(view) >= _SMALL:
            for start in range(0, len(view), _LARGEST):
                yield [(name, view[start : start + _LARGEST])]
            continue
        if shared and (len(view) > room or _section(shared[-1][0]) != _section(name)):
            yield shared
            shared, room = [], _LARGEST
        shared.append((name, view))
        room -= len(view)
    if shared:
        yield shared


def _section(name: str) -> str:
    return name.partition("/")[0]


def digested(parts: Sequence[Part], *, save: SaveId, algorithm: str) -> ShardObject:
    """Return the shard that holds these parts, under the key it has where this save is the first to hold it."""
    chunks = digests_of_chunks((view for _, view in parts), name=algorithm)
    size = sum(len(view) for _, view in parts)
    digest = digest_of(chunks, size=size, name=algorithm)
    return ShardObject(
        key=shard_key(digest, size, save),
        digest=digest,
        chunks=tuple(chunks),
        parts=tuple((name, len(view)) for name, view in parts),
    )


def state_digest(shards: Sequence[ShardObject]) -> str:
    """Return the digest of a state: of its names and bytes, not of when or where they were saved."""
    return sha256_of(
        canonical([[shard.digest, [list(part) for part in shard.parts]] for shard in shards])
    )
