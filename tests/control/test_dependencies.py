"""Who waits for whom: every status, require, listener and answer, time-outs and short cuts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_training.control import reasons
from airflow_training.control.actions import Create, Delete, Release
from airflow_training.control.dependencies import (
    dependency_state,
    initializer_answer,
    waits_briefly,
)
from airflow_training.control.model import Elapsed
from airflow_training.documents.resolved import FileTemplate
from tests.builders import Bench, after, job, role


def begun(at: float) -> Elapsed:
    return Elapsed(at=at, runs=True, began_at=at)


BARE = {"address_live": False, "port_open": False, "ready": False}


@pytest.mark.parametrize(
    ("status", "facts", "met"),
    [
        ("Running", {"state": "pending", **BARE}, False),
        ("Running", {**BARE}, True),
        ("AddressKnown", {**BARE}, False),
        ("AddressKnown", {**BARE, "address_live": True}, True),
        ("PortOpen", {**BARE, "address_live": True}, False),
        ("PortOpen", {**BARE, "port_open": True}, True),
        ("Ready", {**BARE, "address_live": True, "port_open": True}, False),
        ("Ready", {**BARE, "ready": True}, True),
        ("Complete", {}, False),
        ("Complete", {"state": "succeeded", **BARE}, True),
        # gone past it: a short role must not block those that follow
        ("AddressKnown", {"state": "succeeded", **BARE}, True),
        ("Ready", {"state": "unknown", "ready": True}, False),
        ("Running", {"state": "terminating"}, False),
    ],
)
def test_a_role_starts_when_the_status_is_reached(status, facts, met):
    bench = Bench(job(role("master"), role("worker", 1, after("master", status)), role("other")))
    bench.step()
    bench.run_pending()
    bench.set("master", 0, **facts).step()
    assert (("worker", 0) in bench.actions(Create)) is met
    dependency = bench.job.role("worker").depends_on[0]
    answer = dependency_state(bench.job, bench.ledger, "worker", dependency, now=bench.now)
    assert answer.status == ("met" if met else "waiting")


@pytest.mark.parametrize(
    ("require", "status", "running", "succeeded", "met"),
    [
        ("All", "Running", 2, 0, False),
        ("All", "Running", 3, 0, True),
        ("All", "Running", 2, 1, True),
        ("Any", "Running", 0, 0, False),
        ("Any", "Running", 1, 0, True),
        ("All", "Complete", 1, 2, False),
        ("All", "Complete", 0, 3, True),
        ("Any", "Complete", 2, 1, True),
    ],
)
def test_all_or_any_of_the_instances(require, status, running, succeeded, met):
    needs = after("a", status, require=require)
    bench = Bench(job(role("a", 3), role("b", 1, needs)))
    bench.step()
    for index in range(running):
        bench.set("a", index, state="running")
    for index in range(running, running + succeeded):
        bench.end("a", index)
    bench.step()
    assert (("b", 0) in bench.actions(Create)) is met


def test_roles_without_instances():
    bench = Bench(job(role("a", 0), role("b", 1, "a")))
    bench.step()
    assert bench.actions(Create) == [("b", 0)]
    bench = Bench(job(role("a", 0), role("b", 1, after("a", require="Any"))))
    bench.step()
    assert (bench.state, bench.ledger.roles["b"].reason) == ("Failed", reasons.DEPENDENCY_FAILED)


def test_nothing_is_created_before_the_first_snapshot():
    bench = Bench(job())
    assert bench.decide(blind=True).actions == ()
    assert bench.state == "Pending"
    bench.step()
    assert bench.actions(Create) == [("worker", 0)]


def test_a_role_is_created_only_when_it_is_activated():
    bench = Bench(job(role("a"), role("b")), activate_all=False)
    bench.step()
    assert bench.last.actions == ()
    assert bench.ledger.roles["a"].reason == reasons.WAITING_FOR_ACTIVATION
    bench.request("activate", "b").step()
    assert bench.actions(Create) == [("b", 0)]


def test_create_all_hold_holds_everything_and_releases_when_activated_and_met():
    spec = job(role("master"), role("worker", 2, "master"), startup="createAllHold")
    bench = Bench(spec, activate_all=False)
    bench.step()
    held = [(a.role, a.index, a.held) for a in bench.last.actions if isinstance(a, Create)]
    assert held == [("master", 0, True), ("worker", 0, True), ("worker", 1, True)]
    bench.step()
    assert bench.last.actions == ()
    assert bench.of("worker", 0).reason == reasons.WAITING_FOR_DEPENDENCY
    assert bench.of("worker", 0).state == "pending"
    bench.request("activate", "worker").step()
    assert bench.last.actions == ()
    bench.request("activate", "master").step()
    assert bench.actions(Release) == [("master", 0)]
    bench.run_pending()
    bench.step()
    assert bench.actions(Release) == [("worker", 0), ("worker", 1)]
    bench.settle()
    assert bench.state == "Running"


def test_a_release_is_repeated_until_the_instance_is_let_go():
    bench = Bench(job(role("a"), startup="createAllHold"), activate_all=False)
    bench.step()
    bench.request("activate", "a").decide()
    assert bench.actions(Release) == [("a", 0)]
    bench.decide()
    assert bench.actions(Release) == [("a", 0)]
    bench.act()
    bench.decide()
    assert bench.actions(Release) == []
    assert len(bench.said(reasons.RELEASED)) == 1


def test_a_held_instance_that_claims_an_address_is_not_live():
    bench = Bench(job(role("a"), role("b", 1, "a"), startup="createAllHold"), activate_all=False)
    bench.step()
    bench.set("a", 0, address_live=True).step()
    assert not bench.of("a").phase.readiness.address_live
    assert not bench.of("b").phase.released


@pytest.mark.parametrize(("listener", "released"), [("Each", False), ("Any", True)])
def test_a_restarted_instance_checks_again_unless_one_listens_for_all(listener, released):
    spec = job(
        role("master"),
        role("worker", 2, after("master", listener=listener)),
    )
    bench = Bench(spec).settle()
    bench.set("master", 0, address_live=False)
    bench.end("worker", 0, 1).settle(starting=False)
    assert (("worker", 0) in [(o.role, o.index) for o in bench.objects.values()]) is released


@pytest.mark.parametrize(
    ("answer", "reads", "expected"),
    [
        ("Auto", False, "Confirmation"),
        ("Auto", True, "List"),
        ("List", False, "List"),
        ("Confirmation", True, "Confirmation"),
    ],
)
def test_what_a_waiting_instance_receives(answer, reads, expected):
    files = (FileTemplate(path="hosts", content="", reads_addresses=reads),)
    spec = role("worker", 1, after("master", answer=answer), files=files)
    assert initializer_answer(spec) == expected
    bench = Bench(job(role("master"), spec, startup="createAllHold"))
    bench.step()
    bench.run_pending()
    bench.step()
    (release,) = [a for a in bench.last.actions if isinstance(a, Release)]
    assert release.answer == expected


def test_a_timeout_fails_the_waiting_role_at_once():
    bench = Bench(job(role("a"), role("b", 1, after("a", "Ready", timeout_seconds=100))))
    bench.step()
    bench.set("a", 0, state="running", ready=False).step()
    bench.step(seconds=99.5)
    assert bench.last.wake_at == bench.now + 0.5, "the time-out comes before the next poll"
    assert bench.state != "Failed"
    bench.step(seconds=0.5)
    assert (bench.state, bench.ledger.job.reason) == ("Failed", reasons.DEPENDENCY_TIMEOUT)
    assert bench.states() == {"a": "Stopped", "b": "Failed"}
    assert bench.actions(Delete) == [("a", 0)]
    assert bench.ledger.job.root_cause is not None
    assert bench.ledger.job.root_cause.id == "dependency-timeout"


def test_an_unmet_dependency_is_looked_at_again_every_poll_seconds():
    bench = Bench(job(role("a"), role("b", 1, after("a", "Ready", poll_seconds=3))))
    bench.step()
    bench.set("a", 0, state="running", ready=False).step()
    assert bench.last.wake_at == bench.now + 3


def test_the_clock_runs_only_while_nothing_but_this_dependency_holds_the_role():
    needs = (after("a", "Complete", timeout_seconds=1e6), after("b", "Ready", timeout_seconds=100))
    bench = Bench(job(role("a"), role("b"), role("c", 1, *needs)))
    bench.step()
    bench.set("a", 0, state="running").set("b", 0, state="running", ready=False)
    bench.step(seconds=500)
    assert bench.ledger.roles["c"].waits == {}
    bench.end("a").step()
    assert bench.ledger.roles["c"].waits == {"b/Ready": begun(bench.now)}
    bench.step(seconds=99)
    assert bench.state != "Failed"
    bench.step(seconds=2)
    assert bench.ledger.roles["c"].reason == reasons.DEPENDENCY_TIMEOUT


def test_the_clock_of_a_gang_starts_when_it_was_admitted_and_runs():
    needs = after("a", "Ready", timeout_seconds=100)
    bench = Bench(job(role("a"), role("b", 1, needs), gang="volcano", min_available=1))
    bench.step()
    bench.set("a", 0, scheduled=False).step(seconds=500)
    assert bench.ledger.roles["b"].waits == {}
    bench.set("a", 0, scheduled=True).step(seconds=500)
    assert bench.ledger.roles["b"].waits == {}, "it has its place, and yet to pull its image"
    bench.set("a", 0, state="running", ready=False).step()
    assert bench.ledger.roles["b"].waits == {"a/Ready": begun(bench.now)}


def test_a_pause_starts_the_clock_again():
    bench = Bench(job(role("a"), role("b", 1, after("a", "Ready", timeout_seconds=100))))
    bench.step()
    bench.set("a", 0, state="running", ready=False).step(seconds=90)
    bench.request("pause").step()
    bench.step(seconds=1000)
    bench.request("resume").step()
    assert bench.state != "Failed"
    assert bench.ledger.roles["b"].waits == {}
    bench.run_pending()
    bench.set("a", 0, ready=False).step()
    assert bench.ledger.roles["b"].waits == {"a/Ready": begun(bench.now)}


def test_a_failed_dependency_fails_the_whole_chain_at_once():
    spec = job(
        role("a", restart_policy="Never"),
        role("b", 1, after("a", "Complete")),
        role("c", 1, after("b", "Complete")),
        role("free", restart_policy="Never"),
        failure="All",
    )
    bench = Bench(spec).settle()
    bench.end("a", 0, 3).step()
    assert bench.states() == {"a": "Failed", "b": "Failed", "c": "Failed", "free": "Running"}
    assert bench.ledger.roles["c"].reason == reasons.DEPENDENCY_FAILED
    assert bench.state == "Running"
    bench.end("free", 0, 1).step()
    assert bench.state == "Failed"


def test_what_never_ran_as_its_dependency_failed_says_for_whom_it_waited():
    chain = job(
        role("prepare", 2, restart_policy="Never"),
        role("train", 2, after("prepare", "Complete")),
        role("evaluate", 1, after("train", "Complete")),
        role("other"),
    )
    bench = Bench(chain).settle()
    bench.end("prepare", 1, 3).settle()
    assert bench.state == "Failed"
    roles = bench.ledger.roles
    assert [(roles[name].state, roles[name].reason) for name in ("train", "evaluate", "other")] == [
        ("Stopped", reasons.DEPENDENCY_FAILED),
        ("Stopped", reasons.DEPENDENCY_FAILED),
        ("Stopped", reasons.JOB_FAILED),
    ]
    why = "waited for prepare-1, which failed"
    assert roles["train"].message == f"never ran: {why}"
    assert roles["evaluate"].message == f"never ran: waited for train, which {why}"
    for name in ("train", "evaluate"):
        entry = bench.of(name)
        assert (entry.state, entry.reason) == ("stopped", reasons.NOT_NEEDED)
        assert why in entry.message


def test_a_limit_of_the_job_that_ends_it_is_also_a_failure_of_whom_others_waited_for():
    spec = job(role("prepare"), role("train", 1, after("prepare", "Complete")))
    bench = Bench(replace(spec, restart=replace(spec.restart, max_restarts=0))).settle()
    bench.end("prepare", 0, 3).settle()
    assert bench.ledger.job.reason == reasons.MAX_RESTARTS_EXCEEDED
    assert bench.ledger.roles["train"].message == "never ran: waited for prepare-0, which failed"


def test_what_something_else_kept_from_running_blames_no_dependency():
    chain = job(role("prepare"), role("train", 1, after("prepare", "Complete")))
    bench = Bench(chain).settle()
    bench.request("kill").settle()
    train, waited = (
        bench.ledger.roles["train"],
        "it waited, as 0 of 1 instances of prepare are Complete",
    )
    assert (train.reason, train.message) == (
        reasons.JOB_STOPPED,
        f"never started: {waited}; the job ended: Killed",
    )
    assert bench.of("train").message == f"never started: {waited}"


def test_the_root_cause_is_the_failure_behind_the_failed_dependency():
    spec = job(
        role("a", restart_policy="Never"),
        role("b", 1, after("a", "Complete")),
        failure_targets=("b",),
    )
    bench = Bench(spec).settle()
    bench.end("a", 0, 137, reason="OOMKilled").step()
    assert bench.ledger.job.reason == reasons.DEPENDENCY_FAILED
    cause = bench.root_cause
    assert (cause.id, cause.role, cause.exit_code) == ("host-out-of-memory", "a", 137)


@pytest.mark.parametrize(
    ("say", "expected"),
    [
        pytest.param(lambda b: b, "waiting", id="waiting"),
        pytest.param(lambda b: b.set("a", 0, ready=True), "met", id="met"),
        pytest.param(lambda b: b.end("a", 0, 1), "failed", id="failed"),
        pytest.param(lambda b: b.later(700), "timed_out", id="timed-out"),
        pytest.param(lambda b: b.request("stop"), "failed", id="the-job-was-stopped"),
    ],
)
def test_a_sensor_gets_the_same_answer_from_the_ledger(say, expected):
    spec = job(role("a", restart_policy="Never"), role("b", 1, after("a", "Ready")), role("other"))
    bench = Bench(spec)
    bench.step()
    bench.set("a", 0, state="running", ready=False, port_open=False).step()
    say(bench).step()
    (dependency,) = spec.role("b").depends_on
    answer = dependency_state(spec, bench.ledger, "b", dependency, now=bench.now)
    assert answer.status == expected
    assert answer.message
    with pytest.raises(ValueError, match="does not wait"):
        dependency_state(spec, bench.ledger, "a", dependency, now=bench.now)


def test_a_role_that_was_let_through_is_not_held_again_for_its_sensor():
    spec = job(role("a"), role("b", 1, "a"))
    bench = Bench(spec).settle()
    bench.lose("a").step()
    (dependency,) = spec.role("b").depends_on
    answer = dependency_state(spec, bench.ledger, "b", dependency, now=bench.now)
    assert answer.status == "met"


def test_an_address_whose_port_is_awaited_is_live_once_somebody_listens():
    bench = Bench(job(role("tracker"), role("worker", 1, after("tracker", "PortOpen")))).settle(
        starting=False
    )
    bench.run_pending()
    bench.set("tracker", 0, port_open=False).settle(starting=False)
    assert not bench.of("tracker").phase.readiness.address_live
    bench.set("tracker", 0, port_open=True).settle(starting=False)
    assert bench.of("tracker").phase.readiness.address_live


@pytest.mark.parametrize("status", ["Running", "AddressKnown", "PortOpen", "Ready", "Complete"])
def test_only_what_waits_for_others_to_be_up_waits_for_a_moment(status):
    spec = job(role("a"), role("b", 1, after("a", status)))
    bench = Bench(spec)
    bench.step()
    assert waits_briefly(spec, bench.ledger) == (status != "Complete")
    bench.run_pending()
    bench.end("a", 0, 0).step()
    assert not waits_briefly(spec, bench.ledger)


def test_a_role_that_nobody_asked_for_is_not_waited_for():
    spec = job(role("a"), role("b", 1, "a"))
    bench = Bench(spec, activate_all=False).request("activate", "a")
    bench.step()
    assert bench.of("b").reason == reasons.WAITING_FOR_DEPENDENCY
    assert not waits_briefly(spec, bench.ledger)
