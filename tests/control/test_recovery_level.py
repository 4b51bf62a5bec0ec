"""How much is made anew: the cheapest that is enough, by two published tables."""

from __future__ import annotations

import itertools
import json
from typing import get_args

import pytest

from airflow_training.control.environment import (
    Condition,
    EnvironmentState,
    environment_state,
    read_records,
)
from airflow_training.control.reason_facts import LEVELS
from airflow_training.control.recovery_level import (
    LEVELS_OF,
    recovery_level,
)
from airflow_training.documents.resolved import FailureClass
from airflow_training.runtimes.kubernetes.reasons import REASONS

ALL = frozenset(LEVELS)
CLASSES = get_args(FailureClass)


def level(failure_class, condition="healthy", *, reason="Error", can=ALL):
    state = EnvironmentState(condition=condition)
    return recovery_level(failure_class, reason, REASONS.get(reason), state, can).level


def test_the_table_knows_every_class_and_every_condition():
    assert LEVELS_OF.keys() == set(CLASSES)
    for row in LEVELS_OF.values():
        assert row.keys() == set(get_args(Condition))


@pytest.mark.parametrize(
    ("failure_class", "condition"), [*itertools.product(CLASSES, get_args(Condition))]
)
def test_an_environment_that_got_worse_is_never_kept_more_of(failure_class, condition):
    healthy = LEVELS.index(level(failure_class))
    assert LEVELS.index(level(failure_class, condition)) >= healthy


@pytest.mark.parametrize(
    ("failure_class", "condition", "reason", "expected"),
    [
        pytest.param("infrastructure", "healthy", "Error", "process", id="killed-in-a-good-place"),
        pytest.param("user", "healthy", "Error", "process", id="a-bug"),
        pytest.param("resource", "outOfMemory", "OOMKilled", "container", id="out-of-memory"),
        pytest.param("user", "deviceLost", "Error", "node", id="a-broken-gpu-looks-like-a-bug"),
        pytest.param("infrastructure", "healthy", "NodeLost", "node", id="the-reason-knows-more"),
        pytest.param("preemption", "healthy", "Preempted", "pod", id="the-place-was-taken"),
        pytest.param("unknown", "unknown", "Error", "pod", id="nobody-knows"),
    ],
)
def test_the_cheapest_level_that_is_enough(failure_class, condition, reason, expected):
    assert level(failure_class, condition, reason=reason) == expected


@pytest.mark.parametrize(
    ("can", "expected"),
    [
        pytest.param({"process", "container", "pod"}, "container", id="as-wanted"),
        pytest.param({"process", "pod", "job"}, "pod", id="the-next-dearer"),
        pytest.param({"process"}, "job", id="the-whole-job-is-always-possible"),
        pytest.param(set(), "job", id="nothing-else-is"),
    ],
)
def test_what_a_runtime_cannot_do_is_done_a_level_higher(can, expected):
    assert level("resource", can=can) == expected


def test_the_answer_says_why():
    state = EnvironmentState(condition="deviceLost", why="device 0: error")
    found = recovery_level("user", "Error", None, state, {"pod"})
    assert found.why == (
        "class user, environment deviceLost (device 0: error); a new node alone is not possible here"
    )
    assert recovery_level("user", "Vanished", REASONS["Vanished"], None, ALL).why.endswith(
        "Vanished needs at least a new pod"
    )


# records -----------------------------------------------------------------------------------------
def record(at=100.0, **parts):
    return {"at": at, "on": "interval", **parts}


GIB = 1 << 30


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        pytest.param([], "unknown", id="none"),
        pytest.param([record()], "healthy", id="says-nothing-bad"),
        pytest.param([record(60.0)], "unknown", id="too-old"),
        pytest.param([record(60.0, on="exit")], "healthy", id="the-end-is-never-too-old"),
        pytest.param(
            [record(memory={"limit_bytes": 100, "used_bytes": 98})], "strained", id="memory-used-up"
        ),
        pytest.param(
            [record(pressure={"memory": {"full10": 30.0}})], "strained", id="waits-for-memory"
        ),
        pytest.param(
            [record(memory={"oom_kills": 4}), record(memory={"oom_kills": 5})],
            "outOfMemory",
            id="a-kill-since-the-first-record",
        ),
        pytest.param(
            [record(memory={"oom_kills": 4}), record(memory={"oom_kills": 4})],
            "healthy",
            id="a-kill-of-before",
        ),
        pytest.param([record(exit={"reason": "OOMKilled"})], "outOfMemory", id="the-exit-says-so"),
        pytest.param([record(disk={"free_bytes": 1 << 20})], "diskFull", id="no-room"),
        pytest.param(
            [record(disk={"free_bytes": GIB, "free_files": 0})], "diskFull", id="no-inodes"
        ),
        pytest.param(
            [record(devices=[{"id": "0", "error": "2 uncorrected errors"}])],
            "deviceLost",
            id="a-device-with-an-error",
        ),
        pytest.param(
            [record(devices=[{"id": "0"}, {"id": "1"}]), record(devices=[{"id": "1"}])],
            "deviceLost",
            id="a-device-less",
        ),
        pytest.param([record(10.0, disk={"free_bytes": 0})], "diskFull", id="a-full-disk-stays"),
        pytest.param(
            [{"at": "x", "on": "exit", "memory": 3, "devices": "y", "disk": None}],
            "healthy",
            id="nonsense-says-nothing",
        ),
    ],
)
def test_records_say_how_the_environment_was(records, expected):
    assert environment_state(records, at=105.0).condition == expected


def test_the_software_of_an_instance_is_no_record_of_a_moment():
    moment = record(memory={"oom_kills": 4})
    assert read_records([json.dumps({"on": "software"}), json.dumps(moment)]) == [moment]
