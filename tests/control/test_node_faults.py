"""What speaks against a node, and when it has had too many failures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_training.control.model import Ledger, RestartRecord
from airflow_training.control.node_faults import (
    AUTOMATIC,
    MOST_EXCLUDED,
    ExclusionRules,
    NodeExclusion,
    NodeFault,
    due_exclusions,
    event_of,
    node_faults,
)
from airflow_training.documents.instances import InstanceKey
from tests.builders import Bench, job, role

RULES = ExclusionRules(failures=3, window_seconds=100.0, seconds=50.0)
NOW = 1000.0


def fault(run: str = "a", attempt: int = 0, *, index: int = 0, **fields) -> NodeFault:
    given = {"node": "n1", "at": NOW, "blame": "node", "why": "NodeLost", "epoch": 0, **fields}
    return NodeFault(run=run, key=InstanceKey("worker", index), attempt=attempt, **given)


def due(*faults: NodeFault, known: tuple[NodeExclusion, ...] = (), rules=RULES) -> list[str]:
    found = due_exclusions(faults, {each.node: each for each in known}, rules=rules, now=NOW)
    return [each.node for each in found]


@pytest.mark.parametrize(
    ("faults", "excluded"),
    [
        pytest.param([fault(attempt=n) for n in range(3)], True, id="three-of-one-run"),
        pytest.param([fault(attempt=n) for n in range(2)], False, id="two"),
        pytest.param([fault(run, blame="perhaps") for run in "abc"], True, id="unclear-in-three-runs"),
        pytest.param([fault(attempt=n, blame="perhaps") for n in range(9)], False, id="unclear-in-one-run"),
        pytest.param([fault(), fault(attempt=1), fault("b", blame="perhaps")], True, id="both"),
        pytest.param([fault(), fault(attempt=1), fault(attempt=2, blame="perhaps")], False, id="unclear-beside-its-own"),
        pytest.param([fault(run, at=NOW - 101) for run in "abc"], False, id="long-ago"),
        pytest.param([fault(run, node=f"n{run}") for run in "abc"], False, id="on-three-nodes"),
        pytest.param([fault(index=n, at=NOW - n) for n in range(8)], False, id="eight-beside-each-other"),
        pytest.param([fault(index=n % 2, attempt=n // 2, at=NOW - 9 + n) for n in range(6)], True, id="two-thrice"),
        pytest.param([fault(index=n, at=NOW - 61 * n) for n in range(2)] + [fault("b")], True, id="one-after-the-other"),
    ],
)  # fmt: skip
def test_a_node_is_excluded_after_as_many_failures_as_the_rules_say(faults, excluded):
    assert due(*faults) == (["n1"] if excluded else [])
    assert due(*faults, rules=replace(RULES, failures=0)) == []


def test_an_exclusion_says_why_and_until_when():
    (found,) = due_exclusions([fault(run) for run in "abc"], {}, rules=RULES, now=NOW)
    assert (found.until, found.by, found.holds(NOW + 49), found.holds(NOW + 50)) == (
        NOW + 50, AUTOMATIC, True, False,
    )  # fmt: skip
    told = event_of(found, now=NOW)
    assert told.message == (
        "nothing new is placed on node n1 until 1970-01-01T00:17:30Z: 3 failures in 0.0277778 h in 3 runs (NodeLost)"
    )
    assert told.data == {"node": "n1", "until": NOW + 50}


@pytest.mark.parametrize(
    ("until", "at", "excluded"),
    [
        pytest.param(None, NOW, False, id="excluded-already"),
        pytest.param(NOW - 10, NOW - 20, False, id="before-it-was-allowed"),
        pytest.param(NOW - 10, NOW - 5, True, id="after-it-was-allowed"),
    ],
)
def test_what_was_before_a_node_was_allowed_counts_no_more(until, at, excluded):
    before = NodeExclusion(node="n1", since=0.0, until=until, why="", by="ann")
    assert due(*(fault(run, at=at) for run in "abc"), known=(before,)) == ["n1"] * excluded


def test_no_more_nodes_are_excluded_than_can_be_bad_at_once():
    known = [
        NodeExclusion(node=f"x{n}", since=0.0, until=None, why="", by=AUTOMATIC)
        for n in range(MOST_EXCLUDED - 1)
    ]
    by_hand = NodeExclusion(node="hand", since=0.0, until=None, why="", by="ann")
    faults = [fault(run, node="a") for run in "abc"] + [fault(run, node="b") for run in "abcd"]
    assert due(*faults, known=(*known, by_hand)) == ["b"]


def _team() -> Bench:
    bench = Bench(job(role("worker", 2), scope="Instance", max_restarts=9, unknown_seconds=5.0))
    bench.settle()
    for index in range(2):
        bench.set("worker", index, node=f"n{index}")
    bench.step()
    return bench


@pytest.mark.parametrize(
    ("end", "found"),
    [
        pytest.param({"reason": "EnvironmentNotReady"}, [("n0", "node", "infrastructure")], id="unready"),
        pytest.param({"reason": "UnexpectedAdmissionError"}, [("n0", "node", "infrastructure")], id="devices"),
        pytest.param({"exit_code": None, "signal": 9}, [("n0", "perhaps", "infrastructure")], id="killed"),
        pytest.param({"exit_code": 3}, [], id="the-scripts-own"),
        pytest.param({"reason": "StoreNotReady"}, [], id="a-store-that-is-away"),
        pytest.param({"reason": "PodNotReadyToStart"}, [], id="a-volume-perhaps"),
        pytest.param({"reason": "Preempted", "disrupted": True}, [], id="preempted"),
    ],
)  # fmt: skip
def test_failures_of_a_node_are_told_from_those_of_a_script(end, found):
    bench = _team()
    bench.end("worker", 0, end.pop("exit_code", 1), **end)
    bench.step()
    assert bench.charged(), "the restart stands in the ledger"
    told = [(each.node, each.blame, each.why) for each in node_faults("u", bench.ledger)]
    assert told == found


def test_a_silent_node_counts_once_whatever_ran_there():
    bench = _team()
    for index in range(2):
        bench.set("worker", index, state="unknown", node="n7")
    bench.step()
    bench.step(seconds=6)
    assert [(each.node, each.blame) for each in node_faults("u", bench.ledger)] == [("n7", "node")]


def test_the_failure_that_ends_an_instance_counts_too():
    bench = Bench(job(role("worker", 1, restart_policy="Never"))).settle()
    bench.set("worker", 0, node="n0").end("worker", 0, 1, reason="EnvironmentNotReady", node="n0")
    bench.step()
    assert bench.state == "Failed"
    (found,) = node_faults("u", bench.ledger)
    assert (found.node, found.blame, found.why) == ("n0", "node", "EnvironmentNotReady")


@pytest.mark.parametrize(
    ("record", "blame"),
    [
        pytest.param({"cause": "ecc-uncorrectable", "failure_class": "infrastructure"}, "node", id="hardware"),
        pytest.param({"cause": "nccl-timeout", "failure_class": "infrastructure"}, "perhaps", id="unclear"),
        pytest.param({"cause": "nccl-timeout", "failure_class": "infrastructure", "explained_by": "peers"}, "", id="a-consequence"),
        pytest.param({"cause": "hub-rate-limit", "failure_class": "infrastructure"}, "", id="a-service"),
        pytest.param({"cause": "", "failure_class": "infrastructure", "node": ""}, "", id="nowhere"),
    ],
)  # fmt: skip
def test_what_logs_say_later_counts(record, blame):
    given = {"at": NOW, "key": InstanceKey("worker", 0), "scope": "Job", "rule": "", "node": "n1"}
    ledger = Ledger()
    ledger = replace(ledger, job=replace(ledger.job, restarts=(RestartRecord(**given | record),)))
    assert [each.blame for each in node_faults("u", ledger)] == ([blame] if blame else [])
