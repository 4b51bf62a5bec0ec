"""Instances that find no machine yet, or wait in a queue."""

from __future__ import annotations

from typing import Any

from airflow_training.control import reasons
from airflow_training.control.waits import waits_since
from tests.builders import Bench, job, role


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


def test_what_keeps_a_placed_instance_from_starting_is_told_once_and_since_when():
    bench = Bench(job(role(replicas=2)))
    bench.step()
    since = bench.now
    words = "container 'main': secret \"wandb\" not found"
    for index in range(2):
        bench.set("worker", index, reason="CreateContainerConfigError", message=words)
    bench.step(seconds=5)
    assert not bench.said("CreateContainerConfigError")
    for _ in range(3):
        bench.step(seconds=6)
    (told,) = bench.said("CreateContainerConfigError")
    assert (told.role, told.message) == ("worker", words)
    assert waits_since(bench.of("worker", 1)) == since
    bench.run_pending()
    bench.step()
    assert waits_since(bench.of("worker", 1)) is None


def test_a_pull_that_fails_again_and_again_is_told_once_a_minute():
    bench = Bench(job())
    bench.step()
    for number in range(14):
        reason = ("ErrImagePull", "ImagePullBackOff")[number % 2]
        bench.set("worker", 0, reason=reason, message=f"{reason} of typo:1")
        bench.step(seconds=6)
    told = [*bench.said("ErrImagePull"), *bench.said("ImagePullBackOff")]
    assert len(told) == 2
