"""An instance that waits for another of its group does not hang: it is told so, and charged for nothing."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_training.control import reasons
from airflow_training.control.actions import AwaitPeers
from airflow_training.control.peers import EXCUSE_SECONDS, HOLDS_SECONDS
from airflow_training.control.reports import ProgressReport
from tests.builders import Bench, job, role

PAIR = [role("worker", 3, env={"WORLD_SIZE": "3"})]
SAVES: dict[str, Any] = {"checkpoint": {"uri": "/checkpoints"}}


def group(*roles: Any, **fields: Any) -> Bench:
    known = {"scope": "Instance", "backoff_initial_seconds": 1000.0, "max_restarts": 1} | fields
    known = {"backoff_max_seconds": 1000.0, **known}
    bench = Bench(job(*(roles or PAIR), **SAVES, **known)).settle()
    for index in range(3):
        bench.set("worker", index, in_place=True)
    return bench


def awaiting(bench: Bench) -> list[tuple[str, int]]:
    return bench.actions(AwaitPeers)


def test_while_all_run_nobody_waits():
    assert awaiting(group()) == []


def test_survivors_are_told_that_they_wait_for_as_long_as_they_do():
    bench = group()
    bench.end("worker", 1, 1).settle()
    assert awaiting(bench) == [("worker", 0), ("worker", 2)]
    (first, _) = (each for each in bench.last.actions if isinstance(each, AwaitPeers))
    assert first.seconds > EXCUSE_SECONDS, "it is repeated before it is over"
    assert bench.last.wake_at is not None
    assert bench.last.wake_at <= bench.now + EXCUSE_SECONDS
    bench.step(seconds=EXCUSE_SECONDS)
    (again, _) = (each for each in bench.last.actions if isinstance(each, AwaitPeers))
    assert again.number == first.number + 1
    bench.later(1000).settle()
    bench.step(seconds=HOLDS_SECONDS)
    assert awaiting(bench) == [], "it is over by itself"


def told(bench: Bench) -> dict[int, tuple[float, int]]:
    """Return index -> seconds and number of what agents are told by the last decision."""
    return {
        each.index: (each.seconds, each.number)
        for each in bench.last.actions
        if isinstance(each, AwaitPeers)
    }


def test_who_waited_for_the_first_start_of_another_is_told_at_once_that_all_run():
    bench = Bench(job(*PAIR, **SAVES, scope="Instance"))
    bench.step()
    bench.set("worker", 2, scheduled=False).run_pending()
    for index in range(3):
        bench.set("worker", index, in_place=True)
    bench.step()
    assert told(bench) == {0: (HOLDS_SECONDS, 0), 1: (HOLDS_SECONDS, 0)}
    bench.set("worker", 2, scheduled=True).run_pending()
    bench.step(seconds=5)
    assert told(bench) == {0: (0.0, 1), 1: (0.0, 1)}
    bench.step(seconds=60)  # whoever drives it now says the same once more
    assert told(bench) == {0: (0.0, 1), 1: (0.0, 1)}
    bench.step(seconds=HOLDS_SECONDS)
    assert told(bench) == {}


def test_who_waits_again_soon_is_told_so_by_a_new_order():
    bench = Bench(job(*PAIR, **SAVES, scope="Instance", backoff_initial_seconds=1000.0))
    bench.step()
    bench.set("worker", 2, scheduled=False).run_pending()
    for index in range(3):
        bench.set("worker", index, in_place=True)
    bench.step()
    bench.set("worker", 2, scheduled=True).run_pending()
    bench.step(seconds=5)
    bench.end("worker", 1, 1).step(seconds=5)
    assert told(bench) == {0: (HOLDS_SECONDS, 2), 2: (HOLDS_SECONDS, 0)}


def test_who_waits_for_one_that_was_started_again_does_so_until_that_reports_a_step():
    bench = group(backoff_initial_seconds=10.0)
    for index in (0, 2):
        bench.set("worker", index, progress=ProgressReport(step=7))
    bench.end("worker", 1, 1).settle()
    first = told(bench)[0]
    bench.later(20).settle()
    assert bench.of("worker", 1).state == "running"
    bench.set("worker", 1, in_place=True).step(seconds=20)
    assert told(bench)[0] == first, "it loads what the others have"
    bench.set("worker", 1, progress=ProgressReport(step=7)).step(seconds=20)
    assert told(bench) == {0: (0.0, first[1] + 1), 2: (0.0, first[1] + 1)}


def test_who_knows_where_the_others_are_waits_for_them_though_each_saves_alone():
    bench = group(role("worker", 3, env={"TF_CONFIG": "{{ addresses('worker') | json }}"}))
    bench.end("worker", 1, 1).settle()
    assert awaiting(bench) == [("worker", 0), ("worker", 2)]


@pytest.mark.parametrize(
    ("roles", "fields"),
    [
        pytest.param([role("worker", 3)], {}, id="each-trains-alone"),
        pytest.param([*PAIR, role("monitor", tracked=False)], {"loses": "monitor"}, id="a-helper"),
    ],
)
def test_who_is_not_needed_is_not_waited_for(roles, fields):
    fields = dict(fields)
    loses = fields.pop("loses", "worker")
    bench = group(*roles, **fields)
    bench.end(loses, 0, 1).settle()
    assert awaiting(bench) == []


def test_where_nobody_can_be_told_a_hang_over_a_missing_peer_is_free():
    bench = group()
    bench.end("worker", 1, 1).settle()
    for index in (0, 2):
        bench.set("worker", index, in_place=False)
        bench.end("worker", index, 1, reason=reasons.HANG, message="no progress for 31 s")
    bench.settle()
    assert awaiting(bench) == []
    assert bench.state != "Failed", bench.ledger.job.message
    assert [bench.of("worker", index).restarts for index in range(3)] == [0, 1, 0]
    assert [each.index for each in bench.ledger.job.restarts] == [1]
    free = bench.said(reasons.FAILURE_IS_CONSEQUENCE)
    assert [each.index for each in free] == [0, 2]
    assert all("worker-1 was in back-off; not counted" in each.message for each in free)


def test_a_hang_while_all_run_is_charged_and_a_rule_for_it_counts():
    bench = group(max_restarts=0)
    bench.end("worker", 0, 1, reason=reasons.HANG).settle()
    assert bench.ledger.job.reason == reasons.MAX_RESTARTS_EXCEEDED
