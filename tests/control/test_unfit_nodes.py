"""Instances leave an unfit node before what they do together hangs: with all their grace, charged to nobody."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_training.control import reasons
from airflow_training.control.actions import Create, Delete
from airflow_training.documents.resolved import UnfitNodePolicy
from tests.builders import Bench, job, role

MOVE = UnfitNodePolicy(action="Move")
XID = "node n-1: condition XidCriticalError is True (Xid 79)"


def training(*roles: Any, policy: UnfitNodePolicy = MOVE, **fields: Any) -> Bench:
    """Return a job that runs, worker-N on node n-N."""
    wanted = {"checkpoint": {"uri": "s3://b/c"}, "scope": "Job", "grace_seconds": 45.0, **fields}
    bench = Bench(job(*(roles or (role(replicas=2),)), unfit_nodes=policy, **wanted)).settle()
    return placed(bench)


def placed(bench: Bench, first: int = 0) -> Bench:
    for each in list(bench.objects.values()):
        bench.set(each.role, each.index, node=f"n-{first + each.index}")
    return bench.settle()


def unfit(bench: Bench, index: int = 1, *, reason: str = reasons.NODE_UNFIT) -> Bench:
    bench.set("worker", index, reason=reason, message=XID).decide()
    return bench


def test_all_that_restart_together_save_and_begin_elsewhere():
    bench = unfit(training())
    assert bench.actions(Delete) == [("worker", 0), ("worker", 1)]
    graces = {each.grace_seconds for each in bench.last.actions if isinstance(each, Delete)}
    assert graces == {45.0}, "all of them are needed to save, and all of them still live"
    assert {bench.of("worker", i).avoid_nodes for i in range(2)} == {("n-1",)}, "nobody goes there"
    bench.act()
    placed(bench.settle(), first=2)
    assert (bench.state, bench.of("worker", 1).attempt) == ("Running", 1)


def test_a_move_is_charged_to_nobody_and_says_why():
    bench = unfit(training(max_restarts=0, then="Fail"))
    (told,) = bench.said(reasons.NODE_UNFIT)
    assert (told.message, told.level) == (f"{XID}; it begins again elsewhere", "warning")
    (restarted,) = bench.said(reasons.JOB_RESTARTED)
    assert XID in restarted.message
    assert (restarted.rule, restarted.data["counted"]) == ("unfitNodes", False)
    assert [bench.of("worker", i).restarts for i in range(2)] == [0, 0]
    bench.act()
    bench.settle()
    assert bench.state == "Running"


def test_what_follows_a_move_does_not_wait_the_longer():
    bench = training(backoff_initial_seconds=2.0)
    unfit(bench).act()
    placed(bench.later(2.0).settle(), first=2)
    bench.end("worker", 0, 1).decide()
    assert bench.ledger.job.restart_at == bench.now + 2.0


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        pytest.param({"policy": UnfitNodePolicy()}, "unfitNodes.action is Warn", id="warn"),
        pytest.param(
            {"policy": UnfitNodePolicy(), "checkpoint": None},
            "unfitNodes.action is Warn, as the job keeps no checkpoint",
            id="no-checkpoint",
        ),
        pytest.param(
            {"policy": UnfitNodePolicy(action="Move", max_moves=0)},
            "it has moved 0 times (unfitNodes.maxMoves)",
            id="no-moves-left",
        ),
    ],
)
def test_an_instance_that_stays_is_told_of_once(fields, why):
    bench = unfit(training(**fields)).settle()
    (told,) = bench.said(reasons.NODE_UNFIT)
    assert told.message == f"{XID}; it stays: {why}"
    entry = bench.of("worker", 1)
    assert (entry.state, entry.reason, entry.message) == ("running", reasons.NODE_UNFIT, XID)
    assert not bench.actions(Delete)


def test_a_condition_that_comes_and_goes_is_told_once_for_each_attempt():
    bench = training(policy=UnfitNodePolicy())
    for _ in range(3):
        unfit(bench).act()
        bench.set("worker", 1, reason="", message="").settle()
    unfit(bench, reason=reasons.NODE_CORDONED).act()
    assert [each.attempt for each in bench.said(reasons.NODE_UNFIT)] == [0]
    assert len(bench.said(reasons.NODE_CORDONED)) == 1
    bench.end("worker", 1, 1).settle()
    unfit(placed(bench.settle()))
    assert [each.attempt for each in bench.said(reasons.NODE_UNFIT)] == [0, 1]


def test_what_never_restarts_is_not_moved():
    bench = unfit(training(role(replicas=2, restart_policy="Never")))
    (told,) = bench.said(reasons.NODE_UNFIT)
    assert told.message.endswith("it stays: its restartPolicy is Never")
    assert bench.state == "Running"


def test_a_cordoned_node_is_not_left():
    """Often it is cordoned so that what runs there can end."""
    bench = unfit(training(), reason=reasons.NODE_CORDONED)
    assert [each.level for each in bench.said(reasons.NODE_CORDONED)] == ["warning"]
    assert not bench.actions(Delete)


def test_an_instance_that_is_placed_there_again_stays():
    bench = training()
    unfit(bench).act()
    placed(bench.settle())
    unfit(bench)
    assert bench.said(reasons.NODE_UNFIT)[-1].message.endswith("others would be preferred")
    assert not bench.actions(Delete)


def test_a_flapping_condition_cannot_loop():
    bench = training(policy=UnfitNodePolicy(action="Move", max_moves=3))
    for number in range(10):
        if not bench.said(reasons.JOB_FAILED):
            unfit(bench, number % 2).act()
            placed(bench.settle(), first=2 * (number + 1))
    assert len(bench.said(reasons.JOB_RESTARTED)) == 3
    assert bench.state == "Running"


def test_an_instance_that_restarts_alone_moves_alone():
    bench = training(scope="Instance", elastic=True)
    unfit(bench)
    assert bench.actions(Delete) == [("worker", 1)]
    assert bench.of("worker", 0).state == "running"
    assert [bench.of("worker", i).avoid_nodes for i in range(2)] == [(), ("n-1",)]
    bench.act()
    bench.settle()
    assert bench.of("worker", 1).attempt == 1


def test_all_on_one_node_are_moved_by_one_restart():
    bench = training()
    bench.set("worker", 0, node="n-1", reason=reasons.NODE_UNFIT, message=XID)
    unfit(bench)
    assert len(bench.said(reasons.JOB_RESTARTED)) == 1
    assert {bench.of("worker", i).avoid_nodes for i in range(2)} == {("n-1",)}


def test_a_failure_on_an_unfit_node_is_charged_and_does_not_go_back():
    """What happened first is not lost in a move: the instance had failed."""
    bench = unfit(training(policy=UnfitNodePolicy()))
    bench.end("worker", 1, 1).decide()
    assert bench.of("worker", 1).restarts == 1
    assert bench.of("worker", 1).avoid_nodes == ("n-1",)
    bench.act()
    bench.settle()
    assert bench.actions(Create) == []


def test_an_instance_that_still_starts_moves_too():
    bench = Bench(job(checkpoint={"uri": "s3://b/c"}, unfit_nodes=MOVE))
    bench.step()
    bench.set("worker", 0, node="n-1", reason=reasons.NODE_UNFIT, message=XID).step()
    assert bench.of().avoid_nodes == ("n-1",)
    bench.settle()
    assert (bench.state, bench.of().attempt) == ("Running", 1)
