"""Logs in memory that come in pieces of any size."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_training.logs.reading.source import LogSlice


class Dribble:
    """A log whose reads give as many bytes as the next of `sizes` says."""

    name = "dribble"

    def __init__(self, data: bytes, sizes: Sequence[int]) -> None:
        self.data = data
        self.sizes = sizes
        self.reads = 0

    def read(self, offset: int, limit: int) -> LogSlice:
        count = min(limit, self.sizes[self.reads % len(self.sizes)])
        self.reads += 1
        data = self.data[offset : offset + count]
        return LogSlice(data, offset + len(data), offset + len(data) == len(self.data))

    def size(self) -> int | None:
        return None

    def changed(self) -> bool:
        return False

    def reopen(self) -> None: ...

    def close(self) -> None: ...
