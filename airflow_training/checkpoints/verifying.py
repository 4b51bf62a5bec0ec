"""Read what a manifest names and compare it, digest by digest. Nothing is given out that was not compared."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, TypeVar

from airflow_training.checkpoints.digests import digest_of, digests_of_chunks
from airflow_training.checkpoints.documents import sha256_of
from airflow_training.checkpoints.errors import BadCheckpoint
from airflow_training.checkpoints.keys import SaveId, manifest_key, marker_key
from airflow_training.checkpoints.records import Manifest
from airflow_training.checkpoints.shards import DOCUMENT, ShardObject
from airflow_training.checkpoints.store import ObjectStore

__all__ = ["in_parallel", "persistently", "read_manifest", "read_state", "stream_state", "verify"]

_PAUSES = (0.1, 0.4)
"""Seconds before an object that could not be read is tried again."""
_WITNESSES = 8
"""Other objects that are asked whether it is the store that does not answer."""

T = TypeVar("T")
R = TypeVar("R")


def in_parallel(store: ObjectStore, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Return `work` of every item, in their order, by as many threads as the store is worth."""
    todo = list(items)
    if store.workers == 1 or len(todo) < 2:
        return [work(item) for item in todo]
    with ThreadPoolExecutor(store.workers, thread_name_prefix="checkpoint") as pool:
        futures = [pool.submit(work, item) for item in todo]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()


def persistently(store: ObjectStore, key: str, work: Callable[[], R]) -> R:
    """Do `work` on an object and try again where it cannot be read.

    Raises:
        BadCheckpoint: it alone can never be read (a link that leads to itself, a bad sector), for others of its kind can.
        OSError: where the store does not answer.
    """
    failure = OSError(key)
    for pause in (*_PAUSES, 0.0):
        try:
            return work()
        except FileNotFoundError:  # noqa: PERF203 - the loop is for what fails
            raise
        except OSError as error:
            failure = error
            time.sleep(pause)
    if _reads_another(store, key):
        raise BadCheckpoint(f"{key} cannot be read: {failure}") from failure
    raise failure


def _reads_another(store: ObjectStore, key: str) -> bool:
    others = (other for other, _ in store.list(key.partition("/")[0] + "/") if other != key)
    for other in islice(others, _WITNESSES):
        with contextlib.suppress(OSError):
            store.read(other, size=1)
            return True
    return False


def read_manifest(store: ObjectStore, save: SaveId) -> Manifest:
    """Return the manifest of a save; raises BadCheckpoint, FileNotFoundError or OSError."""
    key = manifest_key(save)
    content = persistently(store, key, lambda: store.read(key))
    manifest = Manifest.from_bytes(content, what=key)
    if manifest.save != save:
        raise BadCheckpoint(f"{key} holds the manifest of {manifest.save}")
    return manifest


def verify(
    store: ObjectStore, manifest: Manifest, *, ranks: Iterable[int] | None = None, deep: bool = True
) -> None:
    """Compare markers and shards of a checkpoint with its manifest.

    Args:
        store: where it lies.
        manifest: of the checkpoint.
        ranks: whose parts; None means all.
        deep: read the shards, not only their sizes.

    Raises:
        BadCheckpoint: names the first object that is missing or differs.
        OSError: where the store does not answer.
    """
    chosen = list(range(manifest.world) if ranks is None else ranks)
    in_parallel(store, lambda rank: _verify_marker(store, manifest, rank), chosen)
    shards = {shard.key: shard for rank in chosen for shard in manifest.ranks[rank].shards}
    check = _verified_content if deep else _verify_size
    in_parallel(store, lambda shard: check(store, shard) and None, shards.values())


def _verify_marker(store: ObjectStore, manifest: Manifest, rank: int) -> None:
    key, part = marker_key(manifest.save, rank), manifest.ranks[rank]
    if sha256_of(_read(store, key)) != part.marker:
        raise BadCheckpoint(f"{key} is not the marker that was committed")


def _read(store: ObjectStore, key: str) -> bytes:
    try:
        return persistently(store, key, lambda: store.read(key))
    except FileNotFoundError:
        raise BadCheckpoint(f"{key} is missing") from None


def _verify_size(store: ObjectStore, shard: ShardObject) -> None:
    try:
        size = persistently(store, shard.key, lambda: store.size(shard.key))
    except FileNotFoundError:
        raise BadCheckpoint(f"{shard.key} is missing") from None
    if size != shard.size:
        raise BadCheckpoint(f"{shard.key} has {size} bytes, committed were {shard.size}")


def _verified_content(store: ObjectStore, shard: ShardObject) -> bytes:
    """Return a shard's bytes, compared with its digests."""
    content = _read(store, shard.key)
    if len(content) != shard.size:
        raise BadCheckpoint(f"{shard.key} has {len(content)} bytes, committed were {shard.size}")
    name = shard.digest.partition(":")[0]
    chunks = digests_of_chunks([content], name=name)
    for number, (found, committed) in enumerate(zip(chunks, shard.chunks, strict=False)):
        if found != committed:
            raise BadCheckpoint(f"{shard.key}, chunk {number}: the content is not what was written")
    if digest_of(chunks, size=len(content), name=name) != shard.digest:
        raise BadCheckpoint(f"{shard.key}: the content is not what was written")
    return content


def read_state(
    store: ObjectStore, manifest: Manifest, rank: int
) -> tuple[Any, dict[str, bytearray]]:
    """Return the document and the blobs that a rank saved, compared while they are read.

    Raises:
        BadCheckpoint: where anything differs; then nothing is returned.
        OSError: where the store does not answer.
    """
    shards = manifest.ranks[rank].shards
    sizes: dict[str, int] = {}
    places: list[list[tuple[str, int, int]]] = []
    for shard in shards:
        places.append([(name, sizes.get(name, 0), size) for name, size in shard.parts])
        for name, size in shard.parts:
            sizes[name] = sizes.get(name, 0) + size
    blobs = {name: bytearray(size) for name, size in sizes.items()}

    def fill(number: int) -> None:
        content, start = memoryview(_verified_content(store, shards[number])), 0
        for name, offset, size in places[number]:
            blobs[name][offset : offset + size] = content[start : start + size]
            start += size

    in_parallel(store, fill, range(len(shards)))
    document = json.loads(blobs.pop(DOCUMENT))
    return document, blobs


def stream_state(
    store: ObjectStore, manifest: Manifest, rank: int
) -> Iterator[tuple[str, memoryview]]:
    """Yield (blob, bytes) of what a rank saved, never more than a shard in memory.

    A large blob comes in several pieces, in turn; each was compared before it is given out.

    Raises:
        BadCheckpoint: where anything differs; what came before it was right.
        OSError: where the store does not answer.
    """
    for shard in manifest.ranks[rank].shards:
        content, start = memoryview(_verified_content(store, shard)), 0
        for name, size in shard.parts:
            yield name, content[start : start + size]
            start += size
