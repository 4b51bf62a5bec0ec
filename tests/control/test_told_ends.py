"""How ends are told that nobody should have to guess: limits, kills after the grace, what outlived its command."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_training.control import reasons
from airflow_training.control.reason_facts import OWN_REASONS, ReasonFacts
from airflow_training.control.root_cause import cause_of_reason, headline_of, outcome_text
from tests.builders import Bench, after, job, role

DEAF = "did not end within 30 s of SIGTERM, and was killed"


def limited(memory: str | None) -> Bench:
    container: dict[str, Any] = {"name": "main"}
    if memory is not None:
        container["resources"] = {"limits": {"memory": memory}}
    worker = role("worker", template={"spec": {"containers": [container]}})
    return Bench(job(worker, max_restarts=0)).settle()


@pytest.mark.parametrize(
    ("memory", "told"),
    [
        ("2Gi", " (limit 2Gi, limits.memory of role worker)"),
        ("1500M", " (limit 1500000000, "),
        (None, ""),
    ],
)
def test_who_ran_out_of_memory_is_told_with_its_limit(memory, told):
    bench = limited(memory)
    words = "it used more memory than its limit"
    bench.end("worker", 0, 137, reason="OOMKilled", message=words).settle()
    message = bench.ledger.job.message
    assert f"worker-0: exit code 137 (OOMKilled): {words}{told}" in message
    assert ("limits.memory" in bench.of().message) == (memory is not None)


def headline(**facts: Any) -> str:
    known = {**OWN_REASONS, "Evicted": ReasonFacts("resource", "pod", "evicted")}
    return headline_of(cause_of_reason(at=1.0, role="worker", index=0, known=known, **facts))


def test_what_its_platform_ended_is_not_told_by_a_signal():
    words = "The node was low on resource: ephemeral-storage."
    told = headline(reason="Evicted", message=words, signal=15, exit_code=143)
    assert told == f"worker-0: Evicted: {words}"
    assert headline(reason="Error", message="", signal=15).startswith("worker-0: signal 15")
    assert "signal 9 (OOMKilled)" in headline(reason="OOMKilled", message="x", signal=9)


def test_a_reason_that_is_its_message_is_said_once():
    assert outcome_text(state="Stopped", reason="Killed", message="killed") == "Killed"
    told = outcome_text(state="Stopped", reason="Killed", message="stopped by ada")
    assert told == "Killed: stopped by ada"


def test_what_had_to_be_killed_is_told_in_entry_event_and_job():
    bench = Bench(job(role(replicas=3), grace_seconds=30)).settle()
    bench.request("stop").decide()
    for index in range(3):
        bench.set("worker", index, state="terminating", state_since=bench.now)
    bench.decide()
    bench.later(31)
    bench.end("worker", 0, 137, signal=9, reason="Deleted")
    bench.end("worker", 1, 143, signal=15, reason="Deleted")
    bench.end("worker", 2, 143, signal=15, reason="Deleted", message=DEAF).decide()
    assert [each.index for each in bench.said(reasons.GRACE_PERIOD_EXCEEDED)] == [0, 2]
    assert {each.message for each in bench.said(reasons.GRACE_PERIOD_EXCEEDED)} == {DEAF}
    assert bench.of("worker", 0).message == f"stopped by us; {DEAF}"
    assert bench.of("worker", 1).message == "stopped by us"
    assert bench.ledger.job.message.endswith(
        "; 2 instances did not end in time after SIGTERM, and had to be killed"
    )


@pytest.mark.parametrize("running", [True, False])
def test_what_was_killed_before_its_grace_was_over_or_never_ran_has_ignored_nothing(running):
    bench = Bench(job(role(replicas=1), grace_seconds=30))
    bench.settle() if running else bench.step()
    bench.request("stop").decide()
    bench.set("worker", 0, state="terminating", state_since=bench.now).decide()
    bench.later(2 if running else 31)
    bench.end("worker", 0, 137, signal=9, reason="Deleted").decide()
    assert bench.said(reasons.GRACE_PERIOD_EXCEEDED) == []
    assert "had to be killed" not in bench.ledger.job.message


def test_a_drained_instance_that_had_to_be_killed_is_no_lack_of_memory():
    bench = Bench(job(role(replicas=2), grace_seconds=30)).settle()
    words = "Eviction API: evicting"
    facts = {"reason": "EvictionByEvictionAPI", "message": words, "disrupted": True, "signal": 9}
    bench.set("worker", 1, state="terminating", state_since=bench.now, disrupted=True).decide()
    bench.later(30)
    bench.end("worker", 1, 137, **facts).settle()
    assert bench.charged() == {"preemption": 1}
    (told,) = bench.said(reasons.INSTANCE_RESTARTED) or bench.said(reasons.JOB_RESTARTED)
    assert DEAF in told.message
    assert "emory" not in told.message


def test_what_outlived_its_command_is_a_warning_of_a_success():
    bench = Bench(job()).settle()
    words = "1 process of it was still running and ended with it: 123 (sleep)"
    bench.end("worker", 0, 0, outlived_by=words).settle()
    assert bench.state == "Succeeded"
    (told,) = bench.said(reasons.PROCESSES_LEFT)
    assert (told.message, told.level) == (words, "warning")
    assert bench.of().message == words


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        (
            {"scheduled": False, "reason": "Unschedulable", "message": "0/5 nodes are available"},
            "; server waits: Unschedulable: 0/5 nodes are available",
        ),
        (
            {"reason": "ImagePulling", "message": "pulls train:v1 since 10:00"},
            "; server waits: ImagePulling: pulls train:v1 since 10:00",
        ),
        ({"state": "running", "address_live": False}, ""),
    ],
)
def test_who_waits_for_another_role_says_what_that_waits_for(facts, told):
    bench = Bench(job(role("client", 2, after("server")), role("server")))
    bench.step()
    bench.set("server", 0, **{"state": "pending", **facts}).step()
    bench.step()
    expected = f"0 of 1 instances of server are AddressKnown{told}"
    assert {bench.of("client", each).message for each in (0, 1)} == {expected}
    assert bench.ledger.roles["client"].message == expected
