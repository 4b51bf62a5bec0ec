"""A log that was read already: bytes in memory as a source."""

from __future__ import annotations

from airflow_training.logs.reading.source import LogSlice, UnrotatedLog

__all__ = ["BytesLog"]


class BytesLog(UnrotatedLog):
    """Bytes that do not change."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name = name
        self._data = data

    def read(self, offset: int, limit: int) -> LogSlice:
        """Return bytes from `offset`."""
        data = self._data[offset : offset + limit]
        return LogSlice(data, offset + len(data), offset + len(data) >= len(self._data))

    def size(self) -> int:
        """Return how many bytes there are."""
        return len(self._data)
