"""Chunks are believed only after they were digested, wherever they come from."""

from __future__ import annotations

import io
import random
import uuid

import pytest

from airflow_training.checkpoints.store import open_store
from airflow_training.remote_data.chunks import (
    CHUNK_BYTES,
    ChunkCache,
    count_chunks,
    digest_of_chunk,
    read_chunks,
)


@pytest.fixture
def store():
    return open_store(f"memory://chunks-{uuid.uuid4().hex}")


def key(digest: str) -> str:
    return f"chunks/{digest[:2]}/{digest}"


def damage(store, digest: str, data: bytes) -> None:
    store.delete(key(digest))
    store.create(key(digest), data)


def flip_some(store, trials: int) -> None:
    dice = random.Random(16)
    cache = ChunkCache(store)
    data = dice.randbytes(20_000)
    digest = digest_of_chunk(data)
    for _ in range(trials):
        bad = bytearray(data)
        bad[dice.randrange(len(bad))] ^= 1 << dice.randrange(8)
        damage(store, digest, bytes(bad))
        assert cache.get(digest) is None
        cache.put(digest, data)
        assert cache.get(digest) == data
    assert cache.damaged == trials


def test_every_flipped_bit_in_the_cache_is_found_and_the_chunk_fetched_again(store):
    flip_some(store, 200)


@pytest.mark.soak
def test_every_flipped_bit_of_many_is_found(store):
    flip_some(store, 5000)


@pytest.mark.parametrize("cut", [b"", b"ab", b"abcd"])
def test_a_chunk_that_is_too_short_or_too_long_is_damaged(store, cut):
    cache = ChunkCache(store)
    cache.put(digest_of_chunk(b"abc"), b"abc")
    damage(store, digest_of_chunk(b"abc"), cut)
    assert cache.get(digest_of_chunk(b"abc")) is None


def test_what_another_node_has_kept_meanwhile_is_fine(store):
    ChunkCache(store).put(digest_of_chunk(b"abc"), b"abc")
    ChunkCache(store).put(digest_of_chunk(b"abc"), b"abc")
    assert ChunkCache(store).get(digest_of_chunk(b"abc")) == b"abc"


@pytest.mark.parametrize(
    ("size", "expected"),
    [(0, 0), (1, 1), (CHUNK_BYTES, 1), (CHUNK_BYTES + 1, 2), (3 * CHUNK_BYTES, 3)],
)
def test_how_many_chunks_a_file_has(size, expected):
    assert count_chunks(size) == expected
    assert len(list(read_chunks(io.BytesIO(b"\0" * size)))) == expected
