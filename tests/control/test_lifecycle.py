"""Requests, pauses, deadlines, epochs, generations, and the way a job ends."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_training.control import reasons
from airflow_training.control.actions import Create, Delete
from airflow_training.control.conditions import condition_of, reported_state
from airflow_training.control.decide import decide, new_ledger
from airflow_training.control.model import JobEntry, Request
from airflow_training.control.run_output import RunOutput
from airflow_training.control.transitions import SETTLE_SECONDS
from tests.builders import Bench, job, role, seen, snapshot


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


def test_a_job_that_is_stopped_before_it_started_is_over_at_once():
    bench = Bench(job()).request("stop")
    assert bench.decide(blind=True).done
    assert (bench.state, bench.ledger.job.condition) == ("Stopped", "Stopped")
    assert (bench.of().state, bench.of().reason) == ("stopped", reasons.NOT_NEEDED)


def test_stop_ends_everything_and_is_over_when_nothing_is_alive():
    bench = Bench(job(role(replicas=2))).settle()
    decision = bench.request("stop").decide()
    assert bench.state == "Stopped"
    assert bench.ledger.job.condition == "StopRequested"
    assert reported_state(bench.ledger.job) == "Running"
    assert not decision.done
    assert bench.ledger.job.finished_at is None
    for index in range(2):
        bench.set("worker", index, state="terminating", state_since=bench.now)
    assert not bench.decide().done
    assert {bench.of("worker", index).state for index in range(2)} == {"terminating"}
    bench.lose("worker", 0).end("worker", 1, 143, signal=15)
    assert bench.decide().done
    assert reported_state(bench.ledger.job) == "Stopped"
    assert (bench.of("worker", 1).state, bench.of("worker", 1).reason) == ("stopped", "Stopped")
    assert (bench.of("worker", 1).end.exit_code, bench.of("worker", 1).end.signal) == (143, 15)
    assert bench.charged() == {}


def graces(bench: Bench) -> list[float]:
    return [each.grace_seconds for each in bench.last.actions if isinstance(each, Delete)]


def test_kill_leaves_no_time_to_save():
    bench = Bench(job(grace_seconds=600)).settle()
    bench.request("kill").decide()
    assert (bench.state, bench.ledger.job.message) == ("Stopped", "killed")
    assert graces(bench) == [2.0]


def test_kill_ends_at_once_what_is_being_stopped():
    bench = Bench(job(grace_seconds=600)).settle()
    bench.request("stop").decide()
    assert graces(bench) == [600.0]
    bench.set("worker", 0, state="terminating", state_since=bench.now)
    assert bench.decide(seconds=10).actions == ()
    bench.request("kill").decide()
    assert graces(bench) == [2.0]
    bench.lose("worker", 0).decide()
    assert bench.ledger.job.drained
    assert bench.request("kill").decide().done
    assert len(bench.said(reasons.STOP_REQUESTED)) == 2


def test_a_run_that_is_opened_again_has_its_grace_again():
    bench = Bench(job(grace_seconds=600)).settle()
    bench.request("kill").decide()
    bench.lose("worker", 0).decide()
    bench.request("reopen").settle()
    bench.request("stop").decide()
    assert graces(bench) == [600.0]


def test_an_instance_that_was_ordered_but_never_seen_is_waited_for():
    """The create may have been carried out a moment before the job was stopped."""
    bench = Bench(job())
    bench.decide()
    bench.request("stop").decide()
    assert not bench.last.done
    assert bench.last.wake_at == bench.now + SETTLE_SECONDS
    late = seen("worker", 0, "running", generation=1)
    bench.objects[late.uid] = late
    bench.decide()
    assert bench.actions(Delete) == [("worker", 0)]
    assert not bench.last.done
    bench.act()
    assert bench.decide().done


def test_nothing_that_was_never_seen_holds_the_end_for_ever():
    bench = Bench(job())
    bench.decide()
    bench.request("stop").decide()
    assert bench.decide(seconds=SETTLE_SECONDS).done


def test_a_delete_that_takes_too_long_is_ordered_again():
    bench = Bench(job(grace_seconds=30)).settle()
    bench.request("stop").decide()
    bench.set("worker", 0, state="terminating", state_since=bench.now)
    assert bench.decide(seconds=10).actions == ()
    assert bench.last.wake_at is not None
    bench.decide(seconds=60)
    assert bench.actions(Delete) == [("worker", 0)]


def test_a_pod_says_itself_how_long_its_end_may_take():
    template = {"spec": {"terminationGracePeriodSeconds": 7}}
    bench = Bench(job(role(template=template), grace_seconds=30)).settle()
    bench.request("stop").decide()
    assert [action.grace_seconds for action in bench.last.actions] == [7.0]


@pytest.mark.parametrize(
    ("policy", "removed"), [("Running", False), ("None", False), ("All", True)]
)
def test_clean_pod_policy_speaks_of_ended_objects_only(policy, removed):
    spec = job(role("master"), role("ps", tracked=False), clean_pod_policy=policy)
    bench = Bench(spec).settle()
    bench.end("master").settle(starting=False)
    assert bench.last.done
    left = [o.role for o in bench.objects.values()]
    assert left == ([] if removed else ["master"])


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


def test_an_instance_that_finds_no_place_ends_the_job():
    bench = Bench(job(role(replicas=2), schedule_timeout_seconds=600))
    bench.step()
    bench.set("worker", 1, scheduled=False, message="0/3 nodes fit")
    bench.run_pending()
    bench.step()
    bench.step(seconds=10)
    assert bench.last.wake_at == bench.now + 590
    bench.step(seconds=600)
    assert (bench.state, bench.ledger.job.reason) == ("Failed", reasons.SCHEDULE_TIMEOUT)
    assert "0/3 nodes fit" in bench.ledger.job.message


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


TOO_LARGE: dict[str, Any] = {
    "scheduled": False,
    "reason": reasons.NEVER_FITS,
    "message": "73 of 72 cpus",
}


def test_what_no_machine_could_take_waits_with_one_warning_for_its_role():
    bench = Bench(job(role(replicas=2), schedule_timeout_seconds=600))
    bench.step()
    for index in range(2):
        bench.set("worker", index, **TOO_LARGE)
        bench.step()
    (warning,) = bench.said(reasons.NEVER_FITS)
    assert (warning.level, warning.message) == ("warning", "73 of 72 cpus")
    assert (bench.state, bench.of().reason) == ("Starting", reasons.NEVER_FITS)
    role_entry = bench.ledger.roles["worker"]
    assert (role_entry.reason, role_entry.message) == (reasons.NEVER_FITS, "73 of 72 cpus")
    bench.set("worker", 0, **{**TOO_LARGE, "message": "73 of 64 cpus"}).step()
    assert len(bench.said(reasons.NEVER_FITS)) == 2
    bench.step(seconds=600)
    assert bench.ledger.job.reason == reasons.SCHEDULE_TIMEOUT
    assert "of 64 cpus" in bench.ledger.job.message


def test_what_no_machine_could_take_may_end_the_job_at_once():
    bench = Bench(job(role(replicas=2), never_fits="Fail"))
    bench.step()
    bench.set("worker", 1, **TOO_LARGE).step()
    assert (bench.state, bench.ledger.job.reason) == ("Failed", reasons.NEVER_FITS)
    assert bench.ledger.job.message == "worker-1: 73 of 72 cpus"


QUEUED: dict[str, Any] = {"scheduled": False, "reason": "SchedulingGated"}
PLACE = "couldn't assign flavors to pod set main: insufficient unused quota for cpu; place {} of 7"


def queued(bench: Bench, words: str, *, seconds: float = 0.0) -> list[str]:
    """Let the queue say something of all pods; return what has been told of it."""
    for index in range(2):
        bench.set("worker", index, **QUEUED, message=words)
    bench.step(seconds=seconds)
    return [each.message for each in bench.said("SchedulingGated")]


def a_queued_job() -> Bench:
    bench = Bench(job(role(replicas=2)))
    bench.step()
    return bench


def test_the_words_of_a_queue_are_told_once_for_a_role_and_again_when_they_change():
    bench = a_queued_job()
    first, then = PLACE.format(3), "its Workload is deactivated"
    assert queued(bench, first) == [], "most have their place in a moment"
    assert bench.last.wake_at is not None
    assert bench.last.wake_at <= bench.now + 10
    assert queued(bench, first, seconds=10) == [first]
    assert queued(bench, first, seconds=600) == [first]
    assert queued(bench, then, seconds=1) == [first, then]
    assert queued(bench, first, seconds=1) == [first, then, first]
    assert {(each.role, each.index) for each in bench.said("SchedulingGated")} == {("worker", None)}


def test_another_place_in_a_queue_is_told_once_a_minute():
    bench = a_queued_job()
    queued(bench, PLACE.format(7), seconds=10)
    for place in (6, 5, 4):
        assert queued(bench, PLACE.format(place), seconds=10) == [PLACE.format(7)]
    assert bench.last.wake_at is not None
    assert bench.last.wake_at <= bench.now + 30
    assert queued(bench, PLACE.format(4), seconds=30) == [PLACE.format(7), PLACE.format(4)]


def test_who_comes_into_the_queue_again_is_told_again():
    bench = a_queued_job()
    words = PLACE.format(1)
    queued(bench, words, seconds=10)
    for index in range(2):
        bench.set("worker", index, scheduled=True, reason="ContainerCreating", message="")
    bench.step()
    assert queued(bench, words, seconds=1) == [words, words]


def test_words_that_are_not_heard_for_a_while_are_not_told_again():
    bench = a_queued_job()
    words = PLACE.format(1)
    queued(bench, words, seconds=10)
    bench.decide(blind=True)
    bench.reachable = False
    bench.decide()
    bench.reachable = True
    assert queued(bench, words, seconds=1) == [words]


def test_a_held_instance_that_has_its_place_is_scheduled():
    spec = job(role("a"), role("b", 1, "a"), startup="createAllHold", schedule_timeout_seconds=5)
    bench = Bench(spec, activate_all=False)
    bench.step()
    bench.step(seconds=100)
    assert bench.state == "Starting"


def test_a_reopened_job_keeps_what_succeeded_and_tries_the_rest_again():
    bench = Bench(job(role(replicas=3, backoff_limit=0), max_restarts=0)).settle()
    bench.end("worker", 0).step()
    bench.end("worker", 1, 1).settle()
    assert bench.state == "Failed"
    assert bench.last.done
    bench.request("reopen").settle()
    assert (bench.state, bench.ledger.job.epoch) == ("Running", 1)
    assert bench.ledger.job.root_cause is None
    assert bench.of("worker", 0).attempt == 0
    assert [bench.of("worker", i).state for i in range(3)] == ["succeeded", "running", "running"]
    assert [bench.of("worker", i).epoch for i in (1, 2)] == [1, 1]
    bench.end("worker", 1).end("worker", 2).settle(starting=False)
    assert bench.state == "Succeeded"


def test_a_new_epoch_has_its_whole_budget():
    bench = Bench(job(role(backoff_limit=1), max_restarts=1)).settle()
    for _ in range(2):
        bench.end("worker", 0, 1).settle()
    assert bench.state == "Failed"
    bench.request("reopen").settle()
    bench.end("worker", 0, 1).settle()
    assert bench.state == "Running"
    assert [r.epoch for r in bench.ledger.job.restarts] == [0, 1]
    bench.end("worker", 0, 1).settle()
    assert bench.state == "Failed"


def test_a_reopened_success_is_a_success_again():
    bench = Bench(job(role("master"), role("ps", tracked=False))).settle()
    bench.end("master").settle(starting=False)
    bench.request("reopen").settle(starting=False)
    assert (bench.state, bench.ledger.job.epoch) == ("Succeeded", 1)
    assert bench.last.done


def test_reopening_a_running_job_replaces_its_instances_at_nobodys_cost():
    bench = Bench(job(max_restarts=0)).settle()
    bench.request("reopen").settle()
    assert (bench.state, bench.charged(), bench.of().epoch) == ("Running", {}, 1)


@pytest.mark.parametrize(
    ("facts", "deleted"),
    [
        pytest.param({}, False, id="its-own"),
        pytest.param({"epoch": 1}, True, id="another-epoch"),
        pytest.param({"job_attempt": 1}, True, id="another-job-attempt"),
        pytest.param({"attempt": 1}, True, id="another-attempt"),
        pytest.param({"generation": 2}, True, id="a-holder-that-lost-the-lease"),
        pytest.param({"generation": 9}, False, id="a-holder-that-came-later"),
        pytest.param({"generation": 9, "attempt": 7}, False, id="the-work-of-a-later-holder"),
        pytest.param({"index": 5}, True, id="no-such-instance"),
    ],
)
def test_what_is_not_ours_is_deleted_and_what_is_newer_is_left_alone(facts, deleted):
    spec = job()
    bench = Bench(spec, generation=4)
    bench.decide()
    stranger = seen(**({"state": "running", "generation": 4, "uid": "x"} | facts))
    decision = decide(spec, bench.ledger, [], snapshot(stranger), bench.now, generation=4)
    deletes = [a.uid for a in decision.actions if isinstance(a, Delete)]
    assert deletes == (["x"] if deleted else [])


def test_a_new_holder_adopts_what_lives():
    bench = Bench(job(role(replicas=2), role("other"))).settle()
    before = bench.ledger
    bench.generation = 2
    bench.step()
    assert bench.ledger is before
    assert bench.last.actions == ()


def test_what_was_made_before_its_holder_died_is_adopted_by_the_next():
    """The holder was killed between its create and its next look."""
    bench = Bench(job(role(replicas=2)))
    bench.step()
    assert all(not bench.of("worker", index).uid for index in range(2))
    bench.generation = 2
    assert bench.step().actions == ()
    bench.settle()
    assert (bench.state, bench.charged()) == ("Running", {})
    assert [bench.of("worker", index).attempt for index in range(2)] == [0, 0]


def test_nothing_new_is_created_beside_an_old_object_even_an_ended_one():
    bench = Bench(job()).settle()
    bench.end("worker", 0, 1)
    for _ in range(3):
        bench.decide()
        assert bench.actions(Create) == []
        assert bench.actions(Delete) == [("worker", 0)]


def test_old_news_of_the_same_object_are_not_believed():
    bench = Bench(job(role(replicas=2))).settle()
    bench.set("worker", 0, state="pending", address_live=False).step()
    assert bench.of().state == "running"
    bench.end("worker", 0).step()
    bench.set("worker", 0, state="running").step()
    assert bench.of().state == "succeeded"
    assert bench.charged() == {}


def test_a_job_whose_document_was_replaced_forgets_what_it_had():
    spec = job()
    bench = Bench(spec).settle()
    bench.request("activate").step()
    bench.ledger = new_ledger(spec, now=bench.now, activate_all=True, replaces=bench.ledger)
    bench.step()
    assert bench.actions(Delete) == [("worker", 0)]
    bench.settle()
    assert (bench.state, bench.of().epoch, bench.of().attempt) == ("Running", 1, 0)


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


def test_a_failure_while_nobody_watched_is_charged_once_by_the_next_holder():
    bench = Bench(job()).settle()
    bench.end("worker", 0, 1).decide()
    bench.generation = 2
    bench.settle()
    assert bench.charged() == {"user": 1}
    assert bench.of().attempt == 1


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


def test_an_old_object_that_shows_up_late_is_deleted_before_its_successor_is_ordered_again():
    bench = Bench(job()).settle()
    old = bench.objects[bench.uid("worker")]
    bench.end("worker", 0, 1).step()
    bench.decide()
    assert bench.actions(Create) == [("worker", 0)]
    bench.objects[old.uid] = old
    bench.decide()
    assert (bench.actions(Create), bench.actions(Delete)) == ([], [("worker", 0)])
    bench.act()
    bench.decide()
    assert bench.actions(Create) == [("worker", 0)]
    assert bench.charged() == {"user": 1}


def test_what_was_ordered_before_a_pause_is_waited_for_when_the_job_ends():
    bench = Bench(job())
    bench.decide()
    bench.request("pause").decide()
    bench.request("stop").decide()
    assert not bench.last.done
    assert bench.decide(seconds=SETTLE_SECONDS).done


@pytest.mark.parametrize(("size", "warned"), [(0, True), (12, False)])
def test_a_declared_output_that_is_empty_is_told(size, warned):
    bench = Bench(job()).settle()
    output = RunOutput(uri="s3://out", bytes=size, digest="sha256:0")
    bench.end("worker", 0, 0, output=output).settle()
    assert bench.state == "Succeeded"
    assert warned == any(each.reason == reasons.OUTPUT_EMPTY for each in bench.events)


@pytest.mark.parametrize("code", [0, 1])
def test_the_times_of_what_ended_unwatched_are_those_that_its_agent_wrote_down(code):
    bench = Bench(job(role("worker", 1, backoff_limit=0))).settle().later(60)
    times = (bench.now - 57, bench.now - 55)
    bench.end("worker", 0, code, started_at=times[0], finished_at=times[1]).settle()
    assert (bench.of().started_at, bench.of().finished_at) == times


def test_what_an_instance_waits_for_before_its_command_starts_is_told_once():
    bench = Bench(job()).request("activate", "worker")
    bench.decide()
    bench.act()
    waits = "waits until port 4711 is free: it is still in use"
    for message in ("", waits, waits):
        bench.set("worker", 0, reason=reasons.CHECKING_ENVIRONMENT, message=message).decide()
    assert [each.message for each in bench.said(reasons.CHECKING_ENVIRONMENT)] == [waits]


@pytest.mark.parametrize("exit_code", [0, 1])
def test_what_has_ended_gives_its_place_back_while_others_go_on(exit_code):
    spec = job(role("worker", 2, restart_policy="Never", min_failed="All"))
    bench = Bench(spec).settle()
    bench.end("worker", 0, exit_code, lingers=True).step()
    assert bench.actions(Delete) == [("worker", 0)]
    bench.settle()
    assert [each.index for each in bench.objects.values()] == [1]
    assert bench.of("worker", 0).state == ("failed" if exit_code else "succeeded")
    assert bench.state == "Running"


def test_a_job_is_not_over_while_anything_runs_beside_what_has_ended():
    bench = Bench(job(clean_pod_policy="None")).settle()
    bench.end("worker", 0, 0, lingers=True).decide()
    assert (bench.state, bench.ledger.job.drained) == ("Succeeded", False)
    bench.act()
    bench.settle()
    assert bench.ledger.job.drained


def test_a_helper_that_died_is_told_once():
    bench = Bench(job()).settle()
    died = {"reason": "HelperDied", "message": "container 'proxy' died with exit code 1 (Error)"}
    bench.set("worker", 0, **died).settle().settle()
    (event,) = bench.said("HelperDied")
    assert (event.message, event.level, event.index) == (died["message"], "warning", 0)
    assert bench.state == "Running"
