"""Delete what retention does not keep: manifests first, so that a kill leaves orphans and never a torn checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

from airflow_training.checkpoints.errors import BadCheckpoint
from airflow_training.checkpoints.keys import (
    CLAIMS,
    FAILURES,
    FENCES,
    MANIFESTS,
    MARKERS,
    SHARDS,
    SaveId,
    claimed_generation,
    fenced_generation,
    save_of,
)
from airflow_training.checkpoints.records import Manifest
from airflow_training.checkpoints.retention import FEWEST, retained_manifests, unreferenced_keys
from airflow_training.checkpoints.store import ObjectStore
from airflow_training.checkpoints.survey import newest_claim, survey
from airflow_training.checkpoints.verifying import in_parallel, verify

__all__ = ["PruneResult", "Surplus", "delete", "find_surplus"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneResult:
    steps: tuple[int, ...]
    """Of the checkpoints that were deleted."""
    objects: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Surplus:
    """What need not stay, and what this was found by."""

    saves: tuple[SaveId, ...] = ()
    """Their manifests go."""
    orphans: tuple[str, ...] = ()
    """Keys of what then belongs to no checkpoint."""
    bytes: int = 0
    generations: frozenset[int] = frozenset()
    """Whose fences are still needed; empty where nothing was looked at."""
    whole: tuple[Manifest, ...] | None = None
    """Those that stay, newest first; None where something else stays too, or nothing was looked at."""

    def pruned(self) -> PruneResult:
        """Counts of checkpoints, objects and bytes that deleting this frees."""
        return PruneResult(
            steps=tuple(save.step for save in self.saves),
            objects=len(self.saves) + len(self.orphans),
            bytes=self.bytes,
        )


def find_surplus(
    store: ObjectStore,
    *,
    keep: int,
    keep_every: int | None = None,
    known: Collection[str] = (),
    deep: bool = False,
) -> Surplus:
    """Find checkpoints and objects that no rule keeps.

    Args:
        store: of the group.
        keep: how many of the newest checkpoints that verify stay; at least two always do.
        keep_every: of the older ones, every Nth stays too.
        known: digests of manifests that verified before and need no second look.
        deep: read the shards, not only their sizes.
    """
    sizes = {
        key: size for folder in (SHARDS, MARKERS, FAILURES) for key, size in store.list(folder)
    }
    seen = survey(store)
    verified = [
        manifest
        for manifest in seen.lineage.manifests
        if manifest.digest in known or _is_whole(store, manifest, deep=deep)
    ]
    if newest_claim(store) > max(seen.fences, default=0) or len(verified) < FEWEST:
        # a start may be about to choose any of them; or there is nothing to spare
        return Surplus()
    stay = retained_manifests(verified, keep=keep, keep_every=keep_every)
    oldest, newest = verified[min(len(verified), max(keep, FEWEST)) - 1].save, verified[0].save
    there = {save for key, _ in store.list(MANIFESTS) if (save := save_of(key))}
    staying = {manifest.save for manifest in stay}
    stale = {manifest.save for manifest in seen.lineage.stale}
    # a damaged one among the newest stays for whoever wants to know why
    damaged = {
        s for s in there - staying - stale - {m.save for m in verified} if s.step >= oldest.step
    }
    orphans = unreferenced_keys(sizes, kept=stay, left=damaged, newest=newest)
    return Surplus(
        saves=tuple(sorted(there - staying - damaged)),
        orphans=tuple(orphans),
        bytes=sum(sizes[key] for key in orphans),
        generations=frozenset({*seen.lineage.generations, *(save.generation for save in damaged)}),
        whole=None if damaged else stay,
    )


def delete(store: ObjectStore, going: Surplus) -> PruneResult:
    """Delete what need not stay; return what was deleted."""
    for save in going.saves:
        store.delete(f"{MANIFESTS}{save}.json")
    in_parallel(store, store.delete, going.orphans)
    if going.generations:
        _delete_old_fences(store, needed=going.generations)
    return going.pruned()


def _is_whole(store: ObjectStore, manifest: Manifest, *, deep: bool) -> bool:
    try:
        verify(store, manifest, deep=deep)
    except BadCheckpoint as error:
        log.warning("a checkpoint is damaged: step %d: %s", manifest.step, error)
        return False
    return True


def _delete_old_fences(store: ObjectStore, *, needed: Collection[int]) -> None:
    """Delete fences and claims of generations that nothing goes back to."""
    newest = max(needed)
    for key, _ in store.list(FENCES):
        generation = fenced_generation(key)
        if generation is not None and generation < newest and generation not in needed:
            store.delete(key)
    for key, _ in store.list(CLAIMS):
        generation = claimed_generation(key)
        if generation is not None and generation < newest:
            store.delete(key)
