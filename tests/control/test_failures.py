"""What class a failure has, which rule it meets, and what the exit-code tables say of it."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_training.control.attempts import AttemptId
from airflow_training.control.failures import (
    Failure,
    classify,
    exit_code_says,
    matching_rule,
)
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ExitCodeTable
from airflow_training.frameworks.exit_codes import TABLES
from airflow_training.runtimes.kubernetes.reasons import REASONS
from tests.builders import rule


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        # the pod's reason comes first
        ({"reason": "OOMKilled", "signal": 9}, "resource"),
        ({"reason": "OOMKilled", "exit_code": 137, "disrupted": True}, "resource"),
        ({"reason": "Evicted", "exit_code": 1}, "resource"),
        ({"reason": "Evicted", "disrupted": True}, "resource"),
        ({"reason": "Preempted", "exit_code": 143}, "preemption"),
        ({"reason": "Error", "exit_code": 1, "disrupted": True}, "preemption"),
        ({"reason": "NodeLost"}, "infrastructure"),
        ({"reason": "CreateFailed"}, "infrastructure"),
        ({"reason": "Vanished"}, "infrastructure"),
        ({"reason": "UnknownTooLong"}, "infrastructure"),
        ({"reason": "ImagePullBackOff"}, "user"),
        ({"reason": "CreateContainerConfigError"}, "user"),
        # then the signal, also where a shell has turned it into an exit code
        ({"reason": "Error", "signal": 9}, "infrastructure"),
        ({"signal": 15, "exit_code": 1}, "infrastructure"),
        ({"signal": 11}, "user"),
        ({"signal": 6}, "user"),
        ({"signal": 2}, "user"),
        ({"signal": 30}, "unknown"),
        ({"exit_code": 137}, "infrastructure"),
        ({"exit_code": 139}, "user"),
        ({"exit_code": 143}, "infrastructure"),
        # then the exit code
        ({"reason": "Error", "exit_code": 1}, "user"),
        ({"exit_code": 2}, "user"),
        ({"exit_code": 127}, "user"),
        ({"exit_code": 128}, "user"),
        ({"exit_code": 255}, "unknown"),
        ({}, "unknown"),
    ],
)
def test_the_class_of_a_failure(facts, expected):
    given = {"disrupted": False, "signal": None, "exit_code": None} | facts
    assert classify(known=REASONS.get(given.pop("reason", "")), **given) == expected


def failure(**facts: Any) -> Failure:
    known = REASONS.get(facts.get("reason", ""))
    return Failure(
        key=InstanceKey("worker", 0), attempt_id=AttemptId(attempt=0), at=1.0, known=known, **facts
    )


@pytest.mark.parametrize(
    ("table", "facts", "expected"),
    [
        ("default", {"exit_code": 1, "failure_class": "user"}, "permanent"),
        ("default", {"exit_code": 127, "failure_class": "user"}, "permanent"),
        ("default", {"exit_code": 137, "failure_class": "infrastructure"}, "retryable"),
        ("default", {"signal": 15, "failure_class": "infrastructure"}, "retryable"),
        ("default", {"exit_code": 42, "failure_class": "user"}, "permanent"),
        ("default", {"exit_code": 250, "failure_class": "unknown"}, "retryable"),
        ("kubeflow", {"exit_code": 1, "failure_class": "user"}, "permanent"),
        ("kubeflow", {"exit_code": 126, "failure_class": "user"}, "permanent"),
        ("kubeflow", {"exit_code": 130, "failure_class": "user"}, "retryable"),
        ("kubeflow", {"exit_code": 138, "failure_class": "user"}, "retryable"),
        # exitCode >= 128, whatever the signal and whatever we think of its class
        ("kubeflow", {"exit_code": 3, "failure_class": "unknown"}, "permanent"),
        ("kubeflow", {"exit_code": 127, "failure_class": "user"}, "permanent"),
        ("kubeflow", {"exit_code": 128, "failure_class": "user"}, "retryable"),
        ("kubeflow", {"exit_code": 139, "failure_class": "user"}, "retryable"),
        ("kubeflow", {"signal": 11, "failure_class": "user"}, "retryable"),
        ("kubeflow", {"exit_code": 255, "failure_class": "unknown"}, "retryable"),
        ("kubedl", {"exit_code": 128, "failure_class": "user"}, "permanent"),
        ("kubedl", {"exit_code": 138, "failure_class": "user"}, "retryable"),
        ("kubedl", {"exit_code": 139, "failure_class": "user"}, "permanent"),
        ("kubedl", {"exit_code": 129, "failure_class": "infrastructure"}, "permanent"),
        ("kubedl", {"exit_code": 255, "failure_class": "unknown"}, "permanent"),
        (
            "kubedl",
            {"reason": "OOMKilled", "exit_code": 1, "failure_class": "resource"},
            "retryable",
        ),
        ("kubedl", {"exit_code": 143, "failure_class": "infrastructure"}, "retryable"),
        # the platform's fault comes before the exit code it left behind
        ("default", {"exit_code": 1, "failure_class": "preemption"}, "retryable"),
        (
            "default",
            {"exit_code": 1, "reason": "NodeLost", "failure_class": "infrastructure"},
            "retryable",
        ),
        ("default", {"reason": "ErrImagePull", "failure_class": "user"}, "permanent"),
        (
            "default",
            {"reason": "OOMKilled", "exit_code": 1, "failure_class": "resource"},
            "retryable",
        ),
    ],
)
def test_what_a_named_table_says(table, facts, expected):
    assert exit_code_says(TABLES[table], failure(**facts)) == expected


def test_a_table_that_only_has_a_name_is_the_named_one():
    known = failure(exit_code=1, failure_class="unknown")
    assert exit_code_says(ExitCodeTable(name="kubedl"), known) == "permanent"


def test_a_job_brings_its_own_table():
    table = ExitCodeTable(name="custom", retryable=(3,), permanent=(137,))
    assert exit_code_says(table, failure(exit_code=3, failure_class="user")) == "retryable"
    killed = failure(exit_code=137, failure_class="infrastructure")
    assert exit_code_says(table, killed) == "permanent"


@pytest.mark.parametrize(
    ("criteria", "expected"),
    [
        ({}, True),
        ({"on_classes": ("user",)}, True),
        ({"on_classes": ("preemption", "resource")}, False),
        ({"on_reasons": ("Error",)}, True),
        ({"on_reasons": ("OOMKilled",)}, False),
        ({"on_exit_codes": (3, 4)}, True),
        ({"on_exit_codes": (5,)}, False),
        ({"on_exit_codes": (5,), "exit_code_operator": "NotIn"}, True),
        ({"on_exit_codes": (3,), "exit_code_operator": "NotIn"}, False),
        ({"on_message_pattern": "lost .* peer"}, True),
        ({"on_message_pattern": "^peer"}, False),
        ({"target_roles": ("worker",)}, True),
        ({"target_roles": ("master",)}, False),
        ({"on_classes": ("user",), "on_reasons": ("OOMKilled",)}, False),
    ],
)
def test_a_rule_matches_when_all_its_criteria_hold(criteria, expected):
    known = failure(
        exit_code=3, reason="Error", message="we lost the last peer", failure_class="user"
    )
    found = matching_rule((rule("FailJob", **criteria),), known)
    assert (found is not None) is expected


def test_exit_code_criteria_read_signals_as_shells_do_and_never_match_without_a_code():
    codes = rule("FailJob", on_exit_codes=(143,))
    others = rule("FailJob", on_exit_codes=(1,), exit_code_operator="NotIn")
    assert matching_rule((codes,), failure(signal=15)) is codes
    assert matching_rule((codes, others), failure(reason="Vanished")) is None


def test_the_first_matching_rule_wins():
    first, second = rule("Ignore", "first"), rule("FailJob", "second")
    assert matching_rule((first, second), failure(exit_code=1)) is first
