"""Nodes that failed too often: recorded with the runs, excluded for all of a cluster, allowed again."""

from __future__ import annotations

from airflow_training.control.node_faults import ExclusionRules, NodeExclusion, NodeFault
from airflow_training.documents.instances import InstanceKey
from airflow_training.state.nodes import Cluster
from airflow_training.state.store import Store
from tests.state.samples import START, Clock, add_run

RULES = ExclusionRules(failures=2, window_seconds=100.0, seconds=50.0)
HERE = Cluster(runtime="slurm")


def _faults(run: str, count: int, at: float = START) -> list[NodeFault]:
    return [
        NodeFault(
            run=run, key=InstanceKey("worker", 0), epoch=0, attempt=attempt, node="n1", at=at,
            blame="node", why="NodeLost",
        )
        for attempt in range(count)
    ]  # fmt: skip


def _record(store: Store, run: str, count: int, cluster: Cluster = HERE, **more) -> list[str]:
    found = store.nodes.record(run, cluster, _faults(run, count, **more), rules=RULES)
    return [each.node for each in found]


def test_faults_of_all_runs_count_and_each_exclusion_is_told_once(store: Store, clock: Clock):
    first, second = (add_run(store, name).uid for name in ("a", "b"))
    assert _record(store, first, 1) == []
    assert _record(store, first, 1) == [], "the same fault again is no other one"
    assert _record(store, second, 1, Cluster(runtime="slurm", connection="other")) == []
    assert _record(store, second, 1) == ["n1"]
    assert _record(store, first, 2) == [], "it is excluded already"
    (held,) = store.nodes.excluded(HERE)
    assert (held.node, held.until, held.why) == (
        "n1", clock.now + 50, "2 failures in 0.0277778 h in 2 runs (NodeLost)",
    )  # fmt: skip
    assert store.nodes.excluded(Cluster(runtime="slurm", connection="other")) == []
    clock.advance(50)
    assert store.nodes.excluded(HERE) == []


def test_a_node_is_excluded_and_allowed_by_hand(store: Store, clock: Clock):
    run = add_run(store, "a").uid
    assert not store.nodes.allow(HERE, "n1")
    for until in (None, clock.now + 10):
        made = NodeExclusion(node="n1", since=clock.now, until=until, why="NIC\0", by="ann")
        store.nodes.exclude(HERE, made)
    ((cluster, found),) = store.nodes.all_excluded()
    assert (cluster, found.until, found.why) == (
        HERE, clock.now + 10, "NIC\N{REPLACEMENT CHARACTER}",
    )  # fmt: skip
    assert store.nodes.allow(HERE, "n1")
    assert not store.nodes.allow(HERE, "n1")
    assert store.nodes.all_excluded() == []
    assert _record(store, run, 2) == [], "what was before counts no more"
    clock.advance(1)
    assert _record(store, run, 2, at=clock.now) == ["n1"]
