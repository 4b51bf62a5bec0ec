"""Re-planning: what a job does when its cluster changes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_training.errors import InputError
from airflow_training.planning.answers.replan import ReplanDecision, RestartCost, RunningJob, replan
from airflow_training.planning.reshard.relayout import relayout
from airflow_training.planning.search import search
from airflow_training.planning.search.constraints import parse as parse_constraints
from airflow_training.planning.search.objectives import MoneyObjective
from airflow_training.planning.search.searching import MODEL
from airflow_training.planning.sources.documents import parse_cluster
from airflow_training.planning.view.capacity import has_room
from airflow_training.planning.view.changes import changes
from airflow_training.planning.view.cluster import ClusterView
from airflow_training.planning.view.plan import Estimate, Workload
from airflow_training.planning.view.strategy import Strategy, TransformerModel
from airflow_training.planning.view.transformer import computation
from tests.examples import examples

SMALL = TransformerModel(hidden=1024, layers=8, heads=16, seq=1024, vocab=32000)
MOVING = RestartCost(restart_seconds=60.0, read_bytes_per_second=1e9)


def workload() -> Workload:
    """Return a workload of its own: what is remembered of views starts empty."""
    return Workload(view=computation(SMALL), global_batch=48)


WORKLOAD = workload()
NARROW = parse_constraints({"zero": 1, "recompute": "none", "cp": 1, "overlap": "none"})
"""What keeps searches short; nothing here depends on it."""


def cluster(nodes: int, *, network: float = 1.0, **group: Any) -> ClusterView:
    made = parse_cluster(
        {
            "name": "small",
            "nodes": [
                {
                    "count": nodes,
                    "device": "V100-SXM2-16GB",
                    "devices_per_node": 4,
                    "intra_node": "nvlink2",
                    "nics_per_node": 1,
                    "nic_gbit_s": 100,
                }
            ],
        }
    )
    nic = made.groups[0].nic
    assert nic is not None
    changed = {"nic": replace(nic, bandwidth=nic.bandwidth * network), **group}
    return replace(made, groups=(replace(made.groups[0], **changed),))


@cache
def best(nodes: int) -> Strategy:
    return found(WORKLOAD, cluster(nodes)).strategy


def found(work: Workload, on: ClusterView, **options) -> Estimate:
    """Return the best plan of a search."""
    return search(work, on, **{"constraints": NARROW, "top_k": 1, **options}).plans[0]


def decide(
    job: RunningJob, on: ClusterView, moving: RestartCost = MOVING, **options
) -> ReplanDecision:
    return replan(WORKLOAD, job, on, moving, **{"constraints": NARROW, **options})


def running(strategy: Strategy, **values) -> RunningJob:
    return RunningJob(
        **{"strategy": strategy, "steps_left": 10_000, "steps_since_checkpoint": 5, **values}
    )


def refuse(*_):
    raise AssertionError("nothing was to be searched")


NO_SEARCH = replace(MODEL, floors=refuse, memory_bytes=refuse, step_seconds=refuse)


def test_a_failed_node_is_replaced_by_a_spare_without_a_search():
    strategy = best(3)
    decision = decide(running(strategy, broken=True), cluster(3), pricing=NO_SEARCH)
    assert decision.action == "replace"
    assert decision.plan.strategy == strategy
    assert decision.relayout.moved_bytes == 0
    reading = decision.relayout.busiest_bytes / 1e9
    assert decision.cost_seconds == pytest.approx(60 + reading + 5 * decision.plan.step_seconds)
    assert decision.cost_steps == pytest.approx(decision.cost_seconds / decision.plan.step_seconds)


def test_without_a_spare_the_best_plan_of_what_is_left_starts():
    decision = decide(running(best(4), broken=True), cluster(3))
    assert decision.action == "move"
    assert decision.reason == "the split takes 16 devices and 12 are there"
    assert decision.plan.strategy == best(3)
    assert decision.plan.strategy.devices <= 12
    assert decision.relayout.read_bytes > 0


@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_with_warm_caches_it_answers_as_a_cold_search_does(nodes):
    warm = decide(running(best(4), broken=True), cluster(nodes)).plan
    assert warm == found(workload(), cluster(nodes))


def test_new_nodes_are_used_when_enough_steps_are_left():
    decision = decide(running(best(2)), cluster(4))
    assert decision.action == "move"
    assert decision.plan.strategy == best(4)
    assert decision.saved_seconds > decision.cost_seconds


def test_near_the_end_it_does_not_move():
    decision = decide(running(best(2), steps_left=3), cluster(4))
    assert decision.action == "stay"
    assert decision.plan.strategy == best(2)
    assert "over 3 steps, moving costs" in decision.reason
    assert decision.relayout is None


def test_it_stays_where_its_split_is_still_the_best():
    decision = decide(running(best(2)), cluster(2))
    assert decision.action == "stay"
    assert decision.reason == "the split is still the best one"


def test_a_slow_network_can_make_another_split_pay():
    slow = cluster(4, network=0.002)
    decision = decide(running(best(4), steps_left=10**6), slow)
    assert decision.action == "move"
    assert decision.plan.strategy == found(workload(), slow).strategy


@settings(deadline=None, max_examples=examples(25))
@given(st.integers(1, 10**5), st.integers(0, 1000), st.floats(0, 1e5))
def test_it_moves_only_if_the_job_ends_earlier(steps_left, steps_lost, restart_seconds):
    moving = replace(MOVING, restart_seconds=restart_seconds)
    job = running(best(2), steps_left=steps_left, steps_since_checkpoint=steps_lost)
    decision = decide(job, cluster(4), moving)
    staying = MODEL.estimate(WORKLOAD, cluster(4), best(2)).step_seconds
    better = MODEL.estimate(WORKLOAD, cluster(4), best(4)).step_seconds
    reading = relayout(WORKLOAD.view, best(2), best(4)).busiest_bytes / 1e9
    moved = restart_seconds + reading + (steps_lost + steps_left) * better
    assert decision.action == ("move" if moved < steps_left * staying else "stay")


def test_money_decides_where_the_objective_is_money():
    priced = cluster(4, price_per_device_hour=2.0)
    cheapest = found(WORKLOAD, priced, objective=MoneyObjective()).strategy
    assert cheapest.devices < best(4).devices, "fewer devices lose less in communication"
    job = running(best(4), steps_left=10**6)
    decision = decide(job, priced, objective=MoneyObjective())
    assert decision.action == "move"
    assert decision.plan.strategy == cheapest
    assert decision.saved_seconds < 0, "it takes longer, and costs less"
    late = decide(replace(job, steps_left=1), priced, objective=MoneyObjective())
    assert late.action == "stay"


def test_constraints_hold_for_the_new_plan():
    pinned = replace(NARROW, rules={**NARROW.rules, **parse_constraints({"tp": 2}).rules})
    decision = decide(running(best(4), broken=True), cluster(3), constraints=pinned)
    assert decision.plan.strategy.tp == 2


def test_nothing_that_fits_is_an_error_that_names_what_would():
    huge = Workload(
        view=computation(TransformerModel(hidden=8192, layers=48, heads=64, seq=2048, vocab=51200)),
        global_batch=64,
    )
    job = running(Strategy(global_batch=64, tp=4, pp=16, zero=1), broken=True)
    with pytest.raises(InputError, match="the smallest cluster that would fit"):
        replan(huge, job, cluster(1), MOVING)


def test_a_split_over_groups_needs_room_in_each_of_them():
    two = cluster(2)
    mixed = replace(two, groups=(two.groups[0], replace(two.groups[0], name="other", count=1)))
    names = (two.groups[0].name, "other")
    strategy = Strategy(global_batch=8, pp=3, dp=4, stage_devices=(names[0], names[0], names[1]))
    assert has_room(strategy, mixed)
    assert not has_room(replace(strategy, stage_devices=(names[0], names[1], names[1])), mixed)
    assert not has_room(replace(strategy, stage_devices=(names[0], names[0], "third")), mixed)


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (cluster(4), ()),
        (cluster(3), ("lost 1 node, 3 are left",)),
        (cluster(6), ("gained 2 nodes, now 6",)),
        (cluster(4, efficiency=0.5), ("runs at 50% of its rate (before: 100%)",)),
        (cluster(4, nics_per_node=2), ("has 2 NICs a node (before: 1)",)),
        (cluster(4, price_per_device_hour=1.0), ("has other prices",)),
        (cluster(4, nic=None), ("network: gone",)),
    ],
)
def test_changes_are_said_in_words(after, said):
    found = changes(cluster(4), after)
    assert len(found) == len(said)
    for phrase, expected in zip(found, said, strict=True):
        assert phrase.startswith(after.groups[0].name)
        assert phrase.endswith(expected)


def test_slow_links_and_new_groups_are_said_too():
    before = cluster(4)
    group, slow = before.groups[0], cluster(4, network=0.5).groups[0]
    new = replace(group, name="other", count=1)
    assert changes(before, replace(before, groups=(slow, new))) == (
        f"{group.name}'s network: slower (6.25 GB/s, before 12.5)",
        "other is new (1 node)",
    )
    assert changes(replace(before, groups=(group, new)), before) == ("other is gone (1 node)",)
    assert changes(before, replace(before, quota=8)) == ("the quota is 8 devices (before: none)",)
    assert changes(replace(before, quota=8), before) == ("the quota is gone (before: 8 devices)",)


def test_a_quota_that_shrinks_leaves_a_split_no_room():
    whole = cluster(2)
    split = search(WORKLOAD, whole, constraints=NARROW).plans[0].strategy
    assert split.devices == 8
    decision = replan(
        WORKLOAD,
        RunningJob(strategy=split, steps_left=100, steps_since_checkpoint=0),
        replace(whole, quota=4),
        MOVING,
        constraints=NARROW,
    )
    assert decision.action == "move"
    assert decision.plan.strategy.devices <= 4
    assert decision.reason == "the split takes 8 devices and 4 are there"
