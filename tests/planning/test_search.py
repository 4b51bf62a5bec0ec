"""What a search says: about constraints that contradict, memory that is too small, budgets, money."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_training.errors import InputError
from airflow_training.planning.search import objectives, pareto, search
from airflow_training.planning.search.constraints import parse
from airflow_training.planning.view import catalogue
from airflow_training.planning.view.cluster import ClusterView, NodeGroup
from airflow_training.planning.view.plan import Workload
from airflow_training.planning.view.strategy import Strategy, TransformerModel
from airflow_training.planning.view.transformer import computation
from tests.planning import networks
from tests.planning.standin import Toy, cluster, device

GPT = TransformerModel(hidden=1024, layers=4, heads=8, seq=1024, vocab=50304)


def answer(toy: Toy, on, *, rules=None, objective=objectives.TimeObjective(), top_k=3):  # noqa: B008 - frozen
    return search(
        toy.workload,
        on,
        constraints=parse(rules or {}),
        objective=objective,
        top_k=top_k,
        pricing=toy.pricing,
    )


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        pytest.param({"tp": 3}, ["constraints.tp", "tp could be 1, 2, 4, 8"], id="does-not-divide"),
        pytest.param(
            {"tp": 8, "pp": 2}, ["tp could be 1, 2, 4", "pp could be 1"], id="too-many-devices"
        ),
        pytest.param({"devices": {"min": 9}}, ["devices could be"], id="more-than-there-are"),
        pytest.param(
            {"devices": {"min": 9, "max": 9}},
            ["no strategy has devices: 9 on"],
            id="just-one-number",
        ),
        pytest.param({"sequence_parallel": True, "tp": 1}, ["tp could be 2"], id="needs-a-group"),
    ],
)
def test_contradictions_say_what_would_work(rules, said):
    with pytest.raises(InputError) as raised:
        answer(Toy(layers=4, heads=8), cluster(1, 8), rules=rules)
    assert all(words in str(raised.value) for words in said), str(raised.value)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        pytest.param({"tpp": 8}, "did you mean 'tp'?", id="unknown-key"),
        pytest.param({"tp": {"maxi": 8}}, "did you mean 'max'?", id="unknown-form"),
        pytest.param({"pp": {"min": 8, "max": 4}}, "no pp is both", id="empty-range"),
        pytest.param({"zero": {"not": [0, 1, 2, 3]}}, "leave at least one", id="all-forbidden"),
        pytest.param({"recompute": "ful"}, "did you mean 'full'?", id="misspelt"),
        pytest.param({"recompute": {"min": "none"}}, "has no order", id="no-order"),
        pytest.param({"tp": 0}, "must be a whole number from 1", id="nothing"),
        pytest.param({"zero": True}, "is not one of the values", id="a-boolean-is-no-stage"),
    ],
)
def test_bad_constraints_are_explained(document, said):
    with pytest.raises(InputError, match="constraints") as raised:
        parse(document)
    assert said in str(raised.value)


def test_the_smallest_cluster_that_would_fit_is_named():
    toy = Toy(layers=8, heads=8, layer_elements=2e9, global_batch=64)
    with pytest.raises(InputError) as raised:
        answer(toy, cluster(1, 8))
    assert "GiB more on a device" in str(raised.value)
    devices = int(str(raised.value).split("would fit has ")[1].split()[0])
    assert answer(toy, cluster(devices // 8, 8)).plans
    with pytest.raises(InputError):
        answer(toy, cluster(devices // 8 - 1, 8))


def test_the_constraint_in_the_way_is_named():
    toy = Toy(layers=8, heads=8, layer_elements=5e8)
    with pytest.raises(InputError, match="without the constraint on zero it fits"):
        answer(toy, cluster(1, 8), rules={"zero": 0, "tp": 1, "pp": 1})


def test_no_plan_takes_more_than_the_quota():
    toy, whole = Toy(layers=4, heads=8), cluster(2, 8)
    assert answer(toy, whole).plans[0].strategy.devices == 16
    for quota in (12, 5):
        found = answer(toy, replace(whole, quota=quota))
        assert max(plan.strategy.devices for plan in [*found.plans, *found.front]) <= quota
    assert answer(toy, replace(whole, quota=99)).plans[0].strategy.devices == 16


@pytest.mark.parametrize(
    ("quota", "rules"), [(8, {"devices": 16}), (8, {"devices": {"min": 9}}), (0, {})]
)
def test_a_quota_that_is_too_small_is_said(quota, rules):
    with pytest.raises(InputError, match=f"the quota lets a plan take {quota} devices"):
        answer(Toy(layers=4, heads=8), replace(cluster(2, 8), quota=quota), rules=rules)


def test_where_nothing_fits_a_larger_quota_is_offered():
    toy = Toy(layers=8, heads=8, layer_elements=5e8)
    assert answer(toy, cluster(1, 8)).plans
    with pytest.raises(InputError, match="with a larger quota it fits"):
        answer(toy, replace(cluster(1, 8), quota=1))


def test_money_prefers_fewer_devices_and_the_front_has_both_ends():
    toy, on = Toy(layer_flops=1e13), cluster(4, 8, price_per_device_hour=2.0)
    fast, cheap = answer(toy, on), answer(toy, on, objective=objectives.MoneyObjective())
    assert cheap.plans[0].strategy.devices < fast.plans[0].strategy.devices
    assert cheap.plans[0].price_per_step < fast.plans[0].price_per_step
    seconds = [plan.step_seconds for plan in fast.front]
    money = [plan.price_per_step for plan in fast.front]
    assert seconds == sorted(seconds)
    assert money == sorted(money, reverse=True)
    assert fast.front[0].strategy == fast.plans[0].strategy


def test_a_budget_is_kept_or_the_error_says_what_is_enough():
    toy, on = Toy(layer_flops=1e13), cluster(4, 8, price_per_device_hour=2.0)
    cheapest = answer(toy, on, objective=objectives.MoneyObjective()).plans[0].price_per_step
    step = toy.global_batch * toy.sequence
    goal = objectives.TokenObjective(tokens=step * 1000.0, budget=cheapest * 1050)
    plan = answer(toy, on, objective=goal).plans[0]
    assert plan.price_per_step * 1000 <= goal.budget
    with pytest.raises(InputError, match="tokens are within the budget"):
        answer(toy, on, objective=replace(goal, budget=cheapest * 900))


def test_money_without_prices_asks_for_them():
    with pytest.raises(InputError, match="price_per_device_hour"):
        answer(Toy(), cluster(), objective=objectives.MoneyObjective())


def test_spot_restarts_favour_fewer_devices():
    toy = Toy(layer_flops=1e13)
    on = cluster(4, 8, spot_price_per_device_hour=1.0, spot_restarts_per_device_hour=0.1)
    steady = answer(toy, on).plans[0].strategy.devices
    spot = objectives.TimeObjective(purchase="spot", restart_seconds=1000.0)
    assert answer(toy, on, objective=spot).plans[0].strategy.devices < steady


def test_families_that_lost_say_why():
    toy = Toy(layers=8, heads=8, layer_elements=5e8, activation_bytes=6e9, layer_flops=1e13)
    found = answer(toy, cluster(1, 8, device=device(memory_gib=12)))
    best = found.plans[0].strategy
    for line in found.rejected:
        ((name, value),) = line.family.items()
        assert getattr(best, name) != value
        assert line.by >= 0
    assert {line.reason for line in found.rejected} == {"time", "memory"}


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12))
def test_nobody_beats_the_front(points):
    seconds, money = np.asarray(points, dtype=float).reshape(-1, 2).T
    front = pareto.front(seconds, money)
    kept = {(seconds[row], money[row]) for row in front}
    assert len(kept) == len(front)
    for t, m in zip(seconds, money, strict=True):
        beaten = any((a <= t and b <= m and (a, b) != (t, m)) for a, b in kept)
        assert beaten != ((t, m) in kept)


def sizes(strategy: Strategy) -> Strategy:
    """Return a strategy without what may change nothing."""
    return replace(strategy, sequence_parallel=False, recompute="none", overlap="none")


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(computation(GPT), id="transformer"),
        pytest.param(networks.mlp(512, 2048, 1024, 512, 10), id="layers-that-differ"),
    ],
)
def test_a_plan_is_shown_once_and_as_plainly_as_it_can_be(view):
    """Overlap without transfers, recomputation without anything kept: the same plan, whatever it is called."""
    on = ClusterView(
        name="one node",
        groups=(
            NodeGroup(
                name="n", count=1, device=catalogue.device("A100-SXM4-80GB"), devices_per_node=4,
                intra_node=catalogue.link("nvlink3"),
            ),
        ),
    )  # fmt: skip
    found = search(Workload(view=view, global_batch=16), on, top_k=40)
    prices = [(sizes(each.strategy), each.step_seconds, each.memory_bytes) for each in found.plans]
    assert len(set(prices)) == len(prices) == 40
    assert all(each.strategy.stage_devices is None for each in found.plans)
    assert all(
        each.strategy.overlap != "all"
        for each in found.plans
        if each.strategy.tp * each.strategy.cp == 1
    )
