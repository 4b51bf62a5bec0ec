"""A group of processes writes checkpoints together, and finds them again."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_training.checkpoints import reading
from airflow_training.checkpoints.documents import canonical
from airflow_training.checkpoints.errors import (
    BadCheckpoint,
    CheckpointError,
    StaleGeneration,
    StoreRefused,
)
from airflow_training.checkpoints.group import Group
from airflow_training.checkpoints.keys import (
    SaveId,
    failure_key,
    fence_key,
    manifest_key,
    marker_key,
)
from airflow_training.checkpoints.reachable import find_problem
from airflow_training.checkpoints.records import Manifest
from tests.checkpoints.groups import (
    SECONDS,
    Threads,
    assert_is_state_of,
    blobs_of,
    by_ranks,
    open_group,
    save,
    train,
    train_together,
)
from tests.checkpoints.stores import Counting, DictStore, Full, Overwriting
from tests.examples import examples


@pytest.fixture(params=["local", "overwriting", "s3"])
def root(request, tmp_path):
    """Return what a group may lie on, also a store that does not refuse a second create."""
    if request.param == "overwriting":
        return Overwriting()
    return request.getfixturevalue("s3_root") if request.param == "s3" else str(tmp_path)


def shards_of(store: DictStore) -> set[str]:
    return {key for key, _ in store.list("shards/")}


def the(manifest: Manifest | None) -> Manifest:
    assert manifest is not None
    return manifest


# saving and finding again -------------------------------------------------------------------------


@pytest.mark.parametrize("world", [1, 3])
def test_what_was_committed_is_where_the_next_start_goes_on(root, world):
    first = open_group(root, world)
    assert [group.base for group in first] == [None] * world
    train_together(first, 10, 20)

    second = open_group(root, world)
    for group in second:
        assert (group.generation, group.base.step) == (2, 20)
        assert_is_state_of(group, the(group.base))
    assert len({group.base.root_digest for group in second}) == 1


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 4), (3, 1)])
def test_another_number_of_ranks_reads_every_part(before, after):
    store = DictStore()
    train_together(open_group(store, before), 10)
    for group in open_group(store, after):
        assert group.base.world == before
        assert_is_state_of(group, the(group.base))
        with pytest.raises(CheckpointError, match=f"it holds {before} ranks"):
            group.read(the(group.base), before)


@settings(max_examples=examples(50))
@given(
    blobs=st.dictionaries(st.text(min_size=1), st.binary(max_size=200), max_size=12),
    document=st.dictionaries(st.text(), st.integers() | st.text()),
)
def test_every_state_comes_back_as_it_was(blobs, document):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("airflow_training.checkpoints.shards._SMALL", 50)
        patch.setattr("airflow_training.checkpoints.shards._LARGEST", 64)
        group = Group.open(DictStore())
        group.write(1, blobs, document=document)
        assert group.read(the(group.commit(1, deadline=SECONDS))) == (document, blobs)


def test_buffers_of_any_kind_are_saved():
    group = Group.open(DictStore())
    values = {
        "array": np.arange(6, dtype=np.float64).reshape(2, 3),
        "empty": np.empty((0, 3)),
        "scalar": np.float32(1.5),
        "bytearray": bytearray(b"abc"),
    }
    group.write(1, values, document=None)
    _, blobs = group.read(the(group.commit(1, deadline=SECONDS)))
    assert {name: bytes(value) for name, value in blobs.items()} == {
        name: np.asarray(value).tobytes() if name != "bytearray" else b"abc"
        for name, value in values.items()
    }


@pytest.mark.parametrize(
    ("blobs", "document", "message"),
    [
        pytest.param(
            {"w": np.ones((4, 4))[:, ::2]}, {}, "'w' is no contiguous buffer", id="strided"
        ),
        pytest.param({"w": "text"}, {}, "'w' is no contiguous buffer", id="no-buffer"),
        pytest.param({"": b""}, {}, "needs a name", id="nameless"),
        pytest.param({}, {"loss": float("nan")}, "step 1 cannot be saved", id="no-json"),
    ],
)
def test_what_cannot_be_saved_is_named(blobs, document, message):
    group = Group.open(DictStore())
    with pytest.raises(CheckpointError, match=message):
        group.write(1, blobs, document=document)
    assert group.commit(1, deadline=SECONDS) is None


def test_a_manifest_says_what_the_checkpoint_is():
    store = DictStore()
    group = Group.open(store, incarnation="3.1.2", order=7, code="sha256:c", environment="sha256:e")
    first, second = train(group, 10, 20)
    assert (first.number, first.parent, second.number) == (1, None, 2)
    assert second.parent == first.digest
    assert (second.code, second.environment) == ("sha256:c", "sha256:e")
    assert second.cursor == {"sample": 160}
    assert second.generation == 1
    again = Group.open(store, incarnation="3.1.2", order=8)
    (third,) = train(again, 30)
    assert (third.parent, third.number, third.base) == (second.digest, 3, second.as_base())
    reference = reading.reference("s3://bucket/run/0", third)
    assert reference == {"uri": "s3://bucket/run/0", "step": 30, "digest": third.digest}
    assert len(canonical(reference)) <= 1024


def test_equal_states_have_equal_digests_whenever_they_are_saved():
    stores = [DictStore(), DictStore()]
    (plain,) = train(Group.open(stores[0]), 10)
    train(Group.open(stores[1]), 5)
    (later,) = train(Group.open(stores[1], order=3), 10)
    assert plain.root_digest == later.root_digest
    assert plain.digest != later.digest


def test_a_step_is_saved_once_and_never_an_older_one():
    group = Group.open(DictStore())
    train(group, 10)
    for step in (10, 5):
        with pytest.raises(CheckpointError, match=f"step {step} cannot be saved after step 10"):
            save(group, step)


def test_what_did_not_change_is_not_written_again():
    store = DictStore()
    group = Group.open(store, keep=10)
    blobs = {"frozen": b"f" * (5 << 20), "weights": b"1"}
    save(group, 10, blobs=blobs)
    before = shards_of(store)
    save(group, 20, blobs=blobs | {"weights": b"2"})
    new = shards_of(store) - before
    assert sum(store.size(key) for key in new) < 1000
    after_a_restart = Group.open(store, keep=10)
    save(after_a_restart, 30, blobs=blobs | {"weights": b"3"})
    assert sum(store.size(key) for key in shards_of(store) - before - new) < 1000


def test_equal_blobs_of_all_ranks_lie_in_the_store_once():
    store = DictStore()
    groups = open_group(store, 4)
    same = {"weights": b"w" * (5 << 20)}
    by_ranks(4, lambda rank: save(groups[rank], 10, blobs=same))
    assert sum(store.size(key) for key in shards_of(store)) < 6 << 20


def test_a_rank_does_not_bring_what_another_has_brought():
    """State that all ranks have alike is uploaded once, each bringing a part of it, not once by every rank."""

    class Counting(DictStore):
        brought = 0

        def create(self, key: str, data: Any) -> None:
            pieces = [data] if isinstance(data, bytes | memoryview) else list(data)
            if key.startswith("shards/"):
                self.brought += sum(len(piece) for piece in pieces)
            super().create(key, pieces)

    store = Counting()
    groups = open_group(store, 4)
    same = {f"weights/{n}": bytes([n]) * (5 << 20) for n in range(8)}
    for rank in (3, 2, 1, 0):
        groups[rank].write(10, same, document={})
    assert store.brought < 41 << 20
    manifest = the(groups[0].commit(10, deadline=5))
    assert len({part.state for part in manifest.ranks}) == 1  # whoever brought it
    assert groups[2].read(manifest)[1] == same


def test_several_ranks_need_an_agreement(tmp_path):
    with pytest.raises(CheckpointError, match="needs an agreement"):
        Group.open(str(tmp_path), world=2)


# where a start goes on ----------------------------------------------------------------------------


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


# who may write ------------------------------------------------------------------------------------


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


# saves that fail ----------------------------------------------------------------------------------


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


# what is kept -------------------------------------------------------------------------------------


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
