"""Builders for checkpoint groups: a training of which every byte is known, and several ranks in one process."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any, TypeVar

from airflow_training.checkpoints.group import Group
from airflow_training.checkpoints.records import Manifest
from airflow_training.checkpoints.store import ObjectStore

T = TypeVar("T")

SECONDS = 30.0
"""A deadline that only a hang reaches."""


def blobs_of(step: int, rank: int, *, size: int = 300) -> dict[str, bytes]:
    """Return the state of a rank after a step: one blob never changes, one is of another size each time."""
    changing = random.Random(f"{step}-{rank}")
    return {
        "frozen": random.Random(rank).randbytes(size),
        "weights": changing.randbytes(size),
        "cursor": changing.randbytes(step % 7),
    }


def write(group: Group, step: int, **content: Any) -> None:
    """Write what `blobs_of` says this rank has after the step."""
    rank = group.rank
    group.write(
        step,
        content.get("blobs", blobs_of(step, rank)),
        document={"step": step, "rank": rank},
        cursor={"sample": step * 8 + rank},
    )


def save(group: Group, step: int, **content: Any) -> Manifest | None:
    """Write and commit what `blobs_of` says this rank has after the step."""
    write(group, step, **content)
    return group.commit(step, deadline=SECONDS)


def train(group: Group, *steps: int) -> list[Manifest]:
    """Save these steps, each of which must be committed."""
    committed = [save(group, step) for step in steps]
    assert all(committed)
    return [manifest for manifest in committed if manifest]


def assert_is_state_of(group: Group, manifest: Manifest) -> None:
    """Every rank's part of a checkpoint is, byte by byte, what that rank had after that step."""
    for rank in range(manifest.world):
        document, blobs = group.read(manifest, rank)
        assert document == {"step": manifest.step, "rank": rank}
        assert blobs == blobs_of(manifest.step, rank)


class Threads:
    """The agreement of ranks that are threads of one process."""

    def __init__(self, world: int) -> None:
        self._barrier = Barrier(world, timeout=SECONDS)
        self._values: list[Any] = [None] * world

    def of(self, rank: int) -> _OfRank:
        return _OfRank(self, rank)

    def exchange(self, rank: int, value: Any) -> list[Any]:
        self._values[rank] = value
        self._barrier.wait()
        values = list(self._values)
        self._barrier.wait()
        return values


class _OfRank:
    def __init__(self, everyone: Threads, rank: int) -> None:
        self._everyone = everyone
        self._rank = rank

    def gather(self, value: Any) -> list[Any]:
        return self._everyone.exchange(self._rank, value)

    def broadcast(self, value: Any) -> Any:
        return self.gather(value)[0]


def by_ranks(world: int, work: Callable[[int], T]) -> list[T]:
    """Return what `work(rank)` gives on every rank, all running at the same time."""
    with ThreadPoolExecutor(world) as pool:
        return list(pool.map(work, range(world)))


def open_group(root: str | ObjectStore, world: int, **options: Any) -> list[Group]:
    """Return the handles of all ranks of a group, opened together."""
    agreement = Threads(world)
    return by_ranks(
        world,
        lambda rank: Group.open(
            root, rank=rank, world=world, agreement=agreement.of(rank), **options
        ),
    )


def train_together(groups: list[Group], *steps: int) -> list[Manifest]:
    """Save these steps on every rank; return the manifests as rank 0 got them.

    All write before rank 0 commits, and the others after it, so that none waits.
    """
    manifests = []
    for step in steps:
        for group in groups:
            write(group, step)
        committed = [group.commit(step, deadline=SECONDS) for group in groups]
        assert all(committed)
        manifests += [each for each in committed[:1] if each]
    return manifests


def shards_of(store: ObjectStore) -> set[str]:
    return {key for key, _ in store.list("shards/")}


def the(manifest: Manifest | None) -> Manifest:
    assert manifest is not None
    return manifest
