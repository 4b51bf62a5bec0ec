"""A node that falls silent is one failure, whatever ran there: it is charged once."""

from __future__ import annotations

import pytest

from airflow_training.control import reasons
from airflow_training.control.node_faults import node_faults
from airflow_training.documents.resolved import ResolvedSpot
from tests.builders import Bench, job, role
from tests.control.test_failure_order import LOST, charges, told


def silent(bench: Bench, *keys: tuple[str, int], node: str = "n7") -> Bench:
    for name, index in keys:
        bench.set(name, index, state="unknown", node=node)
    bench.step()
    return bench


def heard_again(bench: Bench, name: str, index: int) -> Bench:
    bench.set(name, index, state="running").step()
    return bench


def team(scope: str, **facts) -> Bench:
    spec = job(
        role("worker", 3), role("ps", 2), scope=scope, unknown_seconds=60.0,
        backoff_initial_seconds=5, max_restarts=1, **facts,
    )  # fmt: skip
    return Bench(spec).settle()


EVERY = [("worker", 0), ("worker", 1), ("worker", 2), ("ps", 0), ("ps", 1)]


@pytest.mark.parametrize("apart", [0, 3], ids=["at-once", "one-after-the-other"])
@pytest.mark.parametrize("scope", ["Instance", "Role", "Job"])
def test_a_silent_node_is_charged_once_whatever_ran_there(scope, apart):
    bench = team(scope)
    for key in EVERY:
        silent(bench.later(apart), key)
    for _ in range(80):
        bench.step(seconds=1)
    assert bench.state != "Failed", bench.ledger.job.message
    assert bench.charged() == {"infrastructure": 1}
    first = bench.ledger.job.restarts[0]
    assert sum(bench.of(*key).restarts for key in EVERY) == 1
    assert {bench.of(*key).attempt for key in EVERY} == {1}
    for each in bench.said(reasons.FAILURE_IS_CONSEQUENCE):
        if "already being replaced" not in each.message:
            assert "node n7 is lost, which was charged once, to worker-0" in each.message
    assert (first.role, first.index, first.lost_node) == ("worker", 0, "n7")
    free = {(each.role, each.index) for each in bench.said(reasons.FAILURE_IS_CONSEQUENCE)}
    if scope == "Instance":
        assert free == set(EVERY[1:])


def test_what_has_failed_on_a_node_that_is_not_lost_is_charged_as_ever():
    bench = team("Instance")
    silent(bench, ("worker", 0)).step(seconds=60)
    bench.set("worker", 1, node="n7").end("worker", 1, 1).step()
    assert bench.state == "Failed"
    assert bench.ledger.job.reason == reasons.MAX_RESTARTS_EXCEEDED


@pytest.mark.parametrize("node", ["n7", "n8"])
def test_another_outage_and_another_node_are_charged_again(node):
    bench = Bench(
        job(role("worker", 3), scope="Instance", unknown_seconds=60.0, max_restarts=5)
    ).settle()
    silent(bench, ("worker", 0)).later(50)
    if node == "n7":
        silent(bench, ("worker", 1))
        heard_again(bench, "worker", 1)
    bench.step(seconds=15)
    assert charges(bench) == [(0, "infrastructure")]
    silent(bench.later(1), ("worker", 1), node=node).step(seconds=60)
    assert charges(bench) == [(0, "infrastructure"), (1, "infrastructure")]


def test_a_node_that_was_started_anew_is_charged_once():
    bench = team("Instance")
    for key in EVERY:
        bench.end(*key, None, reason="ContainerStatusUnknown", node="n7")
    bench.settle()
    assert bench.charged() == {"infrastructure": 1}


@pytest.mark.parametrize(("hours", "charged"), [(0.1, [0]), (24, [0, 1])])
def test_a_node_whose_outages_are_hours_apart_is_charged_for_each(hours, charged):
    """Its pods were seen to end: nothing says that the second one was not heard from in between."""
    bench = Bench(job(role("worker", 3), scope="Instance", max_restarts=5)).settle()
    bench.later(60)
    for index in range(2):
        bench.end("worker", index, None, reason="ContainerStatusUnknown", node="n7").step()
        bench.later(hours * 3600)
    assert charges(bench) == [(index, "infrastructure") for index in charged]


def test_what_was_not_heard_from_since_a_node_was_lost_is_free_however_late_its_end_is_seen():
    bench = Bench(
        job(role("worker", 2), scope="Instance", unknown_seconds=9000.0, max_restarts=5)
    ).settle()
    silent(bench, ("worker", 0), ("worker", 1))
    for index in range(2):
        bench.end("worker", index, None, reason="ContainerStatusUnknown", node="n7").step()
        bench.later(3600)
    assert charges(bench) == [(0, "infrastructure")]


def test_who_lost_a_silent_node_gets_its_charge_back_however_long_the_node_is_waited_for():
    """It notices at once; that the node is gone for good is known a minute and more later."""
    bench = Bench(
        job(role("worker", 3), scope="Instance", unknown_seconds=90.0, max_restarts=1)
    ).settle()
    bench.later(10)
    silent(bench, ("worker", 2))
    bench.later(5)
    bench.diagnoses = [told(0, LOST, bench.now)]
    bench.end("worker", 0, 1).settle()
    assert charges(bench) == [(0, "infrastructure")]
    bench.step(seconds=86)
    assert charges(bench) == [(2, "infrastructure")]
    assert [bench.of("worker", index).restarts for index in range(3)] == [0, 0, 1]


@pytest.mark.parametrize(("index", "charged"), [(0, "infrastructure"), (1, "preemption")])
def test_a_spot_node_that_goes_without_a_word_costs_nothing(index, charged):
    spot = ResolvedSpot(from_index=1, label="karpenter.sh/capacity-type", value="spot")
    spec = job(role("worker", 2, spot=spot), scope="Instance", unknown_seconds=60.0, max_restarts=0)
    bench = Bench(spec).settle()
    silent(bench, ("worker", index)).step(seconds=61)
    if charged == "preemption":
        assert bench.charged() == {"preemption": 1}
        assert bench.of("worker", index).attempt == 1
        assert node_faults("u", bench.ledger) == ()
    else:
        assert bench.state == "Failed", "no restart is left for it"
