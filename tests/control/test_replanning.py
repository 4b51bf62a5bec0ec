"""A run goes on under another resolved job: who may, who stops, who starts, and in which order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_training.control import reasons
from airflow_training.control.actions import Create, Delete
from airflow_training.control.model import Event
from airflow_training.control.replanning import replan_hindrance, replan_ledger
from airflow_training.documents.resolved import ResolvedJob
from tests.builders import Bench, job, role
from tests.examples import examples

WHY = Event(at=1000.0, reason=reasons.REPLANNED, message="a node is gone", data={"cost_steps": 3})


def workers(number: int) -> ResolvedJob:
    return job(role("worker", number, chief=True, backoff_limit=99), max_restarts=99)


def move(bench: Bench, new: ResolvedJob) -> None:
    """Do what the loop does: from here on the store has the new job and the new ledger."""
    event = replace(WHY, at=bench.now)
    bench.ledger, events = replan_ledger(new, bench.ledger, event, generation=bench.generation)
    bench.job = new
    bench.events += events


@pytest.mark.parametrize(("before", "after"), [(3, 2), (2, 3), (2, 2)])
def test_all_of_the_old_split_is_stopped_before_anything_of_the_new_one_starts(before, after):
    bench = Bench(workers(before)).settle()
    old = set(bench.objects)
    move(bench, workers(after))
    assert bench.state == "Restarting"
    assert bench.ledger.job.message == "a node is gone"
    bench.decide()
    assert bench.actions(Delete) == [("worker", i) for i in range(before)]
    assert bench.actions(Create) == []
    bench.act()
    bench.settle()
    assert old.isdisjoint(bench.objects)
    alive = {(each.index, each.job_attempt) for each in bench.objects.values()}
    assert alive == {(i, 1) for i in range(after)}
    assert bench.state == "Running"
    assert bench.ledger.roles["worker"].replicas == after
    assert bench.ledger.job.restarts == ()
    assert bench.of("worker", 0).restarts == 0


def test_an_old_instance_that_cannot_be_reached_holds_the_new_split_back():
    bench = Bench(workers(2)).settle()
    bench.set("worker", 1, state="unknown").step()
    move(bench, workers(1))
    bench.decide()
    bench.objects.pop(bench.uid("worker", 0))
    bench.decide()
    assert bench.actions(Create) == []
    bench.lose("worker", 1).settle()
    assert {each.job_attempt for each in bench.objects.values()} == {1}


def test_a_backoff_that_was_running_is_over():
    bench = Bench(job(role("worker", 2), scope="Job", backoff_initial_seconds=100.0)).settle()
    bench.end("worker", 1, exit_code=1).step()
    bench.step()
    move(bench, job(role("worker", 1), scope="Job", backoff_initial_seconds=100.0))
    bench.settle()
    assert [each.index for each in bench.objects.values()] == [0]
    assert len(bench.ledger.job.restarts) == 1, "only the failure is counted"


@pytest.mark.parametrize(
    ("happens", "why"),
    [
        pytest.param(lambda b: None, "", id="it-runs"),
        pytest.param(lambda b: b.request("pause").step(), "it is paused", id="paused"),
        pytest.param(lambda b: b.request("stop").settle(), "it is over", id="stopped"),
        pytest.param(
            lambda b: b.end("worker", 1).step(), "worker-1 has ended", id="a-rank-has-succeeded"
        ),
        pytest.param(
            lambda b: b.request("scale", "worker", 3).settle(),
            "role worker was scaled by hand",
            id="scaled",
        ),
        pytest.param(lambda b: b.end("worker", 1, exit_code=1).step(), "", id="a-rank-is-replaced"),
    ],
)
def test_when_a_split_can_change(happens, why):
    bench = Bench(workers(2)).settle()
    happens(bench)
    assert replan_hindrance(bench.job, bench.ledger) == why


def test_a_run_that_has_not_started_does_not_change():
    assert replan_hindrance(workers(2), Bench(workers(2)).ledger) == "it has not started"


def test_a_role_without_ranks_may_have_ended():
    made = job(role("prepare", rank_offset=None), role("worker", 2))
    bench = Bench(made).settle()
    bench.end("prepare").settle()
    assert replan_hindrance(made, bench.ledger) == ""


HAPPENS = st.sampled_from(["runs", "starts", "fails", "vanishes", "terminates"])


@settings(deadline=None, max_examples=examples(100))
@given(
    before=st.integers(1, 4),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    data=st.data(),
)
def test_wherever_the_holder_dies_there_is_one_of_each_and_only_of_the_new_split(
    before, sizes, data
):
    """The store has the old job and ledger or the new ones, never one of each."""
    bench = Bench(workers(before)).settle(starting=data.draw(st.booleans()))
    for number, size in enumerate(sizes, start=1):
        for uid, each in list(bench.objects.items()):
            happens = data.draw(HAPPENS)
            if happens == "vanishes":
                del bench.objects[uid]
            elif happens == "fails":
                bench.end("worker", each.index, exit_code=1)
            elif happens == "terminates":
                bench.objects[uid] = replace(each, state="terminating")
            elif happens == "runs":
                bench.objects[uid] = replace(each, state="running")
        if data.draw(st.booleans()):
            bench.decide()
        move(bench, workers(size))
        for _ in range(data.draw(st.integers(0, 3))):
            bench.generation += data.draw(st.integers(0, 1))  # another holder, the same store
            bench.decide()
            if data.draw(st.booleans()):
                bench.act()
            places = [each.index for each in bench.objects.values()]
            assert len(places) == len(set(places)), "one live instance of each index"
            attempts = {each.job_attempt for each in bench.objects.values()}
            assert len(attempts) <= 1, "splits never meet"
        if data.draw(st.booleans()):
            bench.later(10).settle()
            assert bench.ledger.job.job_attempt == number
    bench.later(10).settle()
    alive = {(each.index, each.job_attempt) for each in bench.objects.values()}
    assert alive == {(i, len(sizes)) for i in range(sizes[-1])}
