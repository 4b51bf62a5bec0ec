"""An attempt that needs nothing but a new process begins inside the instance of the one before."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from airflow_training.control.actions import Create, Delete, Dismiss, RestartProcess, StopProcess
from airflow_training.control.attempts import AttemptId
from airflow_training.control.in_place import ANSWER_SECONDS, wait_seconds
from airflow_training.documents.instances import InstanceKey
from tests.builders import Bench, job, role, rule

WORKER = InstanceKey("worker", 0)


def healthy(bench: Bench) -> tuple[str, ...]:
    return (json.dumps({"at": bench.now, "on": "exit"}),)


def a_bench(replicas: int = 1, **fields) -> Bench:
    """A job whose instances run and can stay."""
    bench = Bench(job=job(role("worker", replicas, backoff_limit=20), **fields)).settle()
    for uid, each in bench.objects.items():
        bench.objects[uid] = replace(each, in_place=True, environment=healthy(bench))
    return bench


def crash(bench: Bench, index: int = 0, **facts: Any) -> Bench:
    return bench.end("worker", index, 1, **({"environment": healthy(bench)} | facts))


def test_a_crashed_process_begins_again_inside_its_instance():
    bench = crash(a_bench())
    bench.step()
    assert bench.last.actions == (
        RestartProcess(
            key=InstanceKey("worker", 0),
            attempt_id=AttemptId(attempt=1),
            uid="worker-0-0",
        ),
    )
    bench.settle()
    entry = bench.of()
    assert (entry.attempt, entry.restarts, entry.state, entry.host.uid) == (1, 1, "running", "")
    assert len(bench.ledger.job.restarts) == 1


def test_it_waits_for_the_backoff_and_stays_meanwhile():
    bench = crash(a_bench(backoff_initial_seconds=20.0))
    bench.step()
    assert bench.last.actions == ()
    bench.step(seconds=19.0)
    assert bench.last.actions == ()
    bench.step(seconds=1.0)
    assert bench.actions(RestartProcess) == [WORKER]


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param({"in_place": False}, id="nothing-waits-in-it"),
        pytest.param({"environment": ()}, id="nobody-knows-its-environment"),
        pytest.param({"reason": "OOMKilled"}, id="the-reason-asks-for-more"),
        pytest.param({"disrupted": True}, id="the-platform-ended-it"),
    ],
)
def test_what_needs_more_than_a_process_begins_in_a_new_instance(facts):
    bench = crash(a_bench(), **facts)
    bench.step()
    assert bench.actions(Delete) == [WORKER]
    bench.step()
    assert bench.actions(Create) == [WORKER]


def test_survivors_end_their_process_before_anything_begins_again():
    bench = crash(a_bench(3, scope="Job"), index=1)
    decision = bench.decide()
    assert bench.actions(StopProcess) == [("worker", 0), ("worker", 2)]
    assert len(decision.actions) == 2
    bench.act()
    bench.set("worker", 2, state="terminating")
    bench.step()
    assert bench.last.actions == ()  # worker 2 is still ending
    bench.set("worker", 2, state="failed")
    bench.step()
    assert bench.actions(RestartProcess) == [("worker", 0), ("worker", 1), ("worker", 2)]
    bench.settle()
    assert [bench.of("worker", i).attempt for i in range(3)] == [1, 1, 1]
    assert len(bench.ledger.job.restarts) == 1


def test_nothing_begins_in_an_instance_whose_process_still_ends():
    bench = crash(a_bench(2, scope="Role"), index=1)
    bench.decide()
    assert bench.actions(StopProcess) == [WORKER]
    bench.set("worker", 0, state="terminating")
    bench.step()
    assert bench.actions(RestartProcess) == [("worker", 1)]


def test_survivors_stay_also_where_the_failed_instance_cannot():
    bench = crash(a_bench(2, scope="Job"), reason="Evicted", in_place=False)
    bench.decide()
    assert (bench.actions(Delete), bench.actions(StopProcess)) == ([WORKER], [("worker", 1)])
    bench.settle()
    assert [bench.of("worker", i).attempt for i in range(2)] == [1, 1]


def test_a_fresh_job_makes_everything_anew():
    bench = a_bench(2, scope="Job", max_restarts=0, then="FreshJob", max_fresh_jobs=1)
    crash(bench)
    bench.decide()
    assert bench.actions(Delete) == [WORKER, ("worker", 1)]
    assert bench.actions(StopProcess) == []


def test_no_answer_in_time_means_a_new_instance_without_another_count():
    bench = crash(a_bench())
    bench.decide()
    assert bench.actions(RestartProcess) == [WORKER]
    bench.decide(seconds=ANSWER_SECONDS - 0.1)
    assert bench.actions(RestartProcess) == [WORKER]
    bench.step(seconds=0.1)
    assert bench.actions(Delete) == [WORKER]
    assert bench.said("NotInPlace")
    bench.step()
    assert bench.last.actions == (
        Create(key=InstanceKey("worker", 0), attempt_id=AttemptId(attempt=1)),
    )
    assert (bench.of().restarts, len(bench.ledger.job.restarts)) == (1, 1)


@pytest.mark.parametrize("gone", [True, False], ids=["its-instance-is-gone", "it-waits-no-more"])
def test_what_stopped_waiting_is_replaced_at_once(gone):
    bench = crash(a_bench(backoff_initial_seconds=20.0))
    bench.step()
    if gone:
        bench.lose("worker")
    else:
        bench.set("worker", 0, in_place=False)
    bench.step(seconds=20.0)
    bench.settle()
    assert (bench.of().attempt, bench.of().restarts, bench.of().state) == (1, 1, "running")


def test_a_survivor_that_does_not_end_is_replaced():
    bench = crash(a_bench(2, scope="Job"))
    bench.decide()
    bench.decide(seconds=30.0 + ANSWER_SECONDS)
    assert ("worker", 1) in bench.actions(Delete)


def test_a_pause_ends_what_stays():
    bench = crash(a_bench(backoff_initial_seconds=20.0))
    bench.step()
    bench.request("pause").step()
    assert bench.actions(Delete) == [WORKER]


def test_nothing_waits_for_an_attempt_that_never_comes():
    bench = crash(a_bench(max_restarts=0))
    bench.step()
    assert bench.state == "Failed"
    assert bench.actions(Dismiss) == [WORKER]
    assert not bench.ledger.job.drained  # its agent still lives
    bench.step()
    assert bench.ledger.job.drained


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        pytest.param({}, 360.0, id="the-longest-backoff-and-a-minute"),
        pytest.param({"restart_policy": "Never"}, 0.0, id="nothing-restarts-it"),
    ],
)
def test_how_long_an_instance_waits(fields, seconds):
    worker = role("worker", **fields)
    assert wait_seconds(job(worker), worker) == seconds
    assert wait_seconds(job(worker, rules=(rule("RestartInstance"),)), worker) == 360.0
