"""What a clock counts: its own states only, across holders, with both times told where they differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_training.control import reasons
from airflow_training.control.clocks import (
    CLOCKS,
    STANDINGS,
    amount_of,
    due_at,
    follow,
    is_used_up,
    seconds_of,
    standing_of,
)
from airflow_training.control.decide import decide
from airflow_training.control.model import Elapsed
from airflow_training.control.observations import Observations
from airflow_training.control.outages import BRIEF_SECONDS
from airflow_training.control.rollup import trained_seconds
from tests.builders import Bench, after, entry, job, role, seen


def test_every_state_has_its_words_and_every_clock_counts_states():
    assert all(clock.counts and clock.counts <= set(STANDINGS) for clock in CLOCKS)
    assert len({clock.name for clock in CLOCKS}) == len(CLOCKS)


@pytest.mark.parametrize(
    ("ledger", "object_", "job_state", "standing"),
    [
        ({}, None, "Queued", "queued"),
        ({}, None, "Paused", "paused"),
        ({"reason": "WaitingForDependency"}, None, "Starting", "waiting"),
        ({"reason": "RestartBackOff", "attempt": 1}, None, "Running", "backingOff"),
        ({"state": "terminating", "reason": "Restarting"}, None, "Running", "oldEnding"),
        ({"reason": "WaitingForOldInstance"}, None, "Running", "oldEnding"),
        ({"desired": True}, None, "Starting", "notCreated"),
        ({"desired": True}, {"scheduled": False}, "Starting", "noPlace"),
        ({"desired": True}, {"held": True}, "Starting", "waiting"),
        ({"desired": True}, {}, "Starting", "starting"),
        ({"desired": True, "state": "running"}, {}, "Running", "running"),
        ({"desired": True, "state": "unknown"}, {}, "Running", "unknown"),
        ({"desired": True, "state": "terminating"}, {}, "Running", "ending"),
        ({"final": True, "state": "terminating"}, {}, "Running", "ending"),
        ({"final": True, "state": "succeeded"}, {}, "Running", "ended"),
    ],
)
def test_what_an_instance_does_or_waits_for(ledger, object_, job_state, standing):
    object_ = None if object_ is None else seen("worker", 0, "pending", **object_)
    assert standing_of(entry("worker", 0, **ledger), object_, job_state=job_state) == standing


def test_a_clock_counts_only_while_it_runs():
    clock = follow(Elapsed(), runs=True, now=100.0)
    assert (seconds_of(clock, now=130.0), due_at(clock, 60.0)) == (30.0, 160.0)
    clock = follow(clock, runs=False, now=140.0)
    assert (seconds_of(clock, now=900.0), due_at(clock, 60.0)) == (40.0, None)
    clock = follow(clock, runs=True, now=900.0)
    assert due_at(clock, 60.0) == 920.0
    assert not is_used_up(clock, 60.0, now=919.0)
    assert is_used_up(clock, 60.0, now=920.0)
    assert amount_of(clock, now=920.0) == "60 s (of 820 s that passed)"


def test_times_of_other_machines_neither_add_nor_take_what_was_counted():
    clock = follow(Elapsed(at=100.0), runs=True, now=200.0, began=50.0)
    assert clock.at == 100.0
    assert seconds_of(follow(clock, runs=False, now=200.0, ended=50.0), now=200.0) == 0.0
    assert seconds_of(follow(clock, runs=False, now=200.0, ended=500.0), now=200.0) == 100.0
    assert seconds_of(clock, now=90.0) == 0.0, "a clock that was set back"


def bench_with_deadline(**facts) -> Bench:
    return Bench(job(role(replicas=2), active_deadline_seconds=60, **facts)).settle()


def test_a_deadline_counts_no_back_off_and_tells_both_times():
    bench = bench_with_deadline(
        scope="Job", backoff_initial_seconds=1000.0, backoff_max_seconds=1000.0
    )
    bench.later(20).end("worker", 0, 1).step()
    bench.step(seconds=999)
    assert (bench.state, bench.last.wake_at) == ("Restarting", bench.now + 1)
    bench.later(1).settle()
    bench.step(seconds=39)
    assert trained_seconds(bench.ledger, now=bench.now) == 59
    assert bench.state == "Running"
    bench.step(seconds=1)
    assert bench.ledger.job.reason == reasons.DEADLINE_EXCEEDED
    assert bench.ledger.job.message == (
        "activeDeadlineSeconds 60 is used up: its instances were running for 60 s"
        " (of 1060 s that passed)"
    )


def test_a_helper_that_always_runs_uses_up_no_deadline():
    needs = after("store", "Running")
    spec = job(role("store", tracked=False), role("trial", 1, needs), active_deadline_seconds=60)
    bench = Bench(spec)
    bench.step()
    bench.run_pending()
    bench.step()
    bench.set("trial", 0, scheduled=False).step(seconds=1000)
    assert (bench.of("store").state, bench.state) == ("running", "Starting")
    bench.set("trial", 0, scheduled=True)
    bench.run_pending()
    bench.step(seconds=59)
    assert bench.state == "Running"


@pytest.mark.parametrize("began", [0.0, 40.0], ids=["it-ran-before", "it-began-meanwhile"])
def test_who_takes_over_counts_what_ran_while_nobody_looked(began):
    """It ends an hour later by the clock of who looks, but ran for some seconds of that."""
    bench = bench_with_deadline()
    if began:
        bench = Bench(job(role(replicas=2), active_deadline_seconds=60))
        bench.step()
    at = bench.now
    for index in range(2):
        bench.end("worker", index, started_at=at + began, finished_at=at + began + 30)
    bench.step(seconds=3600)
    assert bench.state == "Succeeded"
    assert bench.ledger.job.active_time.seconds == 30


def test_what_ran_too_long_while_nobody_looked_has_run_too_long():
    bench = bench_with_deadline()
    at = bench.now
    for index in range(2):
        bench.end("worker", index, None, reason="DeadlineExceeded", finished_at=at + 90, signal=15)
    bench.step(seconds=3600)
    assert bench.ledger.job.reason == reasons.DEADLINE_EXCEEDED
    assert "for 90 s" in bench.ledger.job.message


@pytest.mark.parametrize("limits", [{}, {"max_restarts": 0}, {"backoff_limit": 0}], ids=str)
def test_a_deadline_that_passed_while_nobody_drove_the_run_is_told_with_what_was_trained(limits):
    roles = [role("worker", 1, **{k: v for k, v in limits.items() if k == "backoff_limit"})]
    rest = {k: v for k, v in limits.items() if k != "backoff_limit"}
    bench = Bench(job(*roles, active_deadline_seconds=200, grace_seconds=30, **rest)).settle()
    began = bench.now
    bench.end("worker", 0, None, signal=15, reason="DeadlineExceeded", finished_at=began + 230)
    bench.later(295).settle()
    job_ = bench.ledger.job
    assert (job_.state, job_.reason) == ("Failed", reasons.DEADLINE_EXCEEDED)
    assert job_.message == (
        "activeDeadlineSeconds 200 is used up: its instances were running for 230 s"
        " (of 295 s that passed); noticed 95 s late"
    )
    assert trained_seconds(bench.ledger, now=bench.now) == 230
    assert bench.charged() == {}, "nothing has failed"
    assert not bench.said(reasons.INSTANCE_RESTARTED)


def test_a_deadline_that_is_noticed_in_time_says_nothing_of_it():
    bench = bench_with_deadline()
    bench.later(61).settle()
    assert "late" not in bench.ledger.job.message


def test_a_deadline_tells_the_time_of_a_machine_whose_clock_was_set():
    bench = bench_with_deadline()
    observed = Observations(instances=tuple(bench.objects.values()))
    for told, words in ((bench.now + 60, 0), (bench.now - 3540, 1)):
        ended = decide(
            bench.job, bench.ledger, [], observed, bench.now + 60, generation=1, time_of_day=told
        )
        assert ended.new_ledger.job.message.count("by that of this machine") == words


def test_a_run_of_an_older_version_that_ended_keeps_what_it_trained():
    bench = Bench(job()).settle()
    bench.later(10).end("worker").settle(starting=False)
    old = replace(bench.ledger.job, training_time=Elapsed(), active_time=Elapsed())
    bench.ledger = replace(bench.ledger, job=old)
    assert trained_seconds(bench.ledger, now=9e9) == 10


@pytest.mark.parametrize(
    "facts",
    [{"scheduled": False}, {}, {"state": "unknown"}, {"state": "terminating"}],
    ids=["no-place", "image", "unknown", "ending"],
)
def test_a_dependency_waits_on_while_what_it_waits_for_cannot_come(facts):
    bench = Bench(job(role("a", 2), role("b", 1, after("a", "Ready", timeout_seconds=100))))
    bench.step()
    bench.set("a", 0, state="running").set("a", 1, **{"state": "pending", **facts})
    bench.step(seconds=50)
    bench.set("a", 0, ready=False).step(seconds=3000)
    assert bench.state == "Starting"
    assert bench.of("b").state == "pending"


def test_what_ends_again_and_again_before_it_is_ready_uses_the_time_up():
    spec = role("ps", tracked=False, restart_policy="Always")
    bench = Bench(job(spec, role("b", 1, after("ps", "Ready", timeout_seconds=20))))
    for _ in range(100):
        bench.later(5).settle(starting=False)
        if bench.state == "Failed":
            break
        bench.end("ps", 0, started_at=bench.now, finished_at=bench.now + 0.1)
    assert bench.ledger.roles["b"].reason == reasons.DEPENDENCY_TIMEOUT
    assert "only 0 of 1 instances of ps are Ready" in bench.ledger.job.message


@pytest.mark.parametrize("status", ["Running", "Ready"])
def test_what_came_and_went_while_nobody_looked_uses_the_time_up(status):
    late = after("a", status, timeout_seconds=600)
    bench = Bench(job(role("a"), role("b", 1, late), scope="Instance"))
    bench.step()
    bench.step()
    bench.now += 3000
    bench.end("a", 0, 1, started_at=bench.now - 2000).decide()
    assert bench.of("b").reason == reasons.DEPENDENCY_TIMEOUT


def test_a_deadline_goes_on_where_an_older_version_has_counted():
    bench = Bench(job(role(), active_deadline_seconds=5000, scope="Job")).settle()
    started_at = bench.ledger.job.started_at or 0.0
    bench.now += 3000
    bench.end("worker", 0, 1).step()
    bench.settle()
    bench.now += 1500
    old = replace(bench.ledger.job, active_time=Elapsed(), training_time=Elapsed())
    bench.ledger = replace(bench.ledger, job=old)
    bench.step()
    assert bench.last.wake_at == started_at + 5000


def test_what_runs_is_not_ended_because_it_could_not_be_prepared_anew():
    bench = Bench(job(role(replicas=2), scope="Job")).settle()
    seen_now = Observations(instances=tuple(bench.objects.values()))
    decision = decide(
        bench.job, bench.ledger, [], seen_now, bench.now + 1, generation=2, unprepared="denied"
    )
    assert decision.new_ledger.job.state == "Running"


def test_what_is_unknown_is_given_up_only_where_that_is_still_said_once_somebody_can_ask():
    bench = Bench(job(role(replicas=3), unknown_seconds=60.0)).settle()
    for index in range(3):
        bench.set("worker", index, state="unknown", node=f"n{index}")
    assert bench.step().wake_at == bench.now + 60
    bench.later(50).reachable = False
    bench.step()
    assert bench.last.wake_at == bench.now + BRIEF_SECONDS, "then it is told, and nothing is due"
    bench.step(seconds=40)
    assert (bench.charged(), bench.ledger.job.condition) == ({}, "RuntimeUnknown")
    bench.reachable = True
    bench.set("worker", 0, state="running").step()
    bench.step(seconds=59)
    assert (bench.charged(), bench.of().state) == ({}, "running")
    bench.step(seconds=1)
    assert {each.index for each in bench.ledger.job.restarts} == {1, 2}
    first, _ = bench.said(reasons.INSTANCE_RESTARTED)
    assert "unknown for 60 s (of 150 s that passed) on node n1" in first.message


def test_who_takes_over_in_an_outage_begins_anew_with_the_first_answer():
    bench = Bench(job(unknown_seconds=60.0)).settle()
    bench.set("worker", 0, state="unknown").step()
    bench.later(10).reachable = False
    bench.step()
    bench.generation += 1
    bench.decide(seconds=3600, blind=True)
    bench.reachable = True
    bench.step()
    assert bench.step(seconds=59).wake_at == bench.now + 1
    assert bench.charged() == {}


def test_what_is_unknown_is_given_up_although_nobody_can_ask_for_a_moment_now_and_then():
    bench = Bench(job(unknown_seconds=60.0)).settle()
    bench.set("worker", 0, state="unknown").step()
    began = bench.now
    while not bench.charged() and bench.now < began + 1200:
        bench.reachable = not bench.reachable
        bench.step(seconds=5)
    assert bench.now == began + 120, "of which it could be asked for 60 s"
    assert bench.charged() == {"infrastructure": 1}


@pytest.mark.parametrize("seen_", [{"scheduled": False}, None], ids=["noPlace", "notCreated"])
def test_a_place_is_not_waited_for_while_nobody_can_ask(seen_):
    bench = Bench(job(role(), schedule_timeout_seconds=100.0))
    bench.decide()
    if seen_ is not None:
        bench.act()
        bench.set("worker", 0, **seen_)
    bench.decide(seconds=30)
    bench.reachable = False
    bench.decide(seconds=10)
    bench.decide(seconds=1000)
    bench.reachable = True
    assert bench.decide().wake_at == bench.now + 60
    bench.decide(seconds=59)
    assert bench.state == "Starting"
    bench.decide(seconds=1)
    assert bench.ledger.job.reason == reasons.SCHEDULE_TIMEOUT
