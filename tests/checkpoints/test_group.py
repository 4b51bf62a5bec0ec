"""A group of processes writes checkpoints together, and finds them again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_training.checkpoints import reading
from airflow_training.checkpoints.documents import canonical
from airflow_training.checkpoints.errors import CheckpointError
from airflow_training.checkpoints.group import Group
from tests.checkpoints.groups import (
    SECONDS,
    assert_is_state_of,
    by_ranks,
    open_group,
    save,
    shards_of,
    the,
    train,
    train_together,
)
from tests.checkpoints.stores import DictStore
from tests.examples import examples


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
