"""Read all claims, fences and manifests of a group, and say what counts. Reads no state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar

from airflow_training.checkpoints.errors import BadCheckpoint
from airflow_training.checkpoints.keys import (
    CLAIMS,
    FENCES,
    MANIFESTS,
    claimed_generation,
    fence_key,
    fenced_generation,
    save_of,
)
from airflow_training.checkpoints.lineage import Lineage, trace
from airflow_training.checkpoints.records import Fence, Manifest
from airflow_training.checkpoints.store import ObjectStore
from airflow_training.checkpoints.verifying import in_parallel, persistently, read_manifest, verify

__all__ = ["Survey", "generations", "newest_claim", "newest_valid", "survey"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    lineage: Lineage
    fences: Mapping[int, Fence]
    unreadable: Mapping[str, str]
    """Keys of fences and manifests that are damaged, with the reason."""

    @property
    def bad(self) -> dict[str, str]:
        """Every key of a fence or manifest that cannot be used, with the reason."""
        foreign = {f"{manifest.save}": reason for manifest, reason in self.lineage.bad}
        return {**self.unreadable, **{f"manifests/{k}.json": why for k, why in foreign.items()}}


def survey(store: ObjectStore) -> Survey:
    """List all that a store holds of a group; objects that vanish meanwhile were swept and are passed over."""
    unreadable: dict[str, str] = {}

    def readable(key: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except FileNotFoundError:
            return None
        except BadCheckpoint as error:
            unreadable[key] = str(error)
            return None

    def fence(key: str) -> Fence | None:
        return readable(key, lambda: _read_fence(store, key))

    def manifest(key: str) -> Manifest | None:
        save = save_of(key)
        return readable(key, lambda: read_manifest(store, save)) if save else None

    fences = in_parallel(store, fence, [key for key, _ in store.list(FENCES)])
    manifests = in_parallel(store, manifest, [key for key, _ in store.list(MANIFESTS)])
    by_generation = {one.generation: one for one in fences if one is not None}
    for generation in {one.generation for one in manifests if one is not None}:
        key = fence_key(generation)
        if generation not in by_generation and key not in unreadable:
            unreadable[key] = f"{key} is missing"
    return Survey(
        lineage=trace(by_generation, [one for one in manifests if one is not None]),
        fences=by_generation,
        unreadable=unreadable,
    )


def newest_valid(
    store: ObjectStore, *, not_after: int | None = None, known: Collection[str] = ()
) -> tuple[Manifest | None, list[tuple[int, str]]]:
    """Return the newest checkpoint that counts and is whole, all of it read, and (step, why) of newer ones that are not.

    Manifests whose digest is in `known` verified before and are not read again.
    """
    rejected: list[tuple[int, str]] = []
    for manifest in survey(store).lineage.manifests:
        if not_after is not None and manifest.step > not_after:
            continue
        if manifest.digest in known:
            return manifest, rejected
        try:
            verify(store, manifest)
        except BadCheckpoint as error:
            rejected.append((manifest.step, str(error)))
        else:
            return manifest, rejected
    return None, rejected


def _read_fence(store: ObjectStore, key: str) -> Fence:
    content = persistently(store, key, lambda: store.read(key))
    fence = Fence.from_bytes(content, what=key)
    if fence.generation != fenced_generation(key):
        raise BadCheckpoint(f"{key} holds the fence of generation {fence.generation}")
    return fence


def generations(store: ObjectStore) -> list[int]:
    """Return every generation that anything in the store speaks of, ascending."""
    found = {claimed_generation(key) for key, _ in store.list(CLAIMS)}
    found |= {fenced_generation(key) for key, _ in store.list(FENCES)}
    found |= {save.generation for key, _ in store.list(MANIFESTS) if (save := save_of(key))}
    return sorted(generation for generation in found if generation is not None)


def newest_claim(store: ObjectStore) -> int:
    """Return the newest generation that a process has claimed, 0 for none."""
    claims = (claimed_generation(key) for key, _ in store.list(CLAIMS))
    return max((generation for generation in claims if generation is not None), default=0)
