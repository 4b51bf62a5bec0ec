"""Digests of chunks do not depend on how the bytes come, and differ with every bit."""

from __future__ import annotations

import hashlib
import sys
import zlib

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from airflow_training.checkpoints import digests
from airflow_training.checkpoints.digests import algorithm, digest_of, digests_of_chunks
from airflow_training.checkpoints.errors import CheckpointError

NAMES = ("xxh3", "crc32+sha256", "sha256")


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(digests, "CHUNK", 8)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("xxh3", xxhash.xxh3_128_hexdigest),
        ("crc32+sha256", lambda chunk: f"{zlib.crc32(chunk):08x}"),
        ("sha256", lambda chunk: hashlib.sha256(chunk).hexdigest()),
    ],
)
def test_each_chunk_has_the_digest_its_name_says(small_chunks, name, expected):
    content = bytes(range(20))
    chunks = [content[:8], content[8:16], content[16:]]
    assert digests_of_chunks([content], name=name) == [expected(chunk) for chunk in chunks]


@pytest.mark.parametrize("name", NAMES)
def test_nothing_has_no_chunks(name):
    assert digests_of_chunks([], name=name) == digests_of_chunks([b"", b""], name=name) == []


@given(st.lists(st.binary(max_size=30), max_size=6), st.sampled_from(NAMES))
def test_pieces_give_what_their_sum_gives(pieces, name):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digests, "CHUNK", 8)
        assert digests_of_chunks(pieces, name=name) == digests_of_chunks(
            [b"".join(pieces)], name=name
        )


@pytest.mark.parametrize("name", NAMES)
def test_order_and_size_count(name):
    digest = digest_of(["a", "b"], size=2, name=name)
    assert digest.startswith(f"{name}:")
    assert digest != digest_of(["b", "a"], size=2, name=name)
    assert digest != digest_of(["a", "b"], size=3, name=name)


def test_without_xxhash_the_standard_library_does_it(monkeypatch):
    assert algorithm() == "xxh3"
    monkeypatch.setitem(sys.modules, "xxhash", None)
    assert algorithm() == "crc32+sha256"


def test_reading_xxh3_without_xxhash_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "xxhash", None)
    with pytest.raises(CheckpointError, match="pip install xxhash"):
        digests_of_chunks([b"x"], name="xxh3")


def test_signed_checkpoints_have_digests_that_cannot_be_forged(monkeypatch):
    monkeypatch.setenv("TRAINING_CHECKPOINT_KEY", "secret")
    assert algorithm() == "sha256"


def test_an_unknown_digest_is_named(monkeypatch):
    with pytest.raises(CheckpointError, match="'md5' digests are not known"):
        digests_of_chunks([b"x"], name="md5")
