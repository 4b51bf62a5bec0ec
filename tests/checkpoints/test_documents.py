"""Documents prove that they are whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_training.checkpoints.documents import canonical, seal, unseal
from airflow_training.checkpoints.errors import BadCheckpoint

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
DOCUMENTS = st.dictionaries(
    st.text().filter(lambda name: name not in ("sha256", "hmac")), VALUES, max_size=4
)


@given(DOCUMENTS)
def test_what_was_sealed_is_read_back(document):
    assert unseal(seal(document), what="it") == document


@given(DOCUMENTS)
def test_the_order_of_keys_does_not_show(document):
    assert seal(document) == seal(dict(reversed(document.items())))


def test_every_changed_bit_is_found():
    content = seal({"step": 10, "at": 1.5e300, "name": "é", "ranks": [{"a": 1}, {"b": None}]})
    for place in range(len(content) * 8):
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        with pytest.raises(BadCheckpoint, match="it"):
            unseal(bytes(damaged), what="it")


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{}", id="no-digest"),
        pytest.param(b"[]", id="no-object"),
        pytest.param(b"\xff\xfe", id="no-text"),
        pytest.param(b"[" * 100_000, id="nested-without-end"),
        pytest.param(seal({"a": 1})[:-1], id="truncated"),
        pytest.param(seal({"a": 1}) + b"\n", id="a-byte-more"),
        pytest.param(
            seal({"a": 1, "b": 2}).replace(b'"a":1,"b":2', b'"b":2,"a":1'), id="reordered"
        ),
        pytest.param(b'{"a":NaN,"sha256":"x"}', id="no-number"),
    ],
)
def test_what_is_no_sealed_document_is_refused(content):
    with pytest.raises(BadCheckpoint):
        unseal(content, what="it")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, b"raw"])
def test_only_json_has_a_canonical_form(value):
    with pytest.raises((ValueError, TypeError)):
        canonical({"value": value})


def test_with_a_key_only_documents_signed_with_it_are_read(monkeypatch):
    unsigned = seal({"step": 1})
    monkeypatch.setenv("TRAINING_CHECKPOINT_KEY", "one")
    signed = seal({"step": 1})
    assert unseal(signed, what="it") == {"step": 1}
    with pytest.raises(BadCheckpoint, match="TRAINING_CHECKPOINT_KEY"):
        unseal(unsigned, what="it")
    monkeypatch.setenv("TRAINING_CHECKPOINT_KEY", "another")
    with pytest.raises(BadCheckpoint, match="TRAINING_CHECKPOINT_KEY"):
        unseal(signed, what="it")


def test_without_a_key_signed_documents_can_be_read(monkeypatch):
    monkeypatch.setenv("TRAINING_CHECKPOINT_KEY", "one")
    signed = seal({"step": 1})
    monkeypatch.delenv("TRAINING_CHECKPOINT_KEY")
    assert unseal(signed, what="it") == {"step": 1}
