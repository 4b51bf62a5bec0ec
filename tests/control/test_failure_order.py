"""Whom the budget is charged to: who failed first in causal order, and who only lost it never."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_training.control import reasons
from airflow_training.control.attempts import AttemptId, AttemptKey
from airflow_training.control.causes import DiagnosedCause
from airflow_training.control.observations import InstanceDiagnosis
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ExitCodeTable
from tests.builders import Bench, job, role, rule

LOST = {
    "id": "peer-connection-lost",
    "category": "infrastructure",
    "retryable": "yes",
    "confidence": 0.8,
}
MINE = {
    "id": "python-exception",
    "category": "user-error",
    "retryable": "no",
    "confidence": 0.45,
}
OOM = {
    "id": "cuda-out-of-memory",
    "category": "resource",
    "retryable": "no",
    "confidence": 0.95,
}
AWAY = {"id": "file-not-found", "category": "data", "retryable": "no", "confidence": 0.6}


def told(index: int, cause: dict[str, Any], at: float = 1000.0, **facts: Any) -> InstanceDiagnosis:
    log: dict[str, Any] = {
        "file": f"worker-{index}",
        "line": 9,
        "rank": index,
        "evidence": "Boom: 1",
    }
    return replace(
        InstanceDiagnosis(
            key=InstanceKey("worker", index),
            attempt_id=AttemptId(),
            cause=DiagnosedCause(**log | {"advice": "Look there"} | cause),
            exit_code=1,
            finished_at=at,
        ),
        **facts,
    )


def group(scope: str = "Instance", **fields: Any) -> Bench:
    of_role: dict[str, Any] = {
        key: fields.pop(key) for key in ("backoff_limit", "restart_policy") if key in fields
    }
    if "role_max_restarts" in fields:
        of_role["max_restarts"] = fields.pop("role_max_restarts")
    spec = job(role("worker", 3, **of_role), scope=scope, backoff_initial_seconds=5, **fields)
    return Bench(spec).settle()


def charges(bench: Bench) -> list[tuple[int, str]]:
    return [(each.index, each.failure_class) for each in bench.ledger.job.restarts]


def restarts(bench: Bench) -> list[int]:
    return [bench.of("worker", index).restarts for index in range(3)]


@pytest.mark.parametrize("late", [False, True])
def test_who_lost_the_first_to_fail_gets_its_charge_back_though_it_ended_before(late):
    bench = group()
    bench.diagnoses = [told(0, LOST)]
    bench.end("worker", 0, 1).settle()
    assert charges(bench) == [(0, "infrastructure")]
    bench.later(2)
    mine = told(1, MINE, bench.now)
    bench.diagnoses = [] if late else [mine]
    bench.end("worker", 1, 1).settle()
    bench.diagnoses = [mine]
    bench.settle()
    assert charges(bench) == [(1, "user")]
    assert restarts(bench) == [0, 1, 0]
    (free,) = bench.said(reasons.FAILURE_IS_CONSEQUENCE)
    assert (free.index, "worker-1" in free.message) == (0, True)


def test_it_gets_it_back_also_where_its_own_diagnosis_comes_last():
    bench = group().end("worker", 0, 1).settle()
    bench.later(2)
    bench.diagnoses = [told(1, MINE, bench.now)]
    bench.end("worker", 1, 1).settle()
    assert len(charges(bench)) == 2
    bench.diagnoses = [told(0, LOST)]
    bench.settle()
    assert charges(bench) == [(1, "user")]
    assert restarts(bench) == [0, 1, 0]


@pytest.mark.parametrize(
    "end",
    [
        pytest.param({"exit_code": 137, "reason": "OOMKilled"}, id="out-of-memory"),
        pytest.param({"exit_code": None, "signal": 9}, id="killed"),
        pytest.param({"exit_code": None, "reason": "NodeLost"}, id="no-exit-code"),
        pytest.param({"exit_code": 143, "disrupted": True}, id="preempted"),
    ],
)
def test_what_the_runtime_says_explains_as_well(end):
    bench = group()
    bench.diagnoses = [told(0, LOST)]
    bench.end("worker", 0, 1).settle().later(2)
    bench.end("worker", 1, **end).settle()
    assert [index for index, _ in charges(bench)] == [1]


def test_a_wrong_charge_never_uses_up_the_budget_of_the_right_one():
    bench = group(max_restarts=1)
    bench.diagnoses = [told(0, LOST)]
    bench.end("worker", 0, 1).settle().later(2)
    bench.diagnoses = [told(1, MINE, bench.now)]
    bench.end("worker", 1, 1).settle()
    assert bench.state != "Failed"
    assert charges(bench) == [(1, "user")]


@pytest.mark.parametrize("limit", [{"max_restarts": 0}, {"backoff_limit": 0}])
def test_a_limit_ends_nothing_while_it_is_being_found_out_who_failed(limit):
    bench = group(**limit)
    bench.undiagnosed = {AttemptKey(InstanceKey("worker", 0), 0, 0)}
    bench.end("worker", 0, 1).settle()
    assert bench.state == "Running"
    bench.diagnoses = [told(0, LOST), told(1, MINE)]
    bench.undiagnosed = set()
    bench.end("worker", 1, 1).settle()
    assert bench.ledger.job.message.startswith("worker-1: exit code 1 (python-exception): Boom: 1")


BY_LIMIT = [
    pytest.param({"max_restarts": 1}, id="of-the-job"),
    pytest.param({"role_max_restarts": 1}, id="of-the-role"),
    pytest.param({"window_max_restarts": 1, "window_seconds": 600.0}, id="in-a-window"),
    pytest.param({"max_restarts": 1, "then": "FreshJob", "max_fresh_jobs": 1}, id="fresh-job"),
]


@pytest.mark.parametrize("limit", BY_LIMIT)
def test_a_limit_ends_nothing_while_it_is_being_found_out_whose_the_charges_are(limit):
    bench = group(**limit)
    bench.undiagnosed = {AttemptKey(InstanceKey("worker", 0), 0, 0)}
    bench.end("worker", 0, 1).settle().later(2)
    bench.diagnoses = [told(1, MINE, bench.now)]
    bench.end("worker", 1, 1).settle()
    assert charges(bench) == [(0, "user")]
    bench.undiagnosed, bench.diagnoses = set(), [told(0, LOST), told(1, MINE, bench.now)]
    bench.settle().later(30).settle()
    assert bench.state == "Running"
    assert charges(bench) == [(1, "user")]
    assert [bench.of("worker", index).attempt for index in range(3)] == [1, 1, 0]


@pytest.mark.parametrize("limit", BY_LIMIT[:-1])
def test_a_limit_ends_the_job_once_nothing_is_left_to_find_out(limit):
    bench = group(**limit)
    bench.undiagnosed = {AttemptKey(InstanceKey("worker", 0), 0, 0)}
    bench.end("worker", 0, 1).settle().later(2)
    bench.diagnoses = [told(1, MINE, bench.now)]
    bench.end("worker", 1, 1).settle()
    assert bench.state != "Failed"
    bench.undiagnosed = set()
    bench.settle()
    assert (bench.state, bench.ledger.job.reason) == ("Failed", reasons.MAX_RESTARTS_EXCEEDED)
    assert bench.root_cause.index == 1


@pytest.mark.parametrize("order", [(0, 2), (2, 0)])
def test_who_is_not_diagnosed_yet_does_not_take_what_the_culprit_gets_back(order):
    first, third = order
    bench = group(max_restarts=1)
    bench.undiagnosed = {
        AttemptKey(InstanceKey("worker", first), 0, 0),
        AttemptKey(InstanceKey("worker", third), 0, 0),
    }
    bench.end("worker", first, 1).settle()
    bench.end("worker", third, 1).settle().later(2)
    bench.undiagnosed = {AttemptKey(InstanceKey("worker", third), 0, 0)}
    bench.diagnoses = [told(first, LOST), told(1, MINE, bench.now)]
    bench.end("worker", 1, 1).settle()
    bench.undiagnosed = set()
    bench.diagnoses = [told(third, LOST), told(1, MINE, bench.now)]
    bench.settle().later(30).settle()
    assert bench.state == "Running"
    assert charges(bench) == [(1, "user")]
    assert [bench.of("worker", index).attempt for index in range(3)] == [1, 1, 1]


def test_the_limit_of_one_waits_for_no_charge_of_another():
    spec = job(role("worker", 2, backoff_limit=0), role("other", 1), scope="Instance")
    bench = Bench(spec).settle()
    bench.undiagnosed = {AttemptKey(InstanceKey("other", 0), 0, 0)}
    bench.end("other", 0, 1).end("worker", 1, 1).settle()
    assert (bench.state, bench.ledger.job.reason) == ("Failed", reasons.BACKOFF_LIMIT_EXCEEDED)


def test_what_waits_for_its_diagnosis_keeps_how_it_ended_where_another_ends_the_job():
    bench = group("Job", max_restarts=0)
    bench.undiagnosed = {AttemptKey(InstanceKey("worker", 0), 0, 0)}
    bench.end("worker", 0, 1).end("worker", 1, None, signal=11).settle()
    assert bench.state == "Failed"
    first, second = (bench.of("worker", index) for index in range(2))
    assert (first.state, first.end.exit_code) == ("failed", 1)
    assert (second.state, second.end.signal) == ("failed", 11)


def test_what_waits_for_its_diagnosis_keeps_how_it_ended_where_its_role_is_over():
    bench = group("Instance", backoff_limit=0)
    bench.undiagnosed = {AttemptKey(InstanceKey("worker", 0), 0, 0)}
    bench.end("worker", 0, 1).end("worker", 1, None, signal=11).settle()
    assert bench.state == "Failed"
    assert (bench.of("worker", 0).state, bench.of("worker", 0).end.exit_code) == ("failed", 1)


@pytest.mark.parametrize(
    ("after", "second"),
    [
        pytest.param(90, MINE, id="long-after"),
        pytest.param(2, LOST, id="lost-others-too"),
        pytest.param(2, LOST | {"confidence": 0.1}, id="may-have-lost-others"),
    ],
)
def test_what_does_not_explain_it_excuses_nobody(after, second):
    bench = group()
    bench.diagnoses = [told(0, LOST)]
    bench.end("worker", 0, 1).settle().later(after).settle()
    bench.diagnoses = [told(1, second, bench.now, exit_code=1)]
    bench.end("worker", 1, 1).settle()
    assert (0, "infrastructure") in charges(bench)


def test_who_only_lost_others_is_charged_where_nobody_else_failed():
    bench = group()
    bench.diagnoses = [told(0, LOST)]
    bench.end("worker", 0, 1).settle().later(200).settle()
    assert charges(bench) == [(0, "infrastructure")]


# all of a role or of the job together -------------------------------------------------------------
def lost(cause: dict[str, Any]) -> InstanceDiagnosis:
    return told(0, LOST, origin=told(1, cause))


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("scope", ["Role", "Job"])
def test_a_restart_of_all_is_charged_to_whom_the_diagnosis_names(scope, late):
    bench = group(scope)
    bench.diagnoses = [] if late else [lost(MINE)]
    bench.end("worker", 0, 1).step()
    bench.diagnoses = [lost(MINE)]
    bench.settle().later(6).settle()
    assert charges(bench) == [(1, "user")]
    assert restarts(bench) == [0, 1, 0]
    assert [bench.of("worker", index).attempt for index in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("scope", ["Role", "Job"])
def test_what_the_named_one_needs_first_ends_the_job_in_its_name(scope, late):
    bench = group(scope)
    bench.diagnoses = [] if late else [lost(OOM)]
    bench.end("worker", 0, 1).step()
    bench.diagnoses = [lost(OOM)]
    bench.settle()
    assert (bench.state, bench.ledger.job.reason) == ("Failed", reasons.NOT_RETRYABLE)
    assert bench.ledger.job.message.startswith("worker-1: ")
    assert charges(bench) == []
    assert bench.root_cause.index == 1


def test_the_limit_of_who_lost_others_is_not_used_up():
    bench = group("Job", backoff_limit=1)
    for attempt in range(2):
        first = replace(told(attempt + 1, AWAY), attempt_id=AttemptId(0, attempt, attempt))
        own = replace(lost(AWAY), attempt_id=AttemptId(0, attempt, attempt), origin=first)
        bench.diagnoses = [own]
        bench.end("worker", 0, 1).settle().later(20).settle()
    assert bench.state == "Running"
    assert restarts(bench) == [0, 1, 1]


def test_one_that_is_named_and_has_ended_too_is_judged_once():
    bench = group("Job", max_restarts=9)
    bench.diagnoses = [lost(MINE), told(1, MINE)]
    bench.end("worker", 0, 1).end("worker", 1, 1).settle()
    assert charges(bench) == [(1, "user")]


def test_a_rule_sees_the_class_of_who_failed_first():
    bench = group("Job", rules=(rule("FailJob", "fatal", on_classes=("user",)),))
    bench.diagnoses = [lost(MINE)]
    bench.end("worker", 0, 1).settle()
    assert bench.ledger.job.message == (
        "worker-1: python-exception: Boom: 1; rule fatal ends the job"
    )


def test_alone_it_is_not_charged_for_whom_it_names_before_that_one_ends():
    bench = group("Instance")
    bench.diagnoses = [lost(MINE)]
    bench.end("worker", 0, 1).settle()
    assert charges(bench) == [(0, "infrastructure")]
    bench.later(3)
    bench.diagnoses = [told(1, MINE, bench.now)]
    bench.end("worker", 1, 1).settle()
    assert charges(bench) == [(1, "user")]


# the user's own word ------------------------------------------------------------------------------
BY_RULE = {"rules": (rule("RestartJob", on_exit_codes=(1,)),)}
FREE_BY_RULE = {"rules": (rule("RestartJobAndIgnoreMaxRestarts", on_reasons=("Error",)),)}
LISTED = {
    "restart_policy": "ExitCode",
    "exit_codes": ExitCodeTable(name="mine", retryable=(1,), permanent=()),
}
ABOUT_ONE = {"rules": (rule("RestartJob", on_exit_codes=(1,), target_roles=("worker",)),)}


@pytest.mark.parametrize("when", ["named", "late", "both-ended"])
@pytest.mark.parametrize(
    ("word", "counted"),
    [
        pytest.param(BY_RULE, True, id="a-rule"),
        pytest.param(FREE_BY_RULE, False, id="a-rule-without-limit"),
        pytest.param(LISTED, True, id="a-listed-exit-code"),
    ],
)
def test_who_is_named_is_tried_again_where_the_user_says_so(word, counted, when):
    bench = group("Job", **word)
    bench.diagnoses = [] if when == "late" else [lost(OOM), told(1, OOM)][: 1 + (when != "named")]
    if when == "both-ended":
        bench.end("worker", 1, 1, reason="Error")
    bench.end("worker", 0, 1, reason="Error").step()
    bench.diagnoses = [lost(OOM)]
    bench.settle().later(6).settle()
    assert bench.state == "Running"
    (record,) = bench.ledger.job.restarts
    named = 0 if when == "late" and not counted else 1  # what is free costs nobody anything
    assert (record.index, record.counted) == (named, counted)
    assert [bench.of("worker", index).attempt for index in range(3)] == [1, 1, 1]


def test_a_rule_that_ends_the_job_for_an_exit_code_ends_it_in_the_name_of_who_failed_first():
    bench = group("Job", rules=(rule("FailJob", "fatal", on_exit_codes=(1,)),))
    bench.diagnoses = [lost(MINE)]
    bench.end("worker", 0, 1).settle()
    assert bench.ledger.job.message.startswith("worker-1: python-exception: Boom: 1; rule fatal")


def test_a_rule_about_one_role_is_not_overruled_by_the_failure_of_another():
    bench = Bench(job(role("worker", 1), role("chief", 1), scope="Job", **ABOUT_ONE)).settle()
    bench.diagnoses = [told(0, LOST, origin=replace(told(0, OOM), key=InstanceKey("chief", 0)))]
    bench.end("worker", 0, 1).settle()
    assert bench.state == "Running"
    assert [each.key for each in bench.ledger.job.restarts] == [("worker", 0)]


def test_who_is_named_goes_on_where_a_rule_restarts_the_instance_alone():
    bench = group("Job", rules=(rule("RestartInstance", on_exit_codes=(1,)),))
    bench.diagnoses = [lost(MINE)]
    bench.end("worker", 0, 1).settle()
    assert [bench.of("worker", index).attempt for index in range(3)] == [1, 0, 0]
