"""What the next holder of a run makes of what the one before has left."""

from __future__ import annotations

import pytest

from airflow_training.control.actions import Create, Delete
from airflow_training.control.decide import decide
from tests.builders import Bench, job, role, seen, snapshot


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


def test_a_failure_while_nobody_watched_is_charged_once_by_the_next_holder():
    bench = Bench(job()).settle()
    bench.end("worker", 0, 1).decide()
    bench.generation = 2
    bench.settle()
    assert bench.charged() == {"user": 1}
    assert bench.of().attempt == 1


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


@pytest.mark.parametrize("code", [0, 1])
def test_the_times_of_what_ended_unwatched_are_those_that_its_agent_wrote_down(code):
    bench = Bench(job(role("worker", 1, backoff_limit=0))).settle().later(60)
    times = (bench.now - 57, bench.now - 55)
    bench.end("worker", 0, code, started_at=times[0], finished_at=times[1]).settle()
    assert (bench.of().started_at, bench.of().finished_at) == times
