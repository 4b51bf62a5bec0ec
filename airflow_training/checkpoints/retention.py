"""What may be deleted. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from airflow_training.checkpoints.keys import SaveId, save_of
from airflow_training.checkpoints.records import Manifest

__all__ = ["FEWEST", "retained_manifests", "unreferenced_keys"]

FEWEST = 2
"""Never fewer verified checkpoints than this: one that breaks later must have one before it."""


def retained_manifests(
    newest_first: Sequence[Manifest], *, keep: int, keep_every: int | None
) -> tuple[Manifest, ...]:
    """Return which of the verified manifests stay: the newest, and every Nth for good."""
    newest = max(keep, FEWEST)
    return tuple(
        manifest
        for place, manifest in enumerate(newest_first)
        if place < newest or (keep_every and manifest.number % keep_every == 0)
    )


def unreferenced_keys(
    keys: Iterable[str], *, kept: Iterable[Manifest], left: Iterable[SaveId], newest: SaveId
) -> list[str]:
    """Return which shards, markers and failure notes belong to no checkpoint any more.

    Args:
        keys: what there is.
        kept: manifests that stay.
        left: further saves to leave alone, such as checkpoints that failed verification and are kept for a look.
        newest: the newest committed save. What is younger may belong to a save that is being written: it can have
            no older step in the same generation, and no shards of others but those of the newest committed one.
    """
    manifests = list(kept)
    needed = {
        shard.key for manifest in manifests for part in manifest.ranks for shard in part.shards
    }
    saves = {*(manifest.save for manifest in manifests), *left}
    found = []
    for key in keys:
        save = save_of(key)
        if save is None or key in needed:
            continue
        if not key.startswith("shards/") and save in saves:
            continue
        if key.startswith("shards/") and save in left:
            continue
        if (save.generation, save.step) <= (newest.generation, newest.step):
            found.append(key)
    return found
