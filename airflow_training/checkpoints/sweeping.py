"""What a coordinator deletes after each of its commits, without looking at everything each time.

It looks at all objects once, at the first commit of its generation: there is what failed and replaced processes
left. From then on it knows what there is, and asks only for the names of manifests, to see whether it still does.
"""

from __future__ import annotations

from collections.abc import Collection

from airflow_training.checkpoints import pruning
from airflow_training.checkpoints.keys import MANIFESTS, SaveId, marker_key, save_of
from airflow_training.checkpoints.records import Manifest
from airflow_training.checkpoints.retention import retained_manifests, unreferenced_keys
from airflow_training.checkpoints.store import ObjectStore
from airflow_training.checkpoints.survey import newest_claim

__all__ = ["Sweeper"]

_ALL_EVERY = 100
"""Commits from one look at all objects to the next: a replaced process may have written after the first."""


class Sweeper:
    """Keeps one group to what retention asks for, while its generation lasts."""

    def __init__(self, store: ObjectStore, *, keep: int, keep_every: int | None) -> None:
        """`keep` and `keep_every` are those of `retention.retained_manifests`."""
        self._store = store
        self._keep = keep
        self._keep_every = keep_every
        self._known: tuple[Manifest, ...] | None = None
        """All that there is, newest first; None: look at everything."""
        self._commits = 0
        self._begun: set[SaveId] = set()

    def begun(self, save: SaveId) -> None:
        """Take note that objects of a save may be there; it may fail, and leave them."""
        self._begun.add(save)

    def committed(self, manifest: Manifest, *, verified: Collection[str]) -> None:
        """Delete what need not stay beside this newest checkpoint.

        `verified`: digests of manifests that verified before and need no second look.
        Raises OSError or CheckpointError where the store does not do as it is told; the next call begins anew.
        """
        self._begun.discard(manifest.save)
        self._commits += 1
        known, self._known = self._known, None
        if known is not None and not self._begun and self._commits % _ALL_EVERY:
            there = {save for key, _ in self._store.list(MANIFESTS) if (save := save_of(key))}
            ours = (manifest, *(one for one in known if one.save in there))
            if there == {one.save for one in ours}:
                self._known = self._delete_of(ours)
                return
        self._known = self._look_at_all(verified)
        self._begun.clear()

    def _look_at_all(self, verified: Collection[str]) -> tuple[Manifest, ...] | None:
        found = pruning.find_surplus(
            self._store, keep=self._keep, keep_every=self._keep_every, known=verified
        )
        pruning.delete(self._store, found)
        return found.whole

    def _delete_of(self, newest_first: tuple[Manifest, ...]) -> tuple[Manifest, ...]:
        newest = newest_first[0].save
        if (
            newest_claim(self._store) > newest.generation
        ):  # a start may be about to choose any of them
            return newest_first
        stay = retained_manifests(newest_first, keep=self._keep, keep_every=self._keep_every)
        staying = {one.save for one in stay}
        going = [one for one in newest_first if one.save not in staying]
        keys = {shard.key for one in going for part in one.ranks for shard in part.shards}
        keys |= {marker_key(one.save, rank) for one in going for rank in range(one.world)}
        orphans = unreferenced_keys(sorted(keys), kept=stay, left=(), newest=newest)
        saves = tuple(sorted(one.save for one in going))
        pruning.delete(self._store, pruning.Surplus(saves=saves, orphans=tuple(orphans)))
        return stay
