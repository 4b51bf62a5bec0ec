"""Logs in object storage, behind any URL that fsspec knows: one ranged request for each read."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from airflow_training.logs.reading.source import LogSlice, LogUnreadable

__all__ = ["RemoteFile"]


class RemoteFile:
    """An object. Stores replace objects as a whole: one that grew is taken to have been appended to."""

    def __init__(self, url: str) -> None:
        """Find the object; raises LogUnreadable."""
        self.name = url
        try:
            self._files, self._path = import_module("fsspec.core").url_to_fs(url)
        except (
            ValueError,
            ImportError,
        ) as error:  # an unknown scheme, or a store's package missing
            raise LogUnreadable(f"{url}: {error}") from error
        self._size = self._look()

    def read(self, offset: int, limit: int) -> LogSlice:
        """Return bytes of the object."""
        if offset + limit > self._size:
            self._size = self._look()
        stop = min(offset + limit, self._size)
        if stop <= offset:
            return LogSlice(b"", offset, end=True)
        try:
            data: bytes = self._files.cat_file(self._path, start=offset, end=stop)
        except Exception as error:
            raise LogUnreadable(f"{self.name}: {error}") from error
        return LogSlice(data, offset + len(data), offset + len(data) >= self._size)

    def size(self) -> int:
        """Return the object's size, as of the last look."""
        return self._size

    def changed(self) -> bool:
        """Return whether the object became shorter."""
        return self._look() < self._size

    def reopen(self) -> None:
        """Take the object as it is now."""
        self._size = self._look()

    def close(self) -> None:
        """Nothing is held between two requests."""

    def _look(self) -> int:
        try:
            self._files.invalidate_cache()
            about: dict[str, Any] = self._files.info(self._path)
        except Exception as error:  # every store has errors of its own
            raise LogUnreadable(f"{self.name}: {str(error) or type(error).__name__}") from error
        if about.get("size") is None:
            raise LogUnreadable(
                f"{self.name}: its size is not known, so it cannot be read by offset"
            )
        return int(about["size"])
