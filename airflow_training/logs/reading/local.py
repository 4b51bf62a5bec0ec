"""Files of this machine, read by position: no cursor of ours can be moved by somebody else."""

from __future__ import annotations

import os
from pathlib import Path

from airflow_training.logs.reading.source import LogSlice, LogUnreadable

__all__ = ["LocalFile"]


class LocalFile:
    """A file that may still be written, rotated or truncated."""

    def __init__(self, path: str | Path) -> None:
        """Open the file; raises LogUnreadable."""
        self.name = str(path)
        self._furthest = 0
        self._descriptor = self._open()

    def read(self, offset: int, limit: int) -> LogSlice:
        """Return bytes of the file as it was opened, one system call for each read."""
        try:
            data = os.pread(self._descriptor, limit, offset)
        except OSError as error:
            raise LogUnreadable(f"{self.name}: {error.strerror}") from error
        self._furthest = max(self._furthest, offset + len(data))
        return LogSlice(data, offset + len(data), len(data) < limit)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Put bytes of the file into a buffer and return how many; no memory is taken for them."""
        try:
            return os.preadv(self._descriptor, [buffer], offset)
        except OSError as error:
            raise LogUnreadable(f"{self.name}: {error.strerror}") from error

    def size(self) -> int:
        """Return the size of the opened file."""
        return os.fstat(self._descriptor).st_size

    def changed(self) -> bool:
        """Return whether another file has this name now, or this one became shorter."""
        mine = os.fstat(self._descriptor)
        try:
            there = os.stat(self.name)  # noqa: PTH116 - beside `fstat`
        except OSError:
            return False  # between two names of a rotation, or gone for good: read what is left
        other = (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino)
        return other or mine.st_size < self._furthest

    def reopen(self) -> None:
        """Open what has the name now."""
        descriptor = self._open()
        os.close(self._descriptor)
        self._descriptor, self._furthest = descriptor, 0

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> int:
        try:
            return os.open(self.name, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise LogUnreadable(f"{self.name}: {error.strerror}") from error
