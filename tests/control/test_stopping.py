"""How a job is stopped or killed, and what its end waits for."""

from __future__ import annotations

import pytest

from airflow_training.control import reasons
from airflow_training.control.actions import Delete
from airflow_training.control.conditions import reported_state
from airflow_training.control.model import Request
from airflow_training.control.root_cause import outcome_text
from airflow_training.control.transitions import SETTLE_SECONDS
from tests.builders import Bench, job, role, seen


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


@pytest.mark.parametrize(
    ("kind", "by", "told"),
    [
        pytest.param(
            "interrupt", "SIGINT", "Interrupted: SIGINT to the process that drove it", id="ctrl-c"
        ),
        pytest.param("stop", "ada", "Killed: stopped by ada", id="stop"),
        pytest.param("kill", "ada", "Killed: killed by ada", id="kill"),
    ],
)
def test_a_signal_to_the_driver_is_told_apart_from_what_somebody_asked_for(kind, by, told):
    bench = Bench(job()).settle()
    bench.ask(Request(id=1, kind=kind, by=by)).settle()
    job_ = bench.ledger.job
    assert outcome_text(state=job_.state, reason=job_.reason, message=job_.message) == told
    assert bench.said("JobStopped")[0].message == told
    assert bench.ledger.roles["worker"].message == f"the job ended: {job_.reason}"


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


def test_what_ran_and_ended_before_anybody_looked_counts_from_its_start():
    """Its job ended with its chief: nobody has seen the other one run, and it is to be paid."""
    bench = Bench(job())
    bench.decide()
    bench.act()
    assert bench.of().started_at is None
    bench.request("stop").decide()
    bench.end("worker", 0, started_at=bench.now - 7)
    bench.decide()
    assert bench.of().started_at == bench.now - 7
    assert bench.of().finished_at == bench.now


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


def test_what_was_ordered_before_a_pause_is_waited_for_when_the_job_ends():
    bench = Bench(job())
    bench.decide()
    bench.request("pause").decide()
    bench.request("stop").decide()
    assert not bench.last.done
    assert bench.decide(seconds=SETTLE_SECONDS).done


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


@pytest.mark.parametrize("kind", ["stop", "kill"])
def test_what_had_failed_by_itself_before_it_was_seen_is_not_told_as_stopped(kind):
    """Nobody may have driven the run for hours until somebody ends it."""
    bench = Bench(job(role(replicas=2))).settle()
    bench.end("worker", 0, 3).request(kind).decide()
    assert bench.state == "Stopped"
    failed = bench.of("worker", 0)
    assert (failed.state, failed.end.exit_code, failed.end.failure_class) == ("failed", 3, "user")
    bench.lose("worker", 1).decide()
    assert bench.of("worker", 1).state == "stopped"
    assert bench.charged() == {}


def test_a_role_that_has_trained_before_a_pause_is_not_told_as_never_started():
    bench = Bench(job()).settle()
    bench.run_pending()
    bench.settle()
    bench.request("pause").settle()
    bench.request("kill").settle()
    assert bench.ledger.roles["worker"].message == "the job ended: Killed"


def test_what_waits_to_be_restarted_with_another_has_run_before():
    bench = Bench(job(role(replicas=2), scope="Job", backoff_initial_seconds=100)).settle()
    bench.run_pending()
    bench.settle()
    bench.set("worker", 0, state="failed", exit_code=1)
    bench.settle()
    assert bench.of("worker", 1).message == "restarted with worker-0"
    bench.request("kill").settle()
    assert bench.of("worker", 1).message == "stopped by us"
