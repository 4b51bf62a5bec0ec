"""Whenever a diagnosis comes, before its failure is judged or after, the ledger is the same in the end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_training.control.attempts import AttemptId, AttemptKey
from airflow_training.control.causes import DiagnosedCause
from airflow_training.control.observations import InstanceDiagnosis
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ExitCodeTable
from tests.builders import Bench, job, role, rule


def cause(name: str, category: str, retryable: str, confidence: float) -> dict[str, Any]:
    return {
        "id": name,
        "category": category,
        "retryable": retryable,
        "confidence": confidence,
    }


LOST = cause("peer-connection-lost", "infrastructure", "yes", 0.8)
ITSELF = {
    "an-exception": cause("python-exception", "user-error", "no", 0.45),
    "sure-of-the-user": cause("shape-mismatch", "user-error", "no", 0.95),
    "once": cause("segfault", "user-error", "once", 0.9),
    "data": cause("file-not-found", "data", "no", 0.64),
    "configuration": cause("config-error", "configuration", "no", 0.7),
    "infrastructure": cause("gpu-not-available", "infrastructure", "yes", 0.85),
    "resource": cause("disk-full", "resource", "yes", 0.7),
    "host-memory": cause("host-out-of-memory", "resource", "no", 0.85),
    "a-guess-of-memory": cause("host-out-of-memory", "resource", "no", 0.45),
    "preemption-of-the-log": cause("preempted", "preemption", "yes", 0.9),
}
ENDS: dict[str, dict[str, Any]] = {
    "exit-code": {"exit_code": 1},
    "abort": {"exit_code": None, "signal": 6},
    "killed": {"exit_code": 137},
    "by-the-runtime": {"exit_code": 137, "reason": "OOMKilled"},
    "disrupted": {"exit_code": 143, "disrupted": True},
}
OF_SCOPE = ("Instance", "Role", "Job")
BY_CLASS: dict[str, dict[str, Any]] = {
    "ends-the-job": {"rules": (rule("FailJob", on_classes=("resource",)),)},
    "free": {"rules": (rule("Ignore", on_classes=("infrastructure",)),)},
    "restarts-all": {"rules": (rule("RestartJob", on_classes=("user", "resource")),)},
    "exit-codes": {
        "restart_policy": "ExitCode",
        "exit_codes": ExitCodeTable(name="mine", retryable=(85,), permanent=(86,)),
    },
    "never": {"restart_policy": "Never"},
}


def told(bench: Bench, index: int, found: dict[str, Any], **facts: Any) -> InstanceDiagnosis:
    log: dict[str, Any] = {
        "file": f"worker-{index}",
        "line": 9,
        "rank": index,
        "evidence": f"Boom of {index}: 1",
    }
    seen = bench.objects.get(f"worker-{index}-0")
    end = {} if seen is None or seen.state != "failed" else _end_of(seen)
    made = InstanceDiagnosis(
        key=InstanceKey("worker", index),
        attempt_id=AttemptId(),
        cause=DiagnosedCause(**log | {"advice": "Look there"} | found),
    )
    return replace(made, **end | facts)


def _end_of(seen: Any) -> dict[str, Any]:
    names = ("reason", "exit_code", "signal", "finished_at")
    return {name: getattr(seen, name) for name in names}


def group(scope: str, **fields: Any) -> Bench:
    policy = {"restart_policy": fields.pop("restart_policy", "OnFailure")}
    spec = job(role("worker", 3, **policy), scope=scope, backoff_initial_seconds=5, **fields)
    return Bench(spec).settle()


def in_the_end(bench: Bench) -> dict[str, Any]:
    """Return what a user sees of who is charged for what, and what became of the job."""
    bench.settle().later(60).settle()
    root = bench.ledger.job.root_cause
    entries = bench.ledger.instances.values()
    failed = bench.state == "Failed"
    return {
        "state": (bench.state, bench.ledger.job.reason, bench.ledger.job.message),
        "charges": sorted(
            (each.index, each.failure_class, each.cause, each.scope, each.rule, each.counted)
            for each in bench.ledger.job.restarts
        ),
        "restarts": [each.restarts for each in entries],
        "attempts": [] if failed else [each.attempt for each in entries],
        "class of the cause": [
            e.end.failure_class for e in entries if root is not None and e.index == root.index
        ],
        "root cause": root and (root.id, root.index, root.attempt, root.evidence),
    }


def early(bench: Bench, end: dict[str, Any], found: dict[str, Any], **facts: Any) -> dict[str, Any]:
    bench.end("worker", 1, **end)
    bench.diagnoses = [told(bench, 1, found, **facts)]
    return in_the_end(bench)


def under_way(bench: Bench, end: dict[str, Any], found: dict[str, Any], **facts: Any) -> Any:
    bench.end("worker", 1, **end)
    diagnosis = told(bench, 1, found, **facts)
    bench.undiagnosed = {AttemptKey(InstanceKey("worker", 1), 0, 0)}
    bench.settle().later(2).settle()
    bench.undiagnosed, bench.diagnoses = set(), [diagnosis]
    return in_the_end(bench)


def unexpected(bench: Bench, end: dict[str, Any], found: dict[str, Any], **facts: Any) -> Any:
    bench.end("worker", 1, **end)
    diagnosis = told(bench, 1, found, **facts)
    bench.settle()
    bench.diagnoses = [diagnosis]
    return in_the_end(bench)


@pytest.mark.parametrize("scope", OF_SCOPE)
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("found", ITSELF.values(), ids=ITSELF)
def test_a_late_diagnosis_charges_what_an_early_one_does(found, end, scope):
    expected = early(group(scope), end, found)
    assert under_way(group(scope), end, found) == expected
    assert unexpected(group(scope), end, found) == expected


@pytest.mark.parametrize("scope", OF_SCOPE)
@pytest.mark.parametrize("found", ITSELF.values(), ids=ITSELF)
def test_so_it_does_where_a_log_names_another_instance(found, scope):
    def named(bench: Bench) -> dict[str, Any]:
        return (
            {"origin": replace(told(bench, 2, found), key=InstanceKey("worker", 2))}
            if scope != "Instance"
            else {}
        )

    ends = []
    for way in (early, under_way, unexpected):
        bench = group(scope)
        ends.append(way(bench, {"exit_code": 1}, LOST, **named(bench)))
    assert ends[1:] == ends[:1] * 2


@pytest.mark.parametrize("policy", BY_CLASS.values(), ids=BY_CLASS)
@pytest.mark.parametrize("end", [ENDS["abort"], ENDS["by-the-runtime"]])
@pytest.mark.parametrize("found", [*ITSELF.values(), LOST], ids=[*ITSELF, "lost-others"])
def test_what_follows_from_a_class_follows_from_the_one_of_the_log(found, end, policy):
    expected = early(group("Instance", **policy), end, found)
    assert under_way(group("Instance", **policy), end, found) == expected


@pytest.mark.parametrize("scope", OF_SCOPE)
@pytest.mark.parametrize("most", [0, 1])
@pytest.mark.parametrize(
    "found", [ITSELF[name] for name in ("an-exception", "sure-of-the-user", "once", "resource")]
)
def test_so_it_does_for_two_that_fail_one_after_the_other(found, most, scope):
    def both(late: set[int]) -> dict[str, Any]:
        bench = group(scope, max_restarts=most)
        diagnoses = {}
        for index, why in ((0, LOST), (1, found)):
            bench.end("worker", index, 1)
            diagnoses[index] = told(bench, index, why)
        if scope != "Instance":
            diagnoses[0] = replace(diagnoses[0], origin=told(bench, 1, found))
        bench.undiagnosed = {AttemptKey(InstanceKey("worker", index), 0, 0) for index in late}
        bench.diagnoses = [each for index, each in diagnoses.items() if index not in late]
        bench.settle().later(2)
        bench.undiagnosed, bench.diagnoses = set(), list(diagnoses.values())
        return in_the_end(bench)

    expected = both(set())
    for late in ({0}, {1}, {0, 1}):
        assert both(late) == expected, late


@pytest.mark.parametrize("late", [False, True])
def test_a_failure_of_another_role_is_charged_once_whenever_it_is_known(late: bool):
    bench = Bench(job(role("worker", 1), role("ps", 1), scope="Role", backoff_initial_seconds=5))
    bench.settle()
    ps = bench.ledger.instances[InstanceKey("ps", 0)]
    origin = InstanceDiagnosis(
        key=InstanceKey("ps", 0),
        attempt_id=ps.attempt_id,
        cause=DiagnosedCause(
            **ITSELF["infrastructure"], file="ps-0", line=9, rank=0, evidence="Boom"
        ),
    )
    bench.end("worker", 0, 1)
    lost = replace(told(bench, 0, LOST), origin=origin)
    bench.end("ps", 0, 1)
    if late:
        bench.settle()
    bench.diagnoses = [lost]
    bench.settle()
    bench.diagnoses = []
    bench.later(60).settle()
    assert {key: each.restarts for key, each in bench.ledger.instances.items()} == {
        ("worker", 0): 1,
        ("ps", 0): 1,
    }
