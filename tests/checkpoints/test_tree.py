"""State as a tree: what goes in comes out, bit for bit, and nothing is pickled unasked."""

from __future__ import annotations

import json
import math
import random
from collections import Counter, OrderedDict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from airflow_training.checkpoints import tree
from airflow_training.checkpoints.errors import CheckpointError
from airflow_training.checkpoints.tree import Arena, Shard, decode, differences, encode, outline


def through_json(state):
    document, blobs = encode(state)
    kept = {name: bytes(blob) for name, blob in blobs.items()}
    return decode(json.loads(json.dumps(document, sort_keys=True, allow_nan=False)), kept)


@pytest.mark.parametrize(
    "state",
    [
        pytest.param({"b": 1, "a": 2}, id="order-of-keys"),
        pytest.param({1: "a", None: "b", False: "c", 2.5: "d"}, id="keys-that-are-not-text"),
        pytest.param({"$tensor": 1, "x": {"$dict": []}}, id="keys-that-look-like-marks"),
        pytest.param([True, 1, 1.0, "1", None], id="types-of-equal-values"),
        pytest.param((1, (2, [3])), id="tuples"),
        pytest.param([math.inf, -math.inf, -0.0, 1e-320, 2**200], id="odd-numbers"),
        pytest.param([b"", b"abc", bytearray(b"x")], id="bytes"),
        pytest.param([{1, 3, 2}, frozenset({"a"})], id="sets"),
        pytest.param(OrderedDict(b=1, a=2), id="ordered"),
        pytest.param(Counter({30: 1, 60: 2}), id="milestones-of-a-schedule"),
        pytest.param(1 - 2j, id="complex"),
        pytest.param(random.getstate(), id="state-of-python"),
        pytest.param(np.random.get_state(), id="state-of-numpy"),
        pytest.param(np.arange(6.0).reshape(2, 3), id="array"),
        pytest.param(np.arange(6).reshape(2, 3).T, id="transposed-array"),
        pytest.param(np.arange(8)[::2], id="array-with-gaps"),
        pytest.param([np.float32(1.5), np.int64(3), np.bool_(True)], id="numpy-scalars"),
        pytest.param(np.array(["ab", "c"]), id="array-of-text"),
        pytest.param(np.array(["2020-01-01"], dtype="M8[D]"), id="array-of-dates"),
        pytest.param(np.zeros((0, 3)), id="empty-array"),
        pytest.param(torch.tensor(3), id="tensor-of-one"),
        pytest.param(torch.empty(0, 3), id="empty-tensor"),
        pytest.param(torch.tensor([True, False]), id="bool-tensor"),
        pytest.param(torch.randn(3).bfloat16(), id="bfloat16"),
        pytest.param(torch.randn(4).to(torch.float8_e4m3fn), id="float8"),
        pytest.param(torch.randn(3, dtype=torch.complex64).conj(), id="conjugated"),
        pytest.param(torch.randn(8, 8)[::2, 1:], id="tensor-with-gaps"),
        pytest.param(torch.randn(4).expand(3, 4), id="expanded"),
        pytest.param(torch.nn.Parameter(torch.randn(2)), id="parameter"),
        pytest.param(Shard(torch.randn(2, 3), (8, 3), (4, 0)), id="part-of-a-tensor"),
    ],
)
def test_a_state_comes_back_as_it_was(state):
    assert list(differences({"state": state}, {"state": through_json({"s": state})["s"]})) == []


def test_strides_come_back_too():
    images = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    back = through_json(images)
    assert back.stride() == images.stride()
    assert back.is_contiguous(memory_format=torch.channels_last)


def test_what_comes_back_is_not_a_number_where_it_was_none():
    assert math.isnan(through_json([math.nan])[0])


_SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
)
_ARRAYS = st.lists(st.integers(-9, 9), max_size=5).map(lambda v: np.array(v, dtype=np.int16))
_LEAVES = _SCALARS | st.binary(max_size=9) | _ARRAYS | _ARRAYS.map(torch.from_numpy)


@given(
    st.recursive(
        _LEAVES,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=3)
            | st.tuples(inner, inner)
        ),
        max_leaves=12,
    )
)
def test_any_tree_comes_back(state):
    assert list(differences(state, through_json(state))) == []


class Own:
    pass


@pytest.mark.parametrize(
    ("state", "said"),
    [
        pytest.param(
            {"a": {"b": [Own()]}}, "a.b.0: a .*Own has no form without pickle", id="object"
        ),
        pytest.param({"a": lambda: None}, "a: a builtins.function", id="function"),
        pytest.param({"a": {(1, 2): 3}}, r"a: a key of type tuple: \(1, 2\)", id="key"),
        pytest.param({"a": np.array([Own()])}, "a: an array of object", id="object-array"),
        pytest.param({"a": {1, "b"}}, "a: a set of things that have no order", id="set"),
        pytest.param({"a": torch.zeros(2).to_sparse()}, "a: a tensor that is sparse", id="sparse"),
        pytest.param({"a": torch.zeros(2, device="meta")}, "without data", id="meta"),
    ],
)
def test_what_has_no_form_is_named_with_its_place(state, said):
    with pytest.raises(CheckpointError, match=said):
        outline(state)


def test_a_tree_that_contains_itself_is_refused():
    state: dict[str, Any] = {}
    state["again"] = state
    with pytest.raises(CheckpointError, match="nested deeper"):
        outline(state)


def test_pickle_is_used_where_it_is_allowed_on_both_sides_only(caplog):
    document, blobs = encode({"a": Own()}, allow_pickle=True)
    with pytest.raises(CheckpointError, match="a: was pickled, and loading it may run any code"):
        decode(document, blobs)
    assert isinstance(decode(document, blobs, allow_pickle=True)["a"], Own)
    assert "a: Own is pickled, as allowed" in caplog.messages
    assert "state.a: is unpickled, as allowed" in caplog.messages


def test_bytes_that_are_missing_are_an_error():
    document, blobs = encode({"a": torch.ones(3)})
    with pytest.raises(CheckpointError, match=r"a: its bytes are missing in a/0"):
        decode(document, {name: blob[:-1] for name, blob in blobs.items()})


def test_a_copy_does_not_change_with_the_state():
    weights = torch.ones(5)
    document, blobs = encode({"w": weights})
    weights.zero_()
    assert decode(document, blobs)["w"].sum() == 5


def test_tied_weights_are_stored_once():
    table = torch.randn(1000)
    state = {"model": {"in": table, "out": table}}
    assert outline(state).size < 2 * table.nbytes
    assert torch.equal(through_json(state)["model"]["out"], table)


def test_large_leaves_are_blobs_of_their_own_and_small_ones_of_a_section_share_one():
    large = torch.zeros(tree.LARGE // 4)
    taken = outline({"model": {"a": large, "b": torch.ones(2), "c": torch.ones(2)}, "rng": b"123"})
    assert list(taken.blobs) == ["model/0", "model/1", "rng/2"]


def test_the_memory_of_a_copy_is_used_again():
    arena = Arena()
    state = {"w": torch.randn(100_000)}
    arena.copy(outline(state))
    held = arena.size
    for _ in range(3):
        arena.copy(outline(state))
    assert arena.size == held < state["w"].nbytes + 4096


def test_differences_are_named():
    one = {"model": {"w": torch.ones(2), "b": 1}, "rng": (1, 2), "step": 1}
    other = {"model": {"w": torch.zeros(2), "b": 1}, "rng": (1, 3), "step": 1.0, "more": None}
    assert list(differences(one, other)) == ["model.w", "rng.1", "step", "more"]
