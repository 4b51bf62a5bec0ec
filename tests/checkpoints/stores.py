"""Stores for tests: in memory, and one that forgets to refuse a second create."""

from __future__ import annotations

import threading

from airflow_training.checkpoints.errors import KeyExists
from airflow_training.checkpoints.store import Data, _pieces


class DictStore:
    """A store in memory; several handles may share one dictionary."""

    def __init__(self, objects: dict[str, bytes] | None = None, *, workers: int = 1) -> None:
        self.uri = "dict"
        self.workers = workers
        self.objects = {} if objects is None else objects
        self._lock = threading.Lock()

    def create(self, key: str, data: Data) -> None:
        content = b"".join(_pieces(data))
        with self._lock:
            if key in self.objects:
                raise KeyExists(key)
            self.objects[key] = content

    def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        content = self._get(key)
        return content[start : None if size is None else start + size]

    def size(self, key: str) -> int:
        return len(self._get(key))

    def list(self, prefix: str) -> list[tuple[str, int]]:
        return [(k, len(v)) for k, v in sorted(self.objects.copy().items()) if k.startswith(prefix)]

    def delete(self, key: str) -> None:
        self.objects.pop(key, None)

    def clear_unfinished(self) -> None:
        pass

    def _get(self, key: str) -> bytes:
        try:
            return self.objects[key]
        except KeyError:
            raise FileNotFoundError(key) from None


class Overwriting(DictStore):
    """A store that knows no create-only writes: the last one wins."""

    def create(self, key: str, data: Data) -> None:
        self.objects[key] = b"".join(_pieces(data))


class Forgetful(DictStore):
    """A store that shows in its lists only what was there when it was opened."""

    def list(self, prefix: str) -> list[tuple[str, int]]:
        return []


class Full(DictStore):
    """A store without room for shards."""

    def create(self, key: str, data: Data) -> None:
        if key.startswith("shards/"):
            raise OSError(28, "No space left on device")
        super().create(key, data)


class Counting(DictStore):
    """A store that notes what it was asked for: verb and folder."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str]] = []

    def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        self.asked.append(("read", key.partition("/")[0]))
        return super().read(key, start, size)

    def size(self, key: str) -> int:
        self.asked.append(("size", key.partition("/")[0]))
        return super().size(key)

    def list(self, prefix: str) -> list[tuple[str, int]]:
        self.asked.append(("list", prefix.partition("/")[0]))
        return super().list(prefix)
