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
    claimed_generation,
    fenced_generation,
    save_of,
)
from airflow_training.checkpoints.records import Manifest
from airflow_training.checkpoints.retention import FEWEST, kept, unneeded
from airflow_training.checkpoints.store import Store
from airflow_training.checkpoints.survey import newest_claim, survey
from airflow_training.checkpoints.verifying import in_parallel, verify

__all__ = ["Pruned", "prune"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    steps: tuple[int, ...]
    """Of the checkpoints that were deleted."""
    objects: int
    bytes: int


def prune(
    store: Store, *, keep: int, keep_every: int | None = None, known: Collection[str] = ()
) -> Pruned:
    """Delete checkpoints that need not stay, then whatever belongs to none. Safe while others save.

    Args:
        store: of the group.
        keep: how many of the newest checkpoints that verify stay; at least two always do.
        keep_every: of the older ones, every Nth stays too.
        known: digests of manifests that verified before and need no second look.
    """
    sizes = {
        key: size for folder in (SHARDS, MARKERS, FAILURES) for key, size in store.list(folder)
    }
    seen = survey(store)
    verified = [
        manifest
        for manifest in seen.lineage.manifests
        if manifest.digest in known or _is_whole(store, manifest)
    ]
    if newest_claim(store) > max(seen.fences, default=0) or len(verified) < FEWEST:
        # a start may be about to choose any of them; or there is nothing to spare
        return Pruned(steps=(), objects=0, bytes=0)
    stay = kept(verified, keep=keep, keep_every=keep_every)
    oldest, newest = verified[min(len(verified), max(keep, FEWEST)) - 1].save, verified[0].save
    there = {save for key, _ in store.list(MANIFESTS) if (save := save_of(key))}
    staying = {manifest.save for manifest in stay}
    stale = {manifest.save for manifest in seen.lineage.stale}
    # a damaged one among the newest stays for whoever wants to know why
    damaged = {
        s for s in there - staying - stale - {m.save for m in verified} if s.step >= oldest.step
    }
    going = sorted(there - staying - damaged)
    for save in going:
        store.delete(f"{MANIFESTS}{save}.json")
    orphans = unneeded(sizes, kept=stay, left=damaged, newest=newest)
    in_parallel(store, store.delete, orphans)
    _delete_old_fences(
        store, needed={*seen.lineage.generations, *(save.generation for save in damaged)}
    )
    return Pruned(
        steps=tuple(save.step for save in going),
        objects=len(going) + len(orphans),
        bytes=sum(sizes[key] for key in orphans),
    )


def _is_whole(store: Store, manifest: Manifest) -> bool:
    try:
        verify(store, manifest, deep=False)
    except BadCheckpoint as error:
        log.warning("a checkpoint is damaged: step %d: %s", manifest.step, error)
        return False
    return True


def _delete_old_fences(store: Store, *, needed: Collection[int]) -> None:
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
