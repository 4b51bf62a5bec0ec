"""What a group's documents alone say about its processes: generation, world, and who has which step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_training.checkpoints.keys import MARKERS, rank_of, save_of
from airflow_training.checkpoints.store import ObjectStore, open_store
from airflow_training.checkpoints.survey import survey

__all__ = ["GenerationState", "read_generation_state"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationState:
    """Of the newest generation; its parts are listed, not read."""

    generation: int
    """0: none has begun."""
    world: int
    verified: Mapping[int, frozenset[int]]
    """Step -> ranks whose part is there: all of them where it was committed and still counts."""


def read_generation_state(root: str | ObjectStore) -> GenerationState:
    """Return how far the processes of a group have come; raises OSError and CheckpointError.

    Saves of an older generation count only where the newest one goes back to them.
    """
    store = open_store(root)
    seen = survey(store)
    if not seen.fences:
        return GenerationState(generation=0, world=0, verified={})
    generation = max(seen.fences)
    world = seen.fences[generation].world
    verified: dict[int, set[int]] = {}
    for key, _ in store.list(MARKERS):
        save, rank = save_of(key), rank_of(key)
        if save is not None and save.generation == generation and rank is not None:
            verified.setdefault(save.step, set()).add(rank)
    for manifest in seen.lineage.manifests:
        verified[manifest.step] = set(range(world))
    return GenerationState(
        generation=generation,
        world=world,
        verified={step: frozenset(ranks) for step, ranks in verified.items()},
    )
