"""What stays and what may go, from documents and names alone."""

from __future__ import annotations

import pytest

from airflow_training.checkpoints.keys import (
    SaveId,
    failure_key,
    manifest_key,
    marker_key,
    shard_key,
)
from airflow_training.checkpoints.records import Manifest, RankShards
from airflow_training.checkpoints.retention import retained_manifests, unreferenced_keys
from airflow_training.checkpoints.shards import ShardObject


def manifest(number: int, *, generation: int = 1, shards: tuple[str, ...] = ()) -> Manifest:
    made = tuple(ShardObject(key=key, digest="xxh3:0", chunks=(), parts=()) for key in shards)
    return Manifest(
        step=number * 10,
        generation=generation,
        number=number,
        base=None,
        fence="",
        parent=None,
        ranks=(RankShards(marker="", state="", shards=made),),
        cursor=None,
        code="",
        environment="",
        at=0,
    )


@pytest.mark.parametrize(
    ("keep", "keep_every", "expected"),
    [
        pytest.param(3, None, [9, 8, 7], id="newest"),
        pytest.param(20, None, [9, 8, 7, 6, 5, 4, 3, 2, 1], id="all"),
        pytest.param(1, None, [9, 8], id="never-fewer-than-two"),
        pytest.param(2, 3, [9, 8, 6, 3], id="and-every-third"),
        pytest.param(2, 1, [9, 8, 7, 6, 5, 4, 3, 2, 1], id="and-every-one"),
    ],
)
def test_the_newest_and_every_nth_stay(keep, keep_every, expected):
    there = [manifest(number) for number in range(9, 0, -1)]
    stay = retained_manifests(there, keep=keep, keep_every=keep_every)
    assert [m.number for m in stay] == expected


def shard(save: SaveId) -> str:
    return shard_key("xxh3:abcd", 10, save)


KEPT, OLD, FAILED, NEXT = SaveId(40, 2), SaveId(20, 2), SaveId(30, 2), SaveId(50, 2)


@pytest.mark.parametrize(
    ("key", "goes"),
    [
        pytest.param(shard(KEPT), True, id="shard-no-manifest-names"),
        pytest.param(shard(OLD), True, id="shard-of-a-deleted-checkpoint"),
        pytest.param(shard(SaveId(10, 1)), False, id="old-shard-that-is-still-needed"),
        pytest.param(shard(NEXT), False, id="shard-of-a-save-in-progress"),
        pytest.param(shard(SaveId(10, 3)), False, id="shard-of-a-newer-generation"),
        pytest.param(shard(SaveId(90, 1)), True, id="shard-of-an-older-generation"),
        pytest.param(shard(FAILED), False, id="shard-of-a-damaged-checkpoint"),
        pytest.param(marker_key(KEPT, 0), False, id="marker-that-is-needed"),
        pytest.param(marker_key(OLD, 0), True, id="marker-of-a-deleted-checkpoint"),
        pytest.param(marker_key(NEXT, 1), False, id="marker-of-a-save-in-progress"),
        pytest.param(marker_key(FAILED, 0), False, id="marker-of-a-damaged-checkpoint"),
        pytest.param(failure_key(OLD, 0), True, id="note-of-a-failed-save"),
        pytest.param(failure_key(NEXT, 0), False, id="note-of-a-save-in-progress"),
        pytest.param("shards/notes.txt", False, id="what-is-not-ours"),
    ],
)
def test_only_what_belongs_to_no_checkpoint_goes(key, goes):
    needed = manifest(4, generation=2, shards=(shard(SaveId(10, 1)),))
    assert unreferenced_keys([key], kept=[needed], left={FAILED}, newest=KEPT) == (
        [key] if goes else []
    )


def test_keys_are_read_as_they_are_written():
    save = SaveId(123_456_789_012_345, 7)
    assert str(save) == "123456789012345-00000007"
    for key in (shard(save), marker_key(save, 16_383), failure_key(save, 0)):
        assert unreferenced_keys([key], kept=[], left=[], newest=save) == [key]
    assert manifest_key(save) == f"manifests/{save}.json"
