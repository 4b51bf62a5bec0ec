"""Digests of shards: one per chunk of 8 MiB, and one over the list of them.

`xxh3` (128 bits a chunk) where xxhash is installed; it gives 20 GB/s and releases the interpreter while it runs.
Else CRC-32 a chunk and SHA-256 over the list, from the standard library. With signed documents SHA-256
throughout, as a signature over digests that can be forged would prove nothing.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from airflow_training.checkpoints.documents import is_signed
from airflow_training.checkpoints.errors import CheckpointError

__all__ = ["CHUNK", "algorithm", "digest_of", "digests_of_chunks"]

CHUNK = 8 << 20
"""Bytes of a chunk; the last one of a shard may be shorter."""


class _Hash(Protocol):
    def update(self, data: Any, /) -> None: ...
    def hexdigest(self) -> str: ...


class _Crc32:
    def __init__(self) -> None:
        self._value = 0

    def update(self, data: memoryview | bytes) -> None:
        self._value = zlib.crc32(data, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


def algorithm() -> str:
    """Return the name of the digest that new shards get in this process."""
    if is_signed():
        return "sha256"
    try:
        import xxhash  # noqa: F401  # only whether it is there
    except ImportError:
        return "crc32+sha256"
    return "xxh3"


def _hashes(name: str) -> tuple[Callable[[], _Hash], Callable[[], _Hash]]:
    """Return what digests a chunk, and what digests the list of chunks."""
    if name == "sha256":
        return hashlib.sha256, hashlib.sha256
    if name == "crc32+sha256":
        return _Crc32, hashlib.sha256
    if name == "xxh3":
        try:
            import xxhash
        except ImportError as error:
            raise CheckpointError(
                "this checkpoint is secured with xxh3 digests, and xxhash is not installed\n"
                "  hint: pip install xxhash"
            ) from error
        return xxhash.xxh3_128, xxhash.xxh3_128
    raise CheckpointError(
        f"{name!r} digests are not known here\n  allowed: xxh3, crc32+sha256, sha256"
    )


def digests_of_chunks(pieces: Iterable[memoryview | bytes], *, name: str) -> list[str]:
    """Return the hexadecimal digest of every chunk of the bytes that `pieces` give in turn."""
    new, _ = _hashes(name)
    digests: list[str] = []
    current, free = new(), CHUNK
    for piece in _cut_at_chunks(pieces):
        current.update(piece)
        free -= len(piece)
        if not free:
            digests.append(current.hexdigest())
            current, free = new(), CHUNK
    if free < CHUNK:
        digests.append(current.hexdigest())
    return digests


def _cut_at_chunks(pieces: Iterable[memoryview | bytes]) -> Iterator[memoryview]:
    free = CHUNK
    for piece in pieces:
        view = memoryview(piece)
        while len(view):
            part, view = view[:free], view[free:]
            free = (free - len(part)) or CHUNK
            yield part


def digest_of(chunks: Sequence[str], *, size: int, name: str) -> str:
    """Return the digest of a whole shard, `<name>:<hex>`, from those of its chunks and its size."""
    _, new = _hashes(name)
    over = new()
    over.update(f"{size}:{','.join(chunks)}".encode())
    return f"{name}:{over.hexdigest()}"
