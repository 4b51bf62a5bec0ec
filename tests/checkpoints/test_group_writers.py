"""Who may write to a group: one process for each rank, that of the newest recovery."""

from __future__ import annotations

import logging

import pytest

from airflow_training.checkpoints import reading
from airflow_training.checkpoints.errors import StaleGeneration, StoreRefused
from airflow_training.checkpoints.group import Group
from tests.checkpoints.groups import SECONDS, Threads, blobs_of, by_ranks, save, train
from tests.checkpoints.stores import DictStore, Overwriting


def test_a_replaced_process_can_neither_write_nor_commit(root):
    old = Group.open(root)
    train(old, 10)
    old.write(20, blobs_of(20, 0), document={"step": 20, "rank": 0})
    new = Group.open(root)
    with pytest.raises(StaleGeneration, match="generation 2 has taken over from 1"):
        old.commit(20, deadline=SECONDS)
    with pytest.raises(StaleGeneration):
        save(old, 30)
    assert new.base.step == 10
    assert [entry.step for entry in reading.history(root) if entry.state != "incomplete"] == [10]
    assert Group.open(root).base.step == 10


@pytest.mark.parametrize(
    ("first", "late"),
    [
        pytest.param(("0.0.1", 5), ("0.0.0", 4), id="older-order"),
        pytest.param(("1.0.0", 0), ("0.0.0", 9), id="older-epoch"),
    ],
)
def test_a_process_of_an_older_recovery_is_refused(first, late):
    store = DictStore()
    Group.open(store, incarnation=first[0], order=first[1])
    with pytest.raises(StaleGeneration, match="has taken over"):
        Group.open(store, incarnation=late[0], order=late[1])
    Group.open(store, incarnation=first[0], order=first[1])


def test_all_ranks_hear_why_rank_0_cannot_start():
    store = DictStore()
    Group.open(store, order=5)
    agreement = Threads(3)

    def start(rank: int) -> Exception:
        with pytest.raises(StaleGeneration, match="recovery 5 of epoch 0") as caught:
            Group.open(store, rank=rank, world=3, agreement=agreement.of(rank), order=4)
        return caught.value

    assert len(by_ranks(3, start)) == 3


def test_a_store_that_cannot_be_written_refuses_the_start(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreRefused):
        Group.open(str(tmp_path / "file"))


@pytest.mark.parametrize(
    ("store", "words"),
    [(DictStore(), "creates each key once"), (Overwriting(), "kept apart by their keys")],
)
def test_the_log_says_how_generations_are_kept_apart(store, words, caplog):
    with caplog.at_level(logging.INFO):
        Group.open(store)
    assert words in caplog.text


def test_starts_at_the_same_time_get_generations_of_their_own():
    store = Overwriting()
    groups = by_ranks(6, lambda _: Group.open(store))
    assert len({group.generation for group in groups}) == 6
    newest = max(groups, key=lambda group: group.generation)
    for group in groups:
        if group is not newest:
            with pytest.raises(StaleGeneration):
                save(group, 10)
    assert save(newest, 10)
