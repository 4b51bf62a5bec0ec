"""Saves of a group that fail: all ranks hear of it, and nothing is committed."""

from __future__ import annotations

import logging

import pytest

from airflow_training.checkpoints.errors import CheckpointError
from airflow_training.checkpoints.group import Group
from airflow_training.checkpoints.keys import failure_key, manifest_key, marker_key
from tests.checkpoints.groups import SECONDS, blobs_of, by_ranks, open_group, save
from tests.checkpoints.stores import DictStore, Full


def test_a_rank_that_fails_lets_all_know_at_once(caplog):
    objects: dict[str, bytes] = {}
    groups = open_group(DictStore(objects), 3)
    groups[2].store = Full(objects)

    def one(rank: int) -> object:
        if rank != 2:
            return save(groups[rank], 10)
        with pytest.raises(CheckpointError, match="No space left on device"):
            save(groups[rank], 10)
        return None

    with caplog.at_level(logging.WARNING):
        assert by_ranks(3, one) == [None] * 3
    assert "step 10 is not saved: rank 2" in caplog.text
    groups[2].store = DictStore(objects)
    assert all(by_ranks(3, lambda rank: save(groups[rank], 20)))


def test_a_rank_that_says_nothing_is_named_at_the_deadline(caplog):
    store = DictStore()
    groups = open_group(store, 3)

    def one(rank: int) -> object:
        if rank == 1:
            return None
        groups[rank].write(10, blobs_of(10, rank), document={})
        return groups[rank].commit(10, deadline=0.3 if rank == 0 else SECONDS)

    with caplog.at_level(logging.WARNING):
        assert by_ranks(3, one) == [None] * 3
    assert "no word of ranks [1] within 0.3 s" in caplog.text


def test_without_rank_0_the_others_stop_waiting(caplog):
    groups = open_group(DictStore(), 2)
    groups[1].write(10, {}, document={})
    assert groups[1].commit(10, deadline=0.05) is None
    assert "was not committed within 0.05 s" in caplog.text


def test_a_rank_may_say_itself_that_it_has_no_part():
    groups = open_group(DictStore(), 2)
    groups[1].fail(10, "the snapshot did not fit")
    groups[0].write(10, {}, document={})
    assert groups[0].commit(10, deadline=SECONDS) is None


def test_a_marker_that_was_damaged_on_its_way_is_not_committed():
    store = DictStore()
    group = Group.open(store)
    marker = group.write(10, {"w": b"1"}, document={})
    store.objects[marker_key(marker.save, 0)] = b"{}"
    assert group.commit(10, deadline=SECONDS) is None
    assert manifest_key(marker.save) not in store.objects
    assert failure_key(marker.save, 0) in store.objects


def test_a_commit_whose_answer_was_lost_is_a_commit():
    class Unlucky(DictStore):
        def create(self, key, data):
            super().create(key, data)
            if key.startswith(("manifests/", "markers/", "fences/")):
                super().create(key, b"")  # the driver tries again and finds its own object

    group = Group.open(Unlucky())
    assert save(group, 10).step == 10
