"""Content in chunks of 4 MiB, or ranges of 256 KiB, each under the SHA-256 of its bytes; never believed, always computed again."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from airflow_training.checkpoints.errors import KeyExists
from airflow_training.checkpoints.store import LocalStore, ObjectStore, open_store
from airflow_training.interception.protocol import RANGE_BYTES

__all__ = [
    "CHUNK_BYTES",
    "RANGED_FROM_BYTES",
    "ChunkCache",
    "count_chunks",
    "count_ranges",
    "digest_of_chunk",
    "open_chunk_store",
    "read_chunks",
]

CHUNK_BYTES = 4 << 20
"""The last chunk of a file may be shorter; an empty file has none."""
RANGED_FROM_BYTES = 8 * CHUNK_BYTES
"""A smaller file is there sooner whole than by several questions."""


def open_chunk_store(address: str) -> ObjectStore:
    """Return the storage of chunks and mailboxes at an address; in a folder nothing waits for the disk.

    A chunk that a power cut has damaged is fetched again.
    """
    if "://" in address:
        return open_store(address)
    return LocalStore(Path(address).absolute(), durable=False)


def digest_of_chunk(data: bytes) -> str:
    """Return the hexadecimal SHA-256 under which a chunk is kept."""
    return hashlib.sha256(data).hexdigest()


def count_chunks(size: int) -> int:
    """Return how many chunks a file of `size` bytes has."""
    return -(-size // CHUNK_BYTES)


def count_ranges(size: int) -> int:
    """Return how many ranges a file of `size` bytes has."""
    return -(-size // RANGE_BYTES)


def read_chunks(file: BinaryIO) -> Iterator[bytes]:
    """Yield the chunks of an open file from its start."""
    while data := file.read(CHUNK_BYTES):
        yield data


class ChunkCache:
    """Chunks that all ranks, nodes and later runs share, in a storage.

    A chunk whose bytes are not those of its name is removed, and counts as not there.
    """

    def __init__(self, store: ObjectStore) -> None:
        """`store`: of the target; its objects appear whole or not at all."""
        self._store = store
        self._lock = threading.Lock()
        self.found = 0
        self.damaged = 0

    def is_new(self) -> bool:
        """Return whether nothing was kept here yet: told of folders alone, as others charge for a look."""
        return isinstance(self._store, LocalStore) and not Path(self._store.uri, "chunks").exists()

    def get(self, digest: str) -> bytes | None:
        """Return a chunk's bytes, None where it is not there or no longer what it was."""
        try:
            data = self._store.read(_key(digest))
        except FileNotFoundError:
            return None
        if digest_of_chunk(data) != digest:
            self._store.delete(_key(digest))
            with self._lock:
                self.damaged += 1
            return None
        with self._lock:
            self.found += 1
        return data

    def has(self, digest: str) -> bool:
        """Return whether there is such an object; its bytes are looked at when it is read."""
        try:
            self._store.size(_key(digest))
        except FileNotFoundError:
            return False
        return True

    def put(self, digest: str, data: bytes) -> None:
        """Keep a chunk; one that another node has kept meanwhile is fine."""
        try:
            self._store.create(_key(digest), data)
        except KeyExists:
            return


def _key(digest: str) -> str:
    return f"chunks/{digest[:2]}/{digest}"
