"""A job that needs all of its instances gives places back that it cannot use, and tries again."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_training.control import reasons
from airflow_training.control.actions import Create, Delete
from airflow_training.control.place_release import PATIENCE_SECONDS
from airflow_training.control.reports import ProgressReport
from tests.builders import Bench, after, job, role


def half_refused(**fields: Any) -> Bench:
    """Return a job of which worker-1 is refused again and again while worker-0 runs."""
    bench = Bench(job(role(replicas=2), **{"scope": "Job", **fields}))
    bench.step()
    bench.lose("worker", 1)
    bench.run_pending()
    bench.decide()
    return bench


def later(bench: Bench, seconds: float) -> None:
    bench.decide(seconds=seconds)


def test_places_are_given_back_when_nothing_moves():
    bench = half_refused()
    later(bench, PATIENCE_SECONDS - 1)
    assert not bench.said(reasons.PLACES_GIVEN_BACK)
    assert bench.last.wake_at is not None
    later(bench, 1)
    (told,) = bench.said(reasons.PLACES_GIVEN_BACK)
    assert told.message.startswith("1 instance refused for 120 s while 1 held their places")
    assert bench.actions(Delete) == [("worker", 0)]
    assert not bench.charged()
    assert [bench.of("worker", i).restarts for i in range(2)] == [0, 0]
    bench.act()
    restart_at = bench.ledger.job.restart_at
    assert restart_at is not None
    assert bench.now + 30 <= restart_at <= bench.now + 120
    bench.step(seconds=1)
    assert not bench.actions(Create)
    bench.step(seconds=120)
    assert bench.actions(Create) == [("worker", 0), ("worker", 1)]
    bench.settle()
    assert bench.state == "Running"
    assert bench.ledger.job.crowded_since is None


def test_two_jobs_do_not_come_back_at_the_same_moment():
    waits = set()
    for name in ("one", "two", "three"):
        bench = half_refused(name=name)
        later(bench, PATIENCE_SECONDS)
        waits.add(bench.ledger.job.restart_at)
    assert len(waits) == 3


def test_giving_back_does_not_put_off_the_limit_of_waiting():
    bench = half_refused(schedule_timeout_seconds=200)
    later(bench, PATIENCE_SECONDS)
    bench.act()
    for _ in range(30):
        bench.step(seconds=10)
        for uid in [uid for uid, each in bench.objects.items() if each.index == 1]:
            del bench.objects[uid]
    assert (bench.state, bench.ledger.job.reason) == ("Failed", reasons.SCHEDULE_TIMEOUT)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"scope": "Instance"}, id="each-is-of-use-alone"),
        pytest.param({"elastic": True}, id="goes-on-with-fewer"),
        pytest.param({"gang": "volcano", "startup": "createAllHold"}, id="a-gang-sees-to-it"),
    ],
)
def test_other_jobs_keep_their_places(fields):
    bench = half_refused(**fields)
    later(bench, 3 * PATIENCE_SECONDS)
    assert not bench.said(reasons.PLACES_GIVEN_BACK)


def test_a_job_that_trains_keeps_its_places():
    bench = half_refused()
    bench.set("worker", 0, progress=ProgressReport(step=7))
    later(bench, 3 * PATIENCE_SECONDS)
    assert not bench.said(reasons.PLACES_GIVEN_BACK)


def test_a_job_that_holds_nothing_has_nothing_to_give_back():
    bench = Bench(job(role(replicas=2), scope="Job"))
    bench.step()
    bench.objects.clear()
    later(bench, 3 * PATIENCE_SECONDS)
    assert not bench.said(reasons.PLACES_GIVEN_BACK)


def refuse(bench: Bench, name: str) -> None:
    """Let a role be refused for longer than anybody waits."""
    for _ in range(14):
        for uid in [uid for uid, each in bench.objects.items() if each.role == name]:
            del bench.objects[uid]
        bench.decide(seconds=10)


def test_a_training_without_reports_is_not_ended_for_a_helper_that_is_refused():
    bench = Bench(job(role("train"), role("board", tracked=False), scope="Role")).settle()
    bench.step(seconds=86400)
    bench.end("board", 0, 1).step(seconds=10)
    bench.step(seconds=5)
    refuse(bench, "board")
    assert not bench.said(reasons.PLACES_GIVEN_BACK)


def test_nor_for_a_role_that_comes_after_it():
    bench = Bench(job(role("train", 2), role("eval", 1, after("train", "Running")), scope="Job"))
    bench.step()
    bench.step()
    bench.run_pending()
    bench.step()
    refuse(bench, "eval")
    assert not bench.said(reasons.PLACES_GIVEN_BACK)


def test_nor_for_a_role_whose_task_begins_hours_later():
    bench = Bench(job(role("train", 2), role("eval"), scope="Job"), activate_all=False)
    bench.request("activate", "train").step()
    bench.settle()
    bench.step(seconds=7200)
    bench.request("activate", "eval").step()
    refuse(bench, "eval")
    assert not bench.said(reasons.PLACES_GIVEN_BACK)


@pytest.mark.parametrize("request_", ["pause", "reopen"])
def test_how_long_a_job_was_crowded_is_forgotten_where_it_begins_anew(request_):
    bench = half_refused(schedule_timeout_seconds=200)
    later(bench, PATIENCE_SECONDS)
    bench.act()
    if request_ == "pause":
        bench.request("pause").step(seconds=1)
        bench.step(seconds=5000)
        bench.request("resume").step(seconds=1)
    else:
        bench.request("stop").step(seconds=1)
        bench.settle()
        bench.request("reopen").step(seconds=1000)
    bench.step(seconds=1)
    assert bench.state == "Starting"
    bench.settle()
    assert bench.state == "Running"
    assert bench.said(reasons.INSTANCES_CREATED)[-1].message == "2 instances"


def test_nobody_is_asked_to_look_while_the_runtime_is_away():
    bench = half_refused()
    bench.reachable = False
    bench.decide(seconds=3 * PATIENCE_SECONDS)
    assert bench.last.wake_at is None or bench.last.wake_at > bench.now
