"""Whatever is damaged is found, and the newest step that is whole is restored."""

from __future__ import annotations

import random

import pytest

from airflow_training.checkpoints import reading
from airflow_training.checkpoints.group import Group
from airflow_training.checkpoints.keys import SaveId, fence_key, manifest_key
from airflow_training.checkpoints.store import open_store
from tests.checkpoints.damage import (
    MUTATORS,
    Subject,
    assert_found,
    flip_a_bit,
    flip_random_bits,
    newest_shard,
)
from tests.checkpoints.groups import assert_is_state_of, train
from tests.checkpoints.stores import DictStore


@pytest.fixture(scope="module")
def subject() -> Subject:
    return Subject.make()


def test_undamaged_nothing_is_found(subject):
    objects = subject.copy()
    assert reading.damaged(DictStore(objects)) == {}
    assert [e.state for e in reading.verify(DictStore(objects))] == ["committed"] * 4
    with pytest.raises(AssertionError, match="nobody has noticed"):
        assert_found(subject, objects, ())


@pytest.mark.parametrize(
    "flips", [pytest.param(100, id="sample"), pytest.param(3000, id="all", marks=pytest.mark.soak)]
)
def test_every_flipped_bit_is_found(subject, flips):
    flip_random_bits(subject, flips, random.Random(1))


@pytest.mark.parametrize(
    "every", [pytest.param(23, id="sample"), pytest.param(1, id="all", marks=pytest.mark.soak)]
)
def test_a_flip_in_any_byte_of_a_manifest_is_found(subject, every):
    key = manifest_key(SaveId(40, 2))
    for byte in range(0, len(subject.objects[key]), every):
        flip_a_bit(subject, key, byte * 8 + byte % 8)


@pytest.mark.parametrize("name", MUTATORS)
def test_every_mutation_is_found(subject, name):
    rng = random.Random(name)
    for _ in range(20):
        objects = subject.copy()
        lost = MUTATORS[name](subject, objects, rng)
        assert_found(subject, objects, set(lost))


def test_several_damaged_checkpoints_lead_to_the_one_before_them(subject):
    objects = subject.copy()
    for step in (40, 30):
        key = newest_shard(subject.manifests[step], 1)
        objects[key] = objects[key][::-1]
    assert_found(subject, objects, {30, 40})


def test_a_fence_in_the_place_of_another_is_named(subject):
    objects = subject.copy()
    objects[fence_key(2)] = objects[fence_key(1)]
    reason = reading.damaged(DictStore(objects))[fence_key(2)]
    assert "holds the fence of generation 1" in reason


@pytest.mark.parametrize("without_xxhash", [False, True])
def test_without_xxhash_flips_are_found_too(monkeypatch, without_xxhash):
    if without_xxhash:
        monkeypatch.setitem(__import__("sys").modules, "xxhash", None)
    subject = Subject.make()
    name = next(iter(subject.manifests.values())).ranks[0].shards[0].digest.partition(":")[0]
    assert name == ("crc32+sha256" if without_xxhash else "xxh3")
    flip_random_bits(subject, 100, random.Random(2))


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_real_stores_show_damage_alike(request, kind, tmp_path):
    root = request.getfixturevalue("s3_root") if kind == "s3" else str(tmp_path)
    newest = train(Group.open(root), 10, 20, 30)[-1]
    store = open_store(root)
    key = newest_shard(newest, 0)
    content = bytearray(store.read(key))
    content[len(content) // 2] ^= 4
    store.delete(key)
    store.create(key, bytes(content))
    assert [(e.step, e.state) for e in reading.verify(root)] == [
        (30, "bad"), (20, "committed"), (10, "committed"),
    ]  # fmt: skip
    group = Group.open(root)
    assert group.base is not None
    assert group.base.step == 20
    assert_is_state_of(group, group.base)
