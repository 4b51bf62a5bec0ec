"""An instance that ran out of memory asks for more the next time, up to a ceiling, and says so."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from airflow_training.control import reasons
from airflow_training.control.actions import Create, RestartProcess
from airflow_training.control.causes import DiagnosedCause
from airflow_training.control.memory import growth_warnings, memory_of, with_its_memory
from airflow_training.control.model import InstanceEntry, RaisedMemory
from airflow_training.control.observations import InstanceDiagnosis
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import MemoryGrowth, ResolvedRole
from airflow_training.frameworks.pods import training_container
from airflow_training.state.codec import compact_json, from_json
from tests.builders import Bench, job, role, rule

GIB = 1 << 30
GROWTH = MemoryGrowth(factor=1.5, up_to_bytes=16 * GIB)
OOM: dict[str, Any] = {"exit_code": 137, "reason": "OOMKilled"}
CAUSE: dict[str, Any] = {
    "id": "host-out-of-memory",
    "category": "resource",
    "retryable": "no",
    "confidence": 0.9,
    "evidence": "Killed process 7",
    "line": 3,
}


def with_memory(replicas: int = 1, **resources: Any) -> ResolvedRole:
    given = resources or {"limits": {"memory": "8Gi"}}
    container = {"name": "main", "resources": given}
    return role(replicas=replicas, template={"spec": {"containers": [container]}})


def told(*, attempt: int = 0, reason: str = "", **cause: Any) -> InstanceDiagnosis:
    from airflow_training.control.attempts import AttemptId

    return InstanceDiagnosis(
        key=InstanceKey("worker", 0),
        attempt_id=AttemptId(attempt=attempt),
        cause=DiagnosedCause(**CAUSE | cause),
        reason=reason,
        exit_code=1,
    )


def bench(*roles: ResolvedRole, **fields: Any) -> Bench:
    spec = job(*(roles or (with_memory(),)), on_out_of_memory=GROWTH, max_restarts=9, **fields)
    return Bench(spec).settle()


def asked(made: Bench, index: int = 0) -> int | None:
    return memory_of(made.job.role("worker"), made.of("worker", index))


# what the next attempt asks for ----------------------------------------------------------------------
def test_each_attempt_after_one_that_ran_out_asks_for_more_up_to_the_ceiling():
    made = bench()
    amounts = []
    for _ in range(3):
        made.end("worker", 0, **OOM).settle()
        amounts.append(asked(made))
    assert amounts == [12 * GIB, 16 * GIB, 16 * GIB]
    first, second = made.said(reasons.MEMORY_RAISED)
    assert first.message == "ran out of 8Gi of memory: the next attempt asks for 12Gi (upTo 16Gi)"
    assert (second.data["memory_bytes"], second.level) == (16 * GIB, "warning")
    (last,) = made.said(reasons.MEMORY_NOT_RAISED)
    assert "ran out of 16Gi of memory" in last.message


@pytest.mark.parametrize(
    ("facts", "grown"),
    [
        pytest.param(OOM, True, id="killed-for-memory"),
        pytest.param({"exit_code": 1, "reason": "OOMKilled"}, True, id="a-child-of-it"),
        pytest.param({"exit_code": 137}, False, id="a-signal-alone"),
        pytest.param({"exit_code": 1}, False, id="another-failure"),
        pytest.param({"exit_code": 143, "disrupted": True}, False, id="a-preemption"),
    ],
)
def test_only_memory_is_answered_with_memory(facts, grown):
    made = bench()
    made.end("worker", 0, **facts).settle()
    assert asked(made) == (12 * GIB if grown else 8 * GIB)
    assert bool(made.said(reasons.MEMORY_RAISED)) == grown


def test_only_the_instance_asks_for_more_that_ran_out():
    made = bench(with_memory(2), scope="Job")
    made.end("worker", 1, **OOM).settle()
    assert (asked(made, 0), asked(made, 1)) == (8 * GIB, 12 * GIB)


def test_all_that_ran_out_at_once_ask_for_more_at_the_price_of_one_restart():
    made = bench(with_memory(2), scope="Job")
    for index in range(2):
        made.end("worker", index, **OOM)
    made.settle()
    assert (asked(made, 0), asked(made, 1)) == (12 * GIB, 12 * GIB)
    assert made.charged() == {"resource": 1}


def test_it_is_kept_over_restarts_for_other_reasons():
    made = bench()
    made.end("worker", 0, **OOM).settle()
    made.end("worker", 0, 1).settle()
    assert asked(made) == 12 * GIB


def test_without_the_field_nothing_changes():
    made = Bench(job(with_memory())).settle()
    made.end("worker", 0, **OOM).settle()
    assert (made.of().memory, made.said(reasons.MEMORY_RAISED)) == (None, [])


# what a log says of it -------------------------------------------------------------------------------
def test_another_try_with_more_memory_can_help_though_the_log_says_no():
    made = bench()
    made.diagnoses = [told()]
    made.end("worker", 0, 1).settle()
    assert (made.state, asked(made)) == ("Running", 12 * GIB)


def test_at_the_ceiling_it_cannot():
    made = bench(with_memory(limits={"memory": "16Gi"}))
    made.diagnoses = [told()]
    made.end("worker", 0, 1).settle()
    assert (made.state, made.ledger.job.reason) == ("Failed", reasons.NOT_RETRYABLE)
    assert made.said(reasons.MEMORY_NOT_RAISED)


@pytest.mark.parametrize("reason", ["", "OOMKilled"])
def test_a_diagnosis_that_comes_late_raises_once(reason):
    made = bench(backoff_initial_seconds=5)
    made.end("worker", 0, 1, reason=reason).decide()
    made.act()
    made.diagnoses = [told(reason=reason)]
    made.decide()
    assert asked(made) == 12 * GIB
    assert len(made.said(reasons.MEMORY_RAISED)) == 1
    assert made.state == "Running"


# where it begins -------------------------------------------------------------------------------------
def staying(made: Bench) -> Bench:
    """Let processes begin again inside their instances, which keep the memory that they have."""
    around = (json.dumps({"at": made.now, "on": "exit"}),)
    for uid, each in made.objects.items():
        made.objects[uid] = replace(each, in_place=True, environment=around)
    return made


@pytest.mark.parametrize("rules", [(), (rule("RestartJob", on_exit_codes=(1,)),)])
def test_a_diagnosis_that_comes_late_asks_for_a_new_instance(rules):
    made = staying(bench(backoff_initial_seconds=5, rules=rules))
    made.end("worker", 0, 1).step()
    assert made.of().host.uid
    made.diagnoses = [told(reason="Error")]
    made.step()
    assert not made.of().host.uid
    made.later(6).step()
    assert (made.actions(RestartProcess), made.actions(Create)) == ([], [("worker", 0)])


def test_all_whose_log_says_at_once_that_they_ran_out_begin_in_new_instances():
    made = staying(bench(with_memory(3), scope="Job"))
    made.diagnoses = [
        replace(told(reason="Error"), key=InstanceKey("worker", index)) for index in range(2)
    ]
    made.end("worker", 0, 1).end("worker", 1, 1).step()
    assert [bool(made.of("worker", index).host.uid) for index in range(3)] == [False, False, True]
    assert [asked(made, index) for index in range(3)] == [12 * GIB, 12 * GIB, 8 * GIB]


def test_what_has_more_already_may_begin_again_inside_its_instance():
    made = bench()
    made.end("worker", 0, **OOM).settle()
    staying(made).end("worker", 0, 1).step()
    assert made.actions(RestartProcess) == [("worker", 0)]


# what the instance gets ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({"limits": {"memory": "8Gi"}}, {"limits": {"memory": "12Gi"}}),
        ({"requests": {"memory": "8Gi"}}, {"requests": {"memory": "12Gi"}}),
        (
            {"limits": {"memory": "8Gi", "cpu": 2}, "requests": {"memory": "4Gi"}},
            {"limits": {"memory": "12Gi", "cpu": 2}, "requests": {"memory": "6Gi"}},
        ),
    ],
)
def test_limit_and_request_grow_together(given, made):
    entry = InstanceEntry(
        key=InstanceKey("worker", 0), memory=RaisedMemory(12 * GIB, since_attempt=1)
    )
    spec = job(with_memory(**given), role("other"))
    changed = with_its_memory(spec, entry)
    container = training_container(changed.role("worker").template, None, name="main")
    assert container["resources"] == made
    assert changed.role("other") is spec.role("other")
    assert spec.role("worker").template["spec"]["containers"][0]["resources"] == given


def test_an_entry_of_before_has_what_the_document_says():
    entry = InstanceEntry(key=InstanceKey("worker", 0))
    assert "memory" not in compact_json(entry)
    assert from_json(InstanceEntry, compact_json(entry)) == entry
    raised = InstanceEntry(key=InstanceKey("worker", 0), memory=RaisedMemory(5, since_attempt=2))
    assert from_json(InstanceEntry, compact_json(raised)) == raised


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param(job(role(), on_out_of_memory=GROWTH), "no role says", id="no-memory"),
        pytest.param(
            job(with_memory(limits={"memory": "16Gi"}), on_out_of_memory=GROWTH),
            "worker asks for 16Gi, and upTo is 16Gi",
            id="at-the-ceiling",
        ),
        pytest.param(
            job(with_memory(), on_out_of_memory=GROWTH, gang="kueue"),
            "its group keeps",
            id="kueue",
        ),
        pytest.param(job(with_memory(), on_out_of_memory=GROWTH), "", id="it-has-one"),
        pytest.param(job(role()), "", id="not-asked-for"),
    ],
)
def test_a_field_without_effect_is_told(spec, words):
    found = [each.message for each in growth_warnings(spec)]
    assert bool(found) == bool(words)
    assert all(words in each for each in found)


def test_a_group_of_fixed_size_asks_for_the_same():
    made = bench(gang="kueue")
    made.end("worker", 0, **OOM).settle()
    assert asked(made) == 8 * GIB
