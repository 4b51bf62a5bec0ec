"""The states of a job that goes its way: submitted, running, paused, over."""

from __future__ import annotations

import pytest

from airflow_training.control import reasons
from airflow_training.control.actions import Create, Delete
from airflow_training.control.conditions import condition_of
from airflow_training.control.decide import decide
from airflow_training.control.first_ledger import new_ledger
from airflow_training.control.model import JobEntry, Request
from airflow_training.control.run_output import RunOutput
from tests.builders import Bench, job, role, snapshot


def test_an_undisturbed_job_goes_through_its_states():
    bench = Bench(job(role("master"), role("worker", 2, "master")))
    story = []
    for _ in range(6):
        bench.step()
        story.append((bench.state, bench.ledger.job.condition))
        bench.run_pending()
    bench.end("master")
    for index in range(2):
        bench.end("worker", index)
    bench.step()
    story.append((bench.state, bench.ledger.job.condition))
    assert list(dict.fromkeys(story)) == [
        ("Starting", "Submitting"),
        ("Running", "Running"),
        ("Succeeded", "Finished"),
    ]
    assert bench.last.done
    entry = bench.ledger.job
    assert entry.started_at is not None
    assert entry.running_at is not None
    assert entry.finished_at == bench.now


def test_every_request_is_acted_on_once():
    bench = Bench(job())
    bench.request("pause").request("resume").request("pause").step()
    assert bench.state == "Paused"
    assert bench.ledger.job.seen_request == 3
    bench.step()
    assert len(bench.said(reasons.PAUSED)) == 2


def test_pause_stops_the_instances_and_resume_is_no_restart():
    bench = Bench(job(role(replicas=2), active_deadline_seconds=100, max_restarts=0)).settle()
    started = bench.ledger.job.started_at
    bench.step(seconds=50)
    bench.request("pause").step()
    assert sorted(bench.actions(Delete)) == [("worker", 0), ("worker", 1)]
    assert bench.of().state == "terminating"
    bench.step(seconds=1000)
    assert (bench.state, bench.ledger.job.condition) == ("Paused", "Paused")
    assert bench.of().state == "pending"
    assert bench.objects == {}
    bench.request("resume").settle()
    assert bench.state == "Running"
    assert bench.charged() == {}
    assert bench.of().attempt == 1  # another object, so another number, and nobody pays for it
    assert bench.of().restarts == 0
    assert bench.ledger.job.started_at == started
    bench.step(seconds=40)
    assert bench.state == "Running"
    bench.step(seconds=20)
    assert (bench.state, bench.ledger.job.reason) == ("Failed", reasons.DEADLINE_EXCEEDED)


def test_a_script_that_ends_well_because_of_a_pause_has_not_finished():
    bench = Bench(job()).settle()
    bench.request("pause").decide()
    bench.end("worker").settle(starting=False)
    assert bench.state == "Paused"
    assert not bench.of().final


def test_a_suspended_job_starts_paused():
    bench = Bench(job(suspend=True))
    bench.step(seconds=500)
    assert (bench.state, bench.last.actions) == ("Paused", ())
    bench.request("resume").settle()
    assert bench.state == "Running"
    assert bench.ledger.job.paused_seconds == 0.0


def test_what_was_activated_while_paused_starts_on_resume():
    bench = Bench(job(suspend=True), activate_all=False)
    bench.request("activate", "worker").step()
    assert bench.last.actions == ()
    bench.request("resume").settle()
    assert bench.state == "Running"


def test_an_unreachable_node_is_named_and_nothing_is_claimed():
    bench = Bench(job()).settle()
    bench.set("worker", 0, state="unknown", node="n7")
    bench.request("stop").decide(seconds=1)
    bench.decide(seconds=10_000)
    assert not bench.last.done
    assert "n7" in bench.ledger.job.message
    bench.lose("worker", 0)
    assert bench.decide().done


def test_while_the_runtime_does_not_answer_a_job_is_not_over():
    bench = Bench(job()).settle()
    bench.request("stop")
    bench.objects.clear()
    bench.reachable = False
    assert not bench.decide().done
    bench.reachable = True
    assert bench.decide().done


def test_terminal_states_never_change_within_an_epoch():
    bench = Bench(job()).settle()
    bench.end("worker").step()
    done = bench.ledger
    for kind in ("stop", "pause", "resume", "scale", "activate"):
        bench.request(kind, "worker", 3).step()
    assert bench.ledger.job.state == done.job.state
    assert bench.ledger.roles == done.roles
    assert bench.ledger.instances == done.instances


def test_a_deadline_counts_from_the_first_instance_that_runs():
    bench = Bench(job(active_deadline_seconds=60))
    bench.decide(blind=True)
    bench.step(seconds=1000)
    bench.step(seconds=1000)
    bench.run_pending()
    bench.step()
    assert bench.last.wake_at == bench.now + 60
    bench.step(seconds=59)
    assert bench.state == "Running"
    bench.step(seconds=1)
    assert (bench.state, bench.ledger.job.reason) == ("Failed", reasons.DEADLINE_EXCEEDED)
    assert bench.ledger.job.root_cause is not None
    assert bench.ledger.job.root_cause.id == "time-limit"


def test_instances_are_created_when_they_are_there_not_when_that_is_decided():
    bench = Bench(job(role(replicas=3)))
    bench.step()
    assert bench.actions(Create) == [("worker", 0), ("worker", 1), ("worker", 2)]
    assert not bench.said(reasons.INSTANCES_CREATED)
    bench.lose("worker", 2)  # the runtime refuses it for now
    bench.step()
    bench.end("worker", 0).step()
    (told,) = bench.said(reasons.INSTANCES_CREATED)
    assert (told.role, told.message) == ("worker", "3 instances")
    assert bench.ledger.roles["worker"].created == 0
    story = [each.reason for each in bench.events]
    assert story.index(reasons.JOB_STARTED) < story.index(reasons.INSTANCES_CREATED)


def test_what_can_never_be_created_was_not():
    bench = Bench(job(role(replicas=2, backoff_limit=0), max_restarts=0))
    bench.step()
    bench.set("worker", 0, state="failed", reason=reasons.CANNOT_BE_CREATED)
    bench.lose("worker", 1)
    bench.step()
    assert bench.state == "Failed"
    assert not bench.said(reasons.INSTANCES_CREATED)


def test_a_role_of_which_nothing_is_heard_does_not_run_and_its_return_is_told():
    bench = Bench(job(role("worker", 2))).settle()
    bench.set("worker", 0, state="unknown", node="n7").decide()
    assert bench.ledger.roles["worker"].state == "Running", "one of them is known to run"
    bench.set("worker", 1, state="unknown", node="n7").decide()
    shown = bench.ledger.roles["worker"]
    assert (shown.state, shown.reason) == ("Starting", reasons.INSTANCE_UNKNOWN)
    for index in (0, 1):
        bench.set("worker", index, state="running", node="n7")
    bench.decide()
    shown = bench.ledger.roles["worker"]
    assert (shown.state, shown.reason, shown.message) == ("Running", reasons.RUNNING, "")
    told = [each for each in bench.events if each.reason == reasons.INSTANCE_KNOWN_AGAIN]
    assert [(each.index, each.message) for each in told] == [
        (0, "is heard from again: running on n7"),
        (1, "is heard from again: running on n7"),
    ]
    assert bench.charged() == {}


def test_a_role_that_is_unknown_is_refused_with_a_word():
    bench = Bench(job()).request("activate", "nobody")
    bench.step()
    assert "nobody" in bench.said(reasons.REQUEST_REFUSED)[0].message


def test_requests_are_taken_in_the_order_of_their_ids():
    spec = job(role())
    ledger = new_ledger(spec, now=0.0, activate_all=True)
    requests = [Request(id=2, kind="reopen"), Request(id=1, kind="stop")]
    decision = decide(spec, ledger, requests, snapshot(), 1.0)
    assert (decision.new_ledger.job.state, decision.new_ledger.job.epoch) == ("Starting", 1)


@pytest.mark.parametrize(
    ("state", "facts", "expected"),
    [
        ("Pending", {}, "Received"),
        ("Queued", {}, "Queued"),
        ("Starting", {"all_seen": False}, "Submitting"),
        ("Starting", {}, "Submitted"),
        ("Restarting", {"all_seen": False}, "Submitting"),
        ("Running", {}, "Running"),
        ("Running", {"reachable": False}, "RuntimeUnknown"),
        ("Paused", {}, "Paused"),
        ("Stopped", {"drained": False}, "StopRequested"),
        ("Stopped", {}, "Stopped"),
        ("Failed", {}, "Failed"),
        ("Failed", {"any_created": False}, "SubmitFailed"),
        ("Failed", {"reachable": False}, "Failed"),
        ("Succeeded", {}, "Finished"),
    ],
)
def test_the_condition_beside_each_state(state, facts, expected):
    given = {"reachable": True, "all_seen": True, "any_created": True} | facts
    entry = JobEntry(state=state, drained=given.pop("drained", True))
    assert condition_of(entry, **given) == expected


def test_a_job_of_which_nothing_could_be_created_has_failed_to_be_submitted():
    bench = Bench(job(schedule_timeout_seconds=10))
    bench.decide()
    bench.decide(seconds=10)
    bench.decide(seconds=10)
    assert (bench.state, bench.ledger.job.condition) == ("Failed", "SubmitFailed")


@pytest.mark.parametrize(("size", "warned"), [(0, True), (12, False)])
def test_a_declared_output_that_is_empty_is_told(size, warned):
    bench = Bench(job()).settle()
    output = RunOutput(uri="s3://out", bytes=size, digest="sha256:0")
    bench.end("worker", 0, 0, output=output).settle()
    assert bench.state == "Succeeded"
    assert warned == any(each.reason == reasons.OUTPUT_EMPTY for each in bench.events)


def test_what_an_instance_waits_for_before_its_command_starts_is_told_once():
    bench = Bench(job()).request("activate", "worker")
    bench.decide()
    bench.act()
    waits = "waits until port 4711 is free: it is still in use"
    for message in ("", waits, waits):
        bench.set("worker", 0, reason=reasons.CHECKING_ENVIRONMENT, message=message).decide()
    assert [each.message for each in bench.said(reasons.CHECKING_ENVIRONMENT)] == [waits]


def test_a_helper_that_died_is_told_once():
    bench = Bench(job()).settle()
    died = {"reason": "HelperDied", "message": "container 'proxy' died with exit code 1 (Error)"}
    bench.set("worker", 0, **died).settle().settle()
    (event,) = bench.said("HelperDied")
    assert (event.message, event.level, event.index) == (died["message"], "warning", 0)
    assert bench.state == "Running"
