"""Waiting for a save: rank 0 for the markers of all ranks, the others for its manifest, all for word of a failure."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from airflow_training.checkpoints.agreement import wait_until
from airflow_training.checkpoints.documents import sha256_of, unseal
from airflow_training.checkpoints.errors import BadCheckpoint
from airflow_training.checkpoints.keys import FAILURES, MARKERS, SaveId, marker_key, rank_of
from airflow_training.checkpoints.records import Manifest, Marker, RankShards
from airflow_training.checkpoints.store import ObjectStore
from airflow_training.checkpoints.verifying import in_parallel, read_manifest

__all__ = ["CommitWait"]

log = logging.getLogger(__name__)


class CommitWait:
    """One rank's wait for a save that all `world` ranks write; `check` raises where waiting is in vain."""

    def __init__(
        self, store: ObjectStore, save: SaveId, *, world: int, check: Callable[[], None]
    ) -> None:
        self._store = store
        self._save = save
        self._world = world
        self._check = check
        self._markers = f"{MARKERS}{save}/"

    def collect(self, *, seconds: float) -> list[tuple[RankShards, Any]] | None:
        """Return of each rank, by rank, what its marker says for the manifest and its cursor.

        None where a rank has said that it failed.

        Raises:
            BadCheckpoint: ranks did not come within `seconds`, or what they wrote does not fit.
            OSError: where the store does not answer.
        """

        def look() -> bool | None:
            self._check()  # markers may be swept already
            if self._failures():
                return False
            return len(self._store.list(self._markers)) == self._world or None

        complete = wait_until(look, seconds=seconds)
        if complete is None:
            raise BadCheckpoint(f"no word of ranks {self.missing_ranks()} within {seconds:g} s")
        return in_parallel(self._store, self._part, range(self._world)) if complete else None

    def missing_ranks(self) -> list[int]:
        """The ranks that have written no marker yet; raises OSError where the store does not answer."""
        there = {rank_of(key) for key, _ in self._store.list(self._markers)}
        return [rank for rank in range(self._world) if rank not in there]

    def _part(self, rank: int) -> tuple[RankShards, Any]:
        key = marker_key(self._save, rank)
        try:
            content = self._store.read(key)
        except FileNotFoundError:
            raise BadCheckpoint(f"{key} is gone") from None
        marker = Marker.from_bytes(content, what=key)
        if (marker.save, marker.rank, marker.world) != (self._save, rank, self._world):
            raise BadCheckpoint(f"{key} holds the marker of rank {marker.rank} for {marker.save}")
        part = RankShards(
            marker=sha256_of(content),
            state=marker.state,
            shards=marker.shards,
            environment=marker.environment,
        )
        return part, marker.cursor

    def await_manifest(self, *, seconds: float) -> Manifest | None:
        """The manifest of rank 0; None where a rank failed, or nothing came within `seconds`."""

        def look() -> Manifest | bool | None:
            self._check()
            try:
                return read_manifest(self._store, self._save)
            except (FileNotFoundError, BadCheckpoint):  # not there, or not whole yet
                return False if self._failures() else None

        found = wait_until(look, seconds=seconds)
        if isinstance(found, Manifest):
            return found
        if found is None:
            log.warning("step %d was not committed within %g s", self._save.step, seconds)
        return None

    def log_failures(self) -> None:
        """Log what each rank that failed says."""
        for key in self._failures():
            note = unseal(self._store.read(key), what=key)
            log.warning(
                "step %d is not saved: rank %d: %s", self._save.step, note["rank"], note["reason"]
            )

    def _failures(self) -> list[str]:
        return [key for key, _ in self._store.list(f"{FAILURES}{self._save}/")]
