"""Where the start of a group goes on: the newest checkpoint that is whole for all ranks."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from airflow_training.checkpoints import reading
from airflow_training.checkpoints.errors import BadCheckpoint, CheckpointError, StaleGeneration
from airflow_training.checkpoints.group import Group
from airflow_training.checkpoints.keys import manifest_key, marker_key
from airflow_training.checkpoints.reachable import find_problem
from tests.checkpoints.groups import (
    SECONDS,
    Threads,
    assert_is_state_of,
    blobs_of,
    by_ranks,
    open_group,
    save,
    the,
    train,
    train_together,
)
from tests.checkpoints.stores import DictStore


def test_a_start_can_go_back_to_an_earlier_step():
    store = DictStore()
    train(Group.open(store, keep=9), 10, 20, 30)
    back = Group.open(store, not_after=25, keep=9)
    assert back.base.step == 20
    train(back, 25)
    assert Group.open(store).base.step == 25
    states = {(entry.step, entry.state) for entry in reading.history(store)}
    assert (30, "committed") not in states


def test_a_start_that_reads_nothing_rests_on_nothing_it_has_not_read():
    """Of a checkpoint whose content nobody compared, no shard may become part of the next one."""
    store = DictStore()
    (before,) = train(Group.open(store), 10)
    for shard in before.ranks[0].shards:
        store.objects[shard.key] = bytes(shard.size)
    group = Group.open(store, deep=False)
    assert group.newest_step == 10
    manifest = save(group, 20, blobs=blobs_of(10, 0))
    assert manifest is not None
    document, blobs = group.read(manifest)
    assert document == {"step": 20, "rank": 0}
    assert blobs == blobs_of(10, 0)


def test_an_abandoned_group_commits_nothing():
    store = DictStore()
    group = Group.open(store)
    train(group, 10)
    group.write(20, blobs_of(20, 0), document={})
    group.abandon()
    with pytest.raises(StaleGeneration, match="was given up"):
        group.commit(20, deadline=SECONDS)
    assert Group.open(store).newest_step == 10


def test_a_start_can_begin_afresh():
    store = DictStore()
    train(Group.open(store), 10, 20)
    fresh = Group.open(store, resume=False)
    assert fresh.base is None
    train(fresh, 5)
    assert Group.open(store).base.step == 5


def test_a_start_before_the_first_save_does_not_matter():
    store = DictStore()
    train(Group.open(store), 10)
    for _ in range(3):
        assert Group.open(store).base.step == 10


def test_a_damaged_checkpoint_is_passed_over_on_all_ranks_and_said(caplog):
    store = DictStore()
    groups = open_group(store, 3)
    newest = train_together(groups, 10, 20, 30)[-1]
    damaged = newest.ranks[2].shards[0].key
    store.objects[damaged] = store.objects[damaged][:-1] + b"?"
    with caplog.at_level(logging.WARNING):
        opened = open_group(store, 3)
    assert [group.base.step for group in opened] == [20, 20, 20]
    (rejected,) = opened[0].rejected
    assert rejected[0] == 30
    assert damaged in rejected[1]
    assert "the checkpoint of step 30 is bad" in caplog.text


class Showing(DictStore):
    """A handle that shows something else than the others for some keys."""

    def __init__(self, objects: dict[str, bytes], shown: dict[str, bytes]) -> None:
        super().__init__(objects)
        self._shown = shown

    def _get(self, key: str) -> bytes:
        return self._shown[key] if key in self._shown else super()._get(key)


def test_ranks_that_see_different_manifests_go_on_from_neither():
    store = DictStore()
    newest = train_together(open_group(store, 2), 10, 20)[-1]
    other = replace(newest, at=newest.at + 1).to_bytes()
    handles = [store, Showing(store.objects, {manifest_key(newest.save): other})]
    agreement = Threads(2)
    opened = by_ranks(
        2,
        lambda rank: Group.open(handles[rank], rank=rank, world=2, agreement=agreement.of(rank)),
    )
    assert [the(group.base).step for group in opened] == [10, 10]
    assert "another manifest than rank 0" in opened[0].rejected[0][1]


@pytest.mark.parametrize("kind", ["shard", "marker", "manifest"])
def test_a_file_that_can_never_be_read_is_damage(tmp_path, kind):
    """A link that leads to itself stands for any file that the disk will not give back."""
    group = Group.open(str(tmp_path))
    train(group, 10, 20)
    newest = train(group, 30)[-1]
    key = {
        "shard": next(s.key for s in newest.ranks[0].shards if str(newest.save) in s.key),
        "marker": marker_key(newest.save, 0),
        "manifest": manifest_key(newest.save),
    }[kind]
    path = tmp_path / key
    path.unlink()
    path.symlink_to(path)
    opened = Group.open(str(tmp_path))
    assert opened.base.step == 20
    assert [step for step, _ in opened.rejected] == [30]
    assert "cannot be read" in opened.rejected[0][1]
    assert find_problem(str(tmp_path)) == ""
    train(opened, 40)
    assert Group.open(str(tmp_path)).base.step == 40


def test_an_object_that_is_read_at_the_second_try_is_whole():
    class Shaky(DictStore):
        failed = False

        def read(self, key, start=0, size=None):
            if key.startswith("shards/") and not self.failed:
                self.failed = True
                raise OSError("connection reset")
            return super().read(key, start, size)

    store = DictStore()
    train(Group.open(store), 10, 20)
    assert Group.open(Shaky(store.objects)).base.step == 20


def test_a_store_that_does_not_answer_is_an_error_and_no_older_checkpoint():
    """Else a short failure of the network would cost all steps since the checkpoint before."""

    class Unreachable(DictStore):
        def read(self, key, start=0, size=None):
            if key.startswith("shards/"):
                raise OSError("connection reset")
            return super().read(key, start, size)

    store = DictStore()
    train(Group.open(store), 10, 20)
    with pytest.raises(CheckpointError, match="cannot verify a checkpoint: connection reset"):
        Group.open(Unreachable(store.objects))
    assert Group.open(store).base.step == 20


def test_a_start_that_reads_nothing_compares_sizes():
    store = DictStore()
    older, newer = train(Group.open(store), 10, 20)
    kept = {shard.key for shard in older.ranks[0].shards}
    own = next(shard.key for shard in newer.ranks[0].shards if shard.key not in kept)
    store.objects[own] = store.objects[own][:-1]
    assert the(Group.open(store, deep=False).base).step == 10


def test_reading_compares_what_it_returns():
    """Also where the store is damaged after the checkpoint was verified."""
    store = DictStore()
    group = Group.open(store)
    (manifest,) = train(group, 10)
    key = manifest.ranks[0].shards[0].key
    store.objects[key] = bytes(reversed(store.objects[key]))
    with pytest.raises(BadCheckpoint, match="chunk 0"):
        group.read(manifest)


def test_reading_compares_all_that_it_returns_whatever_chunks_are_named():
    store = DictStore()
    group = Group.open(store)
    (manifest,) = train(group, 10)
    (part,) = manifest.ranks
    unnamed = tuple(replace(shard, chunks=()) for shard in part.shards)
    manifest = replace(manifest, ranks=(replace(part, shards=unnamed),))
    assert_is_state_of(group, manifest)
    key = unnamed[0].key
    store.objects[key] = bytes(reversed(store.objects[key]))
    with pytest.raises(BadCheckpoint, match="not what was written"):
        group.read(manifest)


def test_the_newest_whole_checkpoint_can_be_asked_for():
    store = DictStore()
    group = Group.open(store)
    train(group, 10, 20)
    assert group.newest().step == 20
    assert group.newest(not_after=15).step == 10
    assert group.newest(not_after=5) is None
