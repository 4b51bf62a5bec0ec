"""A run that makes room for one of a higher priority."""

from __future__ import annotations

from airflow_training.control import reasons
from airflow_training.control.actions import Create, Delete
from airflow_training.control.model import Request
from tests.builders import Bench, job, role


def preempted(**fields) -> Bench:
    """A run of two instances that were just asked to end."""
    bench = Bench(job(role(replicas=2), max_restarts=0, **fields)).settle()
    bench.ask(Request(id=1, kind="preempt", reason="makes room for run high")).decide()
    return bench


def test_it_ends_its_instances_and_waits_in_the_queue_once_none_lives():
    bench = preempted()
    assert (bench.state, bench.ledger.job.reason) == ("Paused", reasons.QUEUE_PREEMPTED)
    assert bench.ledger.job.message == "makes room for run high"
    assert sorted(bench.actions(Delete)) == [("worker", 0), ("worker", 1)]
    bench.objects.popitem()
    bench.decide(seconds=5)
    assert bench.state == "Paused"
    bench.objects.clear()
    bench.decide(seconds=5)
    assert (bench.state, bench.ledger.job.condition) == ("Queued", "Queued")
    bench.step(seconds=1000)
    assert bench.actions(Create) == []


def test_nothing_is_said_of_its_place_while_the_runtime_does_not_answer():
    bench = preempted()
    bench.objects.clear()
    bench.reachable = False
    bench.decide(seconds=5)
    assert bench.state == "Paused"


def test_it_goes_on_without_a_restart_when_it_is_its_turn():
    bench = preempted()
    bench.act()
    bench.step(seconds=100)
    bench.ask(Request(id=0, kind="resume", by="queue")).settle()
    assert bench.state == "Running"
    assert bench.charged() == {}
    assert bench.ledger.job.paused_seconds == 100


def test_who_resumes_it_is_told_that_it_waits():
    bench = preempted()
    bench.act()
    bench.step(seconds=1)
    bench.request("resume").step()
    assert bench.state == "Queued"
    (refusal,) = bench.said(reasons.REQUEST_REFUSED)
    assert refusal.message == "resume: it was preempted, and goes on when it is its turn"


def test_it_can_be_killed_while_it_waits():
    bench = preempted()
    bench.act()
    bench.step(seconds=1)
    bench.request("kill").step()
    assert (bench.state, bench.last.done) == ("Stopped", True)


def test_a_paused_run_stays_paused():
    bench = Bench(job()).settle()
    bench.request("pause").step()
    bench.request("preempt").step(seconds=5)
    assert (bench.state, bench.ledger.job.reason) == ("Paused", reasons.PAUSED)
