"""What stays of a group's checkpoints, and what is swept."""

from __future__ import annotations

from collections import Counter

from airflow_training.checkpoints import reading
from airflow_training.checkpoints.group import Group
from airflow_training.checkpoints.keys import (
    SaveId,
    failure_key,
    fence_key,
    manifest_key,
    marker_key,
)
from tests.checkpoints.groups import (
    SECONDS,
    assert_is_state_of,
    blobs_of,
    by_ranks,
    open_group,
    save,
    the,
    train,
    train_together,
)
from tests.checkpoints.stores import Counting, DictStore


def test_the_newest_stay_and_every_nth(root):
    group = Group.open(root, keep=2, keep_every=3)
    train(group, *range(1, 9))
    again = Group.open(root, keep=2, keep_every=3)
    assert [m.step for m in history_of(again)] == [8, 7, 6, 3]
    for manifest in history_of(again):
        assert_is_state_of(again, manifest)


def history_of(group: Group):
    from airflow_training.checkpoints.survey import survey

    return survey(group.store).lineage.manifests


def test_nothing_but_what_stays_is_left():
    store = DictStore()
    group = Group.open(store, keep=2)
    train(group, 10, 20, 30, 40)
    manifests = history_of(group)
    needed = {s.key for m in manifests for part in m.ranks for s in part.shards}
    needed |= {manifest_key(m.save) for m in manifests} | {marker_key(m.save, 0) for m in manifests}
    assert set(store.objects) - {key for key, _ in store.list("claims/")} == needed | {fence_key(1)}


def test_a_commit_asks_no_more_of_the_store_the_more_there_is():
    """All is looked at once, at the first commit of a generation, for what others have left."""
    store = Counting()
    train(Group.open(store, keep_every=1), *range(10, 200, 10))
    group = Group.open(store, keep_every=1)
    asked = []
    for step in range(200, 250, 10):
        store.asked.clear()
        train(group, step)
        asked.append(Counter(store.asked))
    first, *later = asked
    assert first["list", "shards"] == 1
    assert first["read", "manifests"] >= 20
    for each in later:
        assert each == later[0]
        assert each["list", "shards"] == each["read", "manifests"] == each["size", "shards"] == 0


def test_what_others_deleted_or_left_meanwhile_is_noticed():
    store = DictStore()
    group = Group.open(store, keep=4)
    train(group, 10, 20, 30, 40)
    reading.prune(store, keep=2)
    stray = manifest_key(SaveId(5, 0))
    store.create(stray, b"left by a process that was replaced")
    store.create(failure_key(SaveId(20, 1), 3), b"late")
    train(group, 50, 60)
    assert [m.step for m in history_of(group)] == [60, 50, 40, 30]
    assert stray not in store.objects
    assert not store.list("failures/")


def test_two_stay_although_one_was_asked_for():
    group = Group.open(DictStore(), keep=1)
    train(group, 10, 20, 30)
    assert [m.step for m in history_of(group)] == [30, 20]


def test_damaged_checkpoints_do_not_count_as_kept():
    store = DictStore()
    group = Group.open(store, keep=2)
    first, second = train(group, 10, 20)
    del store.objects[second.ranks[0].shards[0].key]
    again = Group.open(store, keep=2)
    assert again.base.step == 10
    train(again, 30)
    assert {m.step for m in history_of(again)} == {10, 30}
    assert_is_state_of(again, first)


def test_what_failed_saves_left_is_swept():
    store = DictStore()
    groups = open_group(store, 2)
    train_together(groups, 5, 10)  # from now on it is known what there is
    groups[0].write(20, blobs_of(20, 0), document={})
    groups[1].fail(20, "no")
    assert groups[0].commit(20, deadline=SECONDS) is None
    train_together(groups, 30)
    assert not [key for key in store.objects if "000000000020-" in key]


def test_what_replaced_processes_left_is_swept():
    store = DictStore()
    old = Group.open(store)
    train(old, 10, 20)
    old.write(30, blobs_of(30, 0), document={})
    train(Group.open(store), 25)
    assert not [key for key in store.objects if "000000000030-" in key]


def test_a_save_in_progress_loses_nothing_to_the_sweep():
    """Rank 1 is a save ahead while rank 0 deletes."""
    store = DictStore()
    groups = open_group(store, 2, keep=2)
    train_together(groups, 10, 20)
    groups[0].write(30, blobs_of(30, 0), document={"step": 30, "rank": 0})
    groups[1].write(30, blobs_of(30, 1), document={"step": 30, "rank": 1})
    reading.prune(store, keep=1)
    manifest = groups[0].commit(30, deadline=SECONDS)
    groups[1].write(40, blobs_of(40, 1), document={"step": 40, "rank": 1})
    reading.prune(store, keep=1)
    groups[0].write(40, blobs_of(40, 0), document={"step": 40, "rank": 0})
    assert manifest
    assert_is_state_of(groups[0], the(groups[0].commit(40, deadline=SECONDS)))


def test_a_rank_that_missed_commits_rests_on_nothing_that_was_deleted():
    """Its content is again what it was in a checkpoint that is gone by now."""
    groups = open_group(DictStore(), 2, keep=2)
    once, then = {"w": b"1" * (5 << 20)}, {"w": b"2" * (5 << 20)}
    by_ranks(2, lambda rank: save(groups[rank], 10, blobs=once))
    for step, blobs in ((20, then), (30, then), (40, once)):
        groups[1].write(step, blobs, document={"step": step, "rank": 1})
        assert groups[1].commit(step, deadline=0) is None
        manifest = the(save(groups[0], step))
        document, found = groups[0].read(manifest, 1)
        assert document == {"step": step, "rank": 1}
        assert found == blobs


def test_a_checkpoint_is_committed_although_old_ones_cannot_be_deleted(caplog):
    class ReadOnlyAfterwards(DictStore):
        def delete(self, key):
            if not key.startswith("probes/"):
                raise PermissionError("delete is denied")

    group = Group.open(ReadOnlyAfterwards(), keep=2)
    train(group, 10, 20, 30)
    assert "old checkpoints were not deleted: delete is denied" in caplog.text
    assert group.newest().step == 30


def test_pruning_waits_while_a_start_chooses_where_to_go_on():
    store = DictStore()
    train(Group.open(store, keep=9), 10, 20, 30)
    store.create("claims/00000002-ab.json", b"")
    assert reading.prune(store, keep=2).steps == ()
    del store.objects["claims/00000002-ab.json"]
    assert reading.prune(store, keep=2).steps == (10,)
