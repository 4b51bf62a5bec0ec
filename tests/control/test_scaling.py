"""Scaling: who goes, who stays, who restarts."""

from __future__ import annotations

import pytest

from airflow_training.control import reasons
from airflow_training.control.actions import Create, Delete
from airflow_training.control.victims import choose_victims
from airflow_training.documents.instances import InstanceKey
from tests.builders import Bench, entry, job, role, seen


def live(index, *, age=10.0, ready=True, **fields):
    facts = {"state": "running", "desired": True, "ready": ready, "started_at": 1000.0 - age}
    return entry("worker", index, **(facts | fields))


@pytest.mark.parametrize(
    ("team", "surplus", "expected"),
    [
        pytest.param([live(0), live(1), live(2)], 0, [], id="nobody"),
        pytest.param([live(0), live(1), live(2)], -1, [], id="not-less-than-nobody"),
        pytest.param(
            [live(0, age=90), live(1, age=10), live(2, state="failed")],
            2,
            [2, 1],
            id="failed-then-youngest",
        ),
        pytest.param(
            [live(0, state="pending"), live(1), live(2, ready=False), live(3, state="failed")],
            3,
            [3, 0, 2],
            id="failed-pending-not-ready",
        ),
        pytest.param(
            [live(0, state="pending"), live(1, state="pending"), live(2)],
            1,
            [1],
            id="unscheduled-before-pending",
        ),
        pytest.param([live(0), live(1), live(2)], 2, [2, 1], id="ties-by-highest-index"),
        pytest.param(
            [live(0, state="succeeded", final=True, desired=False), live(1), live(2)],
            2,
            [2, 1],
            id="what-succeeded-is-kept",
        ),
    ],
)
def test_the_order_of_victims(team, surplus, expected):
    shown = {
        InstanceKey("worker", i): seen("worker", i, "pending", scheduled=i == 0) for i in range(4)
    }
    victims = choose_victims(team, surplus=surplus, seen=shown)
    assert [each.index for each in victims] == expected


def test_rank_0_goes_last_whatever_it_does():
    team = [live(0, state="failed"), live(1), live(2)]
    assert [v.index for v in choose_victims(team, surplus=2, chief=True)] == [2, 1]
    assert [v.index for v in choose_victims(team, surplus=2)] == [0, 2]


def elastic(replicas=3, **fields):
    return job(
        role("worker", replicas, min_replicas=1, max_replicas=5, chief=True, **fields), elastic=True
    )


def test_an_elastic_job_keeps_the_others():
    bench = Bench(elastic()).settle()
    bench.request("scale", "worker", 5).step()
    assert bench.actions(Create) == [("worker", 3), ("worker", 4)]
    assert bench.actions(Delete) == []
    bench.settle()
    bench.set("worker", 1, ready=False).step()
    bench.request("scale", "worker", 3).step()
    assert bench.actions(Delete) == [("worker", 1), ("worker", 4)]
    bench.settle()
    assert {i for (_, i), e in bench.ledger.instances.items() if not e.retired} == {0, 2, 3}
    assert bench.charged() == {}
    assert bench.ledger.job.job_attempt == 0


def test_an_index_that_comes_back_never_reuses_an_attempt():
    bench = Bench(elastic()).settle()
    bench.request("scale", "worker", 2).settle()
    assert bench.of("worker", 2).retired
    bench.request("scale", "worker", 3).settle()
    assert (bench.of("worker", 2).attempt, bench.of("worker", 2).state) == (1, "running")


def test_a_static_job_restarts_with_dense_ranks_and_charges_nobody():
    bench = Bench(job(role("master"), role("worker", 3), max_restarts=0)).settle()
    bench.request("scale", "worker", 2).step()
    assert len(bench.actions(Delete)) == 4
    assert bench.state == "Restarting"
    bench.settle()
    assert bench.state == "Running"
    assert bench.charged() == {}
    assert bench.ledger.job.job_attempt == 1
    running = sorted((o.role, o.index) for o in bench.objects.values())
    assert running == [("master", 0), ("worker", 0), ("worker", 1)]
    bench.request("scale", "worker", 3).settle()
    assert len(bench.objects) == 4


def test_what_succeeded_stays_finished_when_others_scale():
    bench = Bench(job(role("worker", 3))).settle()
    bench.end("worker", 0).end("worker", 2).step()
    bench.request("scale", "worker", 2).settle()
    assert (bench.of("worker", 0).state, bench.of("worker", 0).attempt) == ("succeeded", 0)
    bench.request("scale", "worker", 3).settle()
    assert (bench.of("worker", 2).state, bench.of("worker", 2).attempt) == ("succeeded", 0)
    assert bench.of("worker", 1).state == "running"


@pytest.mark.parametrize(
    ("name", "replicas"),
    [("nobody", 2), ("worker", 0), ("worker", None), ("worker", 6), ("worker", -1)],
)
def test_a_scaling_that_cannot_be_is_refused_with_a_word(name, replicas):
    bench = Bench(elastic()).settle()
    bench.request("scale", name, replicas).step()
    assert len(bench.said(reasons.REQUEST_REFUSED)) == 1
    assert bench.ledger.roles["worker"].replicas == 3


def test_thresholds_follow_the_number_of_instances():
    bench = Bench(elastic(3, min_succeeded=3)).settle()
    bench.request("scale", "worker", 2).settle()
    bench.end("worker", 0).end("worker", 1).step()
    assert bench.state == "Succeeded"
