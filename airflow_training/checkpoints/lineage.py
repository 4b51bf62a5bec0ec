"""Which manifests count. Pure.

Every generation starts from one manifest, its base, and adds to it. So what counts is the newest generation, then
the one its base belongs to up to that base, and so on. A manifest beside that path was written by a process that
had been replaced, or was left behind when a user went back: it is stale, however whole it may be.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from airflow_training.checkpoints.records import Fence, Manifest, ParentCheckpoint

__all__ = ["Lineage", "trace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    manifests: tuple[Manifest, ...]
    """Those that count, newest first."""
    stale: tuple[Manifest, ...]
    bad: tuple[tuple[Manifest, str], ...]
    """Whole in themselves, yet not of this group: which and why."""
    generations: frozenset[int]
    """Whose fences are still needed."""


def trace(fences: Mapping[int, Fence], manifests: Iterable[Manifest]) -> Lineage:
    """The lineage that all readable fences and manifests agree on.

    Where a fence cannot be read, its manifests say what it said. Where there are none either, nothing was committed
    in that generation, and it is passed over.
    """
    by_generation: dict[int, list[Manifest]] = {}
    for manifest in manifests:
        by_generation.setdefault(manifest.generation, []).append(manifest)
    bad: list[tuple[Manifest, str]] = []
    bases: dict[int, ParentCheckpoint | None] = {}
    for generation in {*fences, *by_generation}:
        fence, everything = fences.get(generation), by_generation.get(generation, [])
        agreed = _agreed_fence(fence, everything)
        own = [m for m in everything if m.fence == agreed]
        by_generation[generation] = own
        bad += [
            (m, "it names another fence than its generation has")
            for m in everything
            if m.fence != agreed
        ]
        if fence is not None and fence.digest == agreed:
            bases[generation] = fence.base
        elif own:
            bases[generation] = own[0].base

    path = _path(bases)
    counting = sorted(
        (
            m
            for generation, until in path.items()
            for m in by_generation[generation]
            if m.step <= until
        ),
        key=lambda m: (m.number, m.step),
        reverse=True,
    )
    unlinked = _unlinked(counting)
    bad += [(m, "it does not follow the manifest before it") for m in unlinked]
    settled = {m.digest for m in counting}
    return Lineage(
        manifests=tuple(m for m in counting if m not in unlinked),
        stale=tuple(m for own in by_generation.values() for m in own if m.digest not in settled),
        bad=tuple(bad),
        generations=frozenset(path),
    )


def _path(bases: Mapping[int, ParentCheckpoint | None]) -> dict[int, float]:
    """Return the generations that count, each with the step up to which it does."""
    path: dict[int, float] = {}
    generation, until = max(bases, default=0), math.inf
    while generation in bases:
        path[generation] = until
        base = bases[generation]
        if base is None or base.generation >= generation:  # each goes back to an older one
            break
        generation, until = base.generation, base.step
    return path


def _agreed_fence(fence: Fence | None, manifests: Sequence[Manifest]) -> str | None:
    """Return the digest of the fence that most documents of a generation name, the fence's own first."""
    named = Counter([fence.digest] if fence else [])
    named.update(m.fence for m in manifests)
    return named.most_common(1)[0][0] if named else None


def _unlinked(newest_first: Sequence[Manifest]) -> list[Manifest]:
    """Return those whose parent is not the manifest that has the number before theirs."""
    return [
        newer
        for newer, older in pairwise(newest_first)
        if newer.number == older.number + 1 and newer.parent != older.digest
    ]
