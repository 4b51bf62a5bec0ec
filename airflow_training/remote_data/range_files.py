"""Files of which ranges are read: beside each that is not there whole a sparse one, which has what came of it.

The file itself stays without content, and whoever opens it is held back as ever. Only who has been told that a range has
come reads it here.
"""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

from airflow_training.interception.protocol import RANGE_BYTES
from airflow_training.remote_data.chunks import CHUNK_BYTES, digest_of_chunk
from airflow_training.remote_data.skeleton import SkeletonFile

__all__ = ["RangeFiles"]

_RANGES_OF_A_CHUNK = CHUNK_BYTES // RANGE_BYTES


class RangeFiles:
    """All of one node. What an earlier fetcher has left is believed by its digest only."""

    def __init__(self, folder: Path) -> None:
        """`folder`: of this run on this node; made when the first range comes."""
        self._folder = folder
        self._lock = threading.Lock()
        self._written: dict[str, set[int]] = {}

    def path(self, each: SkeletonFile) -> str:
        """Where the ranges of a file lie, at their own places in it."""
        return str(self._folder / hashlib.sha256(os.fsencode(each.place)).hexdigest())

    def has(self, each: SkeletonFile, part: int) -> bool:
        """Return whether a range has come since this fetcher has begun."""
        with self._lock:
            return part in self._written.get(each.place, ())

    def found(self, each: SkeletonFile, part: int, digest: str) -> bool:
        """Return whether an earlier fetcher has written the range with this digest."""
        data = self._read(each, part * RANGE_BYTES, RANGE_BYTES)
        if not data or digest_of_chunk(data) != digest:
            return False
        self._note(each, part)
        return True

    def put(self, each: SkeletonFile, part: int, data: bytes) -> None:
        """Write a range. Raises OSError where the disk is full."""
        self._folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path(each), os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.ftruncate(descriptor, each.file.size)
            offset, view = part * RANGE_BYTES, memoryview(data)
            while view:
                written = os.pwrite(descriptor, view, offset)
                view, offset = view[written:], offset + written
        finally:
            os.close(descriptor)
        self._note(each, part)

    def chunk(self, each: SkeletonFile, index: int) -> bytes | None:
        """Return a chunk all of whose ranges have come; None else."""
        first = index * _RANGES_OF_A_CHUNK
        size = min(CHUNK_BYTES, each.file.size - index * CHUNK_BYTES)
        parts = range(first, first + -(-size // RANGE_BYTES))
        with self._lock:
            if not self._written.get(each.place, set()).issuperset(parts):
                return None
        return self._read(each, index * CHUNK_BYTES, size)

    def _note(self, each: SkeletonFile, part: int) -> None:
        with self._lock:
            self._written.setdefault(each.place, set()).add(part)

    def _read(self, each: SkeletonFile, offset: int, size: int) -> bytes:
        try:
            descriptor = os.open(self.path(each), os.O_RDONLY)
        except FileNotFoundError:
            return b""
        try:
            return os.pread(descriptor, size, offset)
        finally:
            os.close(descriptor)
