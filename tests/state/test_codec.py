"""What is stored comes back equal."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Mapping
from datetime import date
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_training.control.model import (
    Event,
    InstanceEntry,
    JobEntry,
    RestartRecord,
    RoleEntry,
)
from airflow_training.spec.resolved import ResolvedJob, ResolvedRole
from airflow_training.state.codec import (
    canonical,
    compact_json,
    from_json,
    many_from_json,
    to_json,
)

plain_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def build(cls: type) -> st.SearchStrategy[Any]:
    """Return a strategy that fills every field of a dataclass by its annotation."""
    hints = typing.get_type_hints(cls)
    fields = {each.name: by_hint(hints[each.name]) for each in dataclasses.fields(cls)}
    return st.builds(cls, **fields)


def by_hint(hint: Any) -> st.SearchStrategy[Any]:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return build(typing.cast("type", hint))
    if hint is float:
        return st.floats(allow_nan=False)
    if hint is Any:
        return plain_json
    if origin is tuple:
        return st.lists(by_hint(args[0]), max_size=3).map(tuple)
    if origin is Mapping:
        return st.dictionaries(st.text(), by_hint(args[1]), max_size=3)
    if origin is typing.Literal:
        return st.sampled_from(args)
    if args:
        return st.one_of(*map(by_hint, args))
    return st.from_type(hint)


STORED = [InstanceEntry, RoleEntry, JobEntry, RestartRecord, Event, ResolvedRole, ResolvedJob]


@pytest.mark.parametrize("cls", STORED)
@given(data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[*HealthCheck])
def test_every_stored_dataclass_comes_back_equal(cls: type, data: st.DataObject):
    value = data.draw(build(cls))
    assert from_json(cls, to_json(value)) == value
    assert from_json(cls, compact_json(value)) == value


@given(st.lists(build(InstanceEntry), max_size=5))
@settings(max_examples=40, deadline=None, suppress_health_check=[*HealthCheck])
def test_many_texts_are_read_like_each_alone(entries: list[InstanceEntry]):
    assert many_from_json(InstanceEntry, map(compact_json, entries)) == entries


def test_defaults_take_no_room():
    assert json.loads(compact_json(InstanceEntry(role="worker", index=0))) == {
        "role": "worker",
        "index": 0,
    }


def test_a_field_of_a_newer_version_is_ignored():
    text = '{"role": "worker", "index": 0, "colour": "green"}'
    assert from_json(InstanceEntry, text) == InstanceEntry(role="worker", index=0)


def test_documents_may_hold_dates_sets_and_read_only_mappings():
    document = MappingProxyType({"start": date(2026, 1, 1), "tags": {"b", "a"}, "pair": (1, 2)})
    stored = from_json(ResolvedJob, to_json(ResolvedJob(name="digits", document=document)))
    assert stored.document == {"start": "2026-01-01", "tags": ["a", "b"], "pair": [1, 2]}


def test_what_has_no_json_form_is_refused():
    with pytest.raises(TypeError, match="object cannot be stored as JSON"):
        to_json(ResolvedJob(name="digits", document={"what": object()}))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param({"a": 1, "b": 2}, {"b": 2, "a": 1}, True, id="order-of-keys"),
        pytest.param({1: "x", "a": 2}, {"a": 2, "1": "x"}, True, id="keys-that-are-no-strings"),
        pytest.param({"a": [1, 2]}, {"a": [2, 1]}, False, id="order-of-items"),
    ],
)
def test_canonical_text_depends_on_the_value_only(one: Any, other: Any, same: bool):
    assert (canonical(one) == canonical(other)) is same
