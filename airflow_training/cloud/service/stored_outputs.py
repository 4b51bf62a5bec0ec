"""What runs have left in the storage of a target: found by their ids, and removed with them."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

from airflow_training.checkpoints.errors import CheckpointError
from airflow_training.checkpoints.store import open_store
from airflow_training.cloud.service.unneeded_items import UnneededItem
from airflow_training.errors import InputError

__all__ = ["StoredOutputs"]


class StoredOutputs:
    """The folders `runs/RUN` of a storage, and what instances have said there of their progress. Raises InputError with its address where it cannot be used."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        with self._told():
            self._store = open_store(uri)

    def with_size(self, run: UnneededItem) -> UnneededItem:
        """The run with the bytes of what it has left here."""
        with self._told():
            size = sum(each for _, each in self._objects(run))
        return dataclasses.replace(run, bytes=run.bytes + size)

    def remove(self, run: UnneededItem) -> None:
        """Remove what a run has left here; that nothing is there is fine."""
        with self._told():
            for key, _ in self._objects(run):
                self._store.delete(key)

    def _objects(self, run: UnneededItem) -> Iterator[tuple[str, int]]:
        for folder in (f"runs/{run.name}/", f"runs/{run.name}.progress/"):
            yield from self._store.list(folder)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (OSError, CheckpointError) as error:
            raise InputError.of(
                code="unavailable",
                field="storage",
                value=self._uri,
                message=f"{self._uri} cannot be used: {error}",
                hint="nothing of these runs was removed that they are found by: the same command again",
            ) from error
