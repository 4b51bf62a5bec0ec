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
    ActivePhase,
    AttemptEnd,
    AttemptHost,
    Event,
    FinalPhase,
    InstanceEntry,
    JobEntry,
    KeptInstance,
    PendingPhase,
    RestartRecord,
    RoleEntry,
)
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob, ResolvedRole
from airflow_training.documents.resolved_blocks import ResolvedPlan
from airflow_training.state.codec import (
    canonical,
    compact_json,
    from_json,
    many_from_json,
    to_json,
)
from tests.examples import examples

plain_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


plain_documents = st.fixed_dictionaries({}, optional={"id": st.text(), "model": plain_json})


def build(cls: type) -> st.SearchStrategy[Any]:
    """Return a strategy that fills every field of a dataclass by its annotation."""
    hints = typing.get_type_hints(cls)
    fields = {each.name: by_hint(hints[each.name]) for each in dataclasses.fields(cls)}
    return st.builds(cls, **fields)


def by_hint(hint: Any) -> st.SearchStrategy[Any]:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is ResolvedPlan:  # a document, and what is read from it
        return plain_documents.map(ResolvedPlan.from_document)
    if dataclasses.is_dataclass(hint):
        return build(typing.cast("type", hint))
    if hint is float:
        return st.floats(allow_nan=False)
    if hint is Any:
        return plain_json
    if origin is tuple and args[1:] != (...,):
        return st.tuples(*map(by_hint, args))
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
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[*HealthCheck])
def test_every_stored_dataclass_comes_back_equal(cls: type, data: st.DataObject):
    value = data.draw(build(cls))
    assert from_json(cls, to_json(value)) == value
    assert from_json(cls, compact_json(value)) == value
    # also what equality leaves out
    assert compact_json(from_json(cls, compact_json(value))) == compact_json(value)


@given(st.lists(build(InstanceEntry), max_size=5))
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[*HealthCheck])
def test_many_texts_are_read_like_each_alone(entries: list[InstanceEntry]):
    assert many_from_json(InstanceEntry, map(compact_json, entries)) == entries


def test_defaults_take_no_room():
    assert json.loads(compact_json(InstanceEntry(key=InstanceKey("worker", 0)))) == {
        "role": "worker",
        "index": 0,
    }


def test_an_instance_that_is_nobody_comes_back_too():
    """A job that ended with no instance to blame keeps none: its run could not be read any more."""
    entry = JobEntry(kept=KeptInstance(state="impossible", why="no instance failed first"))
    assert from_json(JobEntry, to_json(entry)) == entry


def test_the_key_of_an_instance_says_its_name_again_when_it_is_read():
    key = InstanceKey("worker", 1)
    text = compact_json(InstanceEntry(key=key))
    assert text == '{"role":"worker","index":1}'
    assert str(from_json(InstanceEntry, text).key) == "worker-1"


def test_a_field_of_a_newer_version_is_ignored():
    text = '{"role": "worker", "index": 0, "colour": "green"}'
    assert from_json(InstanceEntry, text) == InstanceEntry(key=InstanceKey("worker", 0))


WRITTEN_BY_0_1 = [
    (InstanceEntry, '{"role":"worker","index":3,"wanted":true,"generation":5}'),
    (
        InstanceEntry,
        '{"role":"worker","index":3,"wanted":true,"epoch":1,"job_attempt":2,"attempt":4,"generation":5,'
        '"uid":"worker-3-4","state":"running","restarts":1,"released":true,"address_live":true,'
        '"ready":true,"was_running":true,"node":"a","address":"worker-3:1","wanted_at":10.0,'
        '"started_at":11.0,"last_transition_at":11.0,"avoid_nodes":["b"]}',
    ),
    (
        InstanceEntry,
        '{"role":"worker","index":3,"had":{"boot_id":"b","devices":["A100","H100"],"memory_bytes":7,"at":9.5}}',
    ),
    (
        RestartRecord,
        '{"at":9.0,"failure_class":"user","role":"worker","index":3,"scope":"Instance","rule":"r","attempt":3}',
    ),
    (
        RestartRecord,
        '{"at":9.0,"failure_class":"infrastructure","role":"w","index":3,"scope":"Job","rule":"r","explained":"peers"}',
    ),
    (
        RoleEntry,
        '{"role":"w","replicas":3,"waited":{"m/Running":{"seconds":1.5,"at":3.0,"runs":true,"began_at":1.5}},'
        '"fewer":{"full":4,"why":"no place","since":2.0,"tries":1,"try_at":9.0}}',
    ),
    (
        JobEntry,
        '{"ran":{"seconds":7.0,"at":9.0,"began_at":1.0},"trained":{"seconds":5.0,"at":9.0,"began_at":3.0},'
        '"recovery":{"order":1,"highest_step":20,"at_most":10,"exactly":true,"turned_at":8.0}}',
    ),
    (
        JobEntry,
        '{"state":"Failed","reason":"MaxRestartsExceeded","root_cause":{"id":"python-exception",'
        '"category":"user-error","retryable":"no","confidence":0.7,"rank":1,"file":"worker-1","line":9,'
        '"offset":512,"evidence":"KeyError: 7","advice":"Look there","role":"worker","index":1,"attempt":2,'
        '"reason":"Error","message":"","at":11.5,"exit_code":1,"signal":null},"limit":"maxRestarts 0 is used up"}',
    ),
    (
        InstanceEntry,
        '{"role":"w","index":0,"wanted":true,"wanted_at":1.0,"refused_since":2.0,"refusal_told_at":3.0,'
        '"told_of_node":["NodeUnfit"]}',
    ),
    (
        RoleEntry,
        '{"role":"w","replicas":3,"told":{"reason":"Unschedulable","message":"no place","at":9.0}}',
    ),
    (JobEntry, '{"state":"Running","unreachable_since":7.0,"unreachable_told":true}'),
    (  # another instance than the one whose end was seen first: how it ended is not known
        JobEntry,
        '{"state":"Failed","root_cause":{"id":"nan-loss","category":"user-error","retryable":"no",'
        '"confidence":0.9,"rank":null,"file":"worker-1","line":null,"offset":null,"evidence":"loss is nan",'
        '"advice":"Smaller steps","role":"worker","index":1,"attempt":0,"reason":null,"message":null,'
        '"at":null,"exit_code":null,"signal":null}}',
    ),
]


@pytest.mark.parametrize(("cls", "text"), WRITTEN_BY_0_1)
def test_the_stored_form_of_ledger_entries_stays(cls: type, text: str):
    assert json.loads(compact_json(from_json(cls, text))) == json.loads(text)


def test_a_root_cause_keeps_the_order_of_its_fields_and_ignores_what_a_newer_version_wrote():
    """`status` prints them in this order."""
    text = next(text for cls, text in WRITTEN_BY_0_1 if cls is JobEntry and "root_cause" in text)
    assert compact_json(from_json(JobEntry, text)) == text
    newer = json.loads(text)
    newer["root_cause"]["colour"] = "green"
    assert compact_json(from_json(JobEntry, json.dumps(newer))) == text


@pytest.mark.parametrize(
    ("text", "phase"),
    [
        pytest.param(
            '{"role":"w","index":0,"attempt":1,"state":"terminating","replace_at":9.0,"deadline_at":7.0,'
            '"parting":"AtOnce","stays":"w-0-0","stays_until":8.0}',
            PendingPhase(replace_at=9.0, deadline_at=7.0),
            id="pending",
        ),
        pytest.param(
            '{"role":"w","index":0,"wanted":true,"state":"unknown","released":true,"wanted_at":1.0,"deadline_at":7.0}',
            ActivePhase(released=True, desired_since=1.0, deadline_at=7.0),
            id="active",
        ),
        pytest.param(
            '{"role":"w","index":0,"state":"failed","exit_code":3,"signal":9,"failure_class":"user","final":true,'
            '"released":true,"was_running":true,"wanted_at":1.0,"started_at":2.0,"finished_at":3.0}',
            FinalPhase(end=AttemptEnd(3, 9, "user")),
            id="final, with what means nothing any more",
        ),
    ],
)
def test_a_phase_is_told_by_the_fields_that_0_1_wrote(text: str, phase: Any):
    read = from_json(InstanceEntry, text)
    assert read.phase == phase
    if "parting" in text:
        assert (read.deletion_mode, read.host) == ("AtOnce", AttemptHost("w-0-0", 8.0))
    gone = {} if not phase.final else {"released": True, "wanted_at": 1.0}
    assert {**json.loads(compact_json(read)), **gone} == json.loads(text)


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
