"""A log that tells how much of it was read."""

from __future__ import annotations

from airflow_training.logs.reading.local import LocalFile
from airflow_training.logs.reading.source import LogSlice

__all__ = ["CountedFile"]


class CountedFile(LocalFile):
    read_bytes = 0

    def read(self, offset: int, limit: int) -> LogSlice:
        part = super().read(offset, limit)
        self.read_bytes += len(part.data)
        return part
