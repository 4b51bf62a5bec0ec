"""The search on equal devices finds what trying everything finds, whatever its bounds cut."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_training.planning.search import homogeneous, objectives, prices, space, table
from airflow_training.planning.search.constraints import Constraints, parse
from tests.examples import examples
from tests.planning.standin import Toy, cluster

FREE, TIME = Constraints(), objectives.TimeObjective()

toys = st.builds(
    Toy,
    layers=st.integers(1, 8),
    heads=st.sampled_from([1, 2, 4, 6, 8, 12]),
    sequence=st.sampled_from([128, 256, 1024]),
    global_batch=st.sampled_from([1, 4, 6, 8, 16, 24]),
    layer_flops=st.floats(1e10, 1e13),
    layer_elements=st.floats(1e6, 2e9),
    activation_bytes=st.floats(1e6, 8e9),
    quirk=st.integers(0, 28),
)
clusters = st.builds(
    lambda nodes, per_node, price: cluster(nodes, per_node, price_per_device_hour=price),
    nodes=st.integers(1, 3),
    per_node=st.sampled_from([1, 2, 4]),
    price=st.floats(0.1, 10),
)
wishes = st.fixed_dictionaries(
    {},
    optional={
        "tp": st.sampled_from([1, 2, {"max": 2}, {"min": 2}, {"not": [1]}]),
        "pp": st.sampled_from([1, 2, 3, {"max": 2}, {"min": 2}]),
        "zero": st.sampled_from([0, 3, {"not": [3]}, {"max": 1}]),
        "recompute": st.sampled_from(["full", {"not": ["none"]}]),
        "micro_batch": st.sampled_from([1, {"max": 4}]),
        "sequence_parallel": st.sampled_from([False, {"not": [True]}]),
        "devices": st.sampled_from([{"max": 4}, {"min": 2}]),
    },
)
goals = st.sampled_from([objectives.TimeObjective(), objectives.MoneyObjective()])


@pytest.fixture(autouse=True, scope="module")
def _small_tables():
    """Price a few splits at a time, so that small problems are cut by bounds too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(homogeneous, "_SPLITS", 8)
        patch.setattr(homogeneous, "_ROWS", 100)
        yield


def question(toy: Toy, on, *, rules=FREE, objective=TIME):
    return homogeneous.SearchProblem(
        workload=toy.workload,
        cluster=on,
        constraints=rules,
        objective=objective,
        rates=prices.rates(on, objective),
    )


def search(toy: Toy, on, *, rules=FREE, objective=TIME, top_k=5):
    splits = space.splits(space.limits_of(toy.workload, on), rules)
    return homogeneous.rank(
        question(toy, on, rules=rules, objective=objective),
        splits,
        top_k=top_k,
        pricing=toy.pricing,
    )


def everything(toy: Toy, on, wish):
    """Every strategy there is, found without the search's own tables: loops over all numbers."""
    group = on.groups[0]
    per_node, total = group.devices_per_node, on.devices
    divides = lambda a, b: b % a == 0  # noqa: E731 - a rule of arithmetic
    numbers = range(1, total + 1)
    stages = wish.get("pp")
    named = set(stages.values()) if isinstance(stages, dict) else {stages}
    rows = []
    for tp, cp, pp, dp in product(numbers, repeat=4):
        used = tp * cp * pp * dp
        if used > total or not divides(tp, toy.heads) or pp > toy.layers:
            continue
        if not (divides(tp, per_node) or divides(per_node, tp)):
            continue
        if not (divides(pp, toy.layers) or divides(pp, total) or pp in named):
            continue
        if cp > 1 and (cp & (cp - 1) or not divides(cp, toy.sequence) or toy.sequence // cp < 128):
            continue
        if not (divides(used, per_node) if used < per_node else divides(per_node, used)):
            continue
        for mb, v in product(range(1, toy.global_batch + 1), range(1, toy.layers + 1)):
            if not divides(dp * mb, toy.global_batch):
                continue
            passes = toy.global_batch // (dp * mb)
            if v > 1 and (pp == 1 or not divides(pp * v, toy.layers) or not divides(pp, passes)):
                continue
            for z, sp, rc, ov in product(range(4), (0, 1), range(3), range(4)):
                if (sp and tp == 1) or (ov and (z == 3) != (ov == 3)):
                    continue
                rows.append((tp, pp, dp, cp, v, mb, z, sp, rc, ov, used))
    names: tuple[str, ...] = (
        "tp",
        "pp",
        "dp",
        "cp",
        "virtual_stages",
        "micro_batch",
        "zero",
        "sequence_parallel",
    )
    names = (*names, "recompute", "overlap", "devices")
    columns = dict(zip(names, np.asarray(rows).T, strict=True))
    keep = np.ones(len(rows), dtype=bool)
    for name, rule in wish.items():
        column = columns[name]
        if name == "recompute":
            column = np.asarray(["none", "selective", "full"])[column]
        forms = rule if isinstance(rule, dict) else {"is": rule}
        if "is" in forms:
            keep &= column == forms["is"]
        if "min" in forms:
            keep &= column >= forms["min"]
        if "max" in forms:
            keep &= column <= forms["max"]
        for unwanted in forms.get("not", []):
            keep &= column != unwanted
    columns.pop("devices")
    return table.take(table.build(columns), keep)


def scored(toy: Toy, on, rows, objective):
    seconds = toy.step_seconds(toy.workload, on, rows)
    devices = table.devices(rows)
    money = seconds * devices * (on.groups[0].price_per_device_hour or 1) / 3600
    score = money if isinstance(objective, objectives.MoneyObjective) else seconds
    fits = toy.memory_bytes(toy.workload, on, rows) <= on.groups[0].device.memory_bytes
    return np.where(fits, score, np.inf), seconds, money, devices, fits


@settings(
    max_examples=examples(300),
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(toy=toys, on=clusters, wish=wishes, objective=goals)
def test_the_best_k_are_those_of_trying_everything(toy, on, wish, objective):
    rows = everything(toy, on, wish)
    found = search(toy, on, rules=parse(wish), objective=objective)
    if not table.size(rows):
        assert found.rows is None
        return
    score, seconds, _, devices, fits = scored(toy, on, rows, objective)
    # modes that come to the same thing for a single replica are listed once: compare distinct scores
    expected = np.unique(score[np.isfinite(score)])
    expected = expected[
        np.insert(np.diff(expected) > expected[1:] * 1e-9, 0, [True][: len(expected)])
    ]
    distinct = found.score[
        np.insert(np.diff(found.score) > found.score[1:] * 1e-9, 0, [True][: len(found.score)])
    ]
    assert distinct == pytest.approx(expected[: len(distinct)], rel=1e-9)
    assert len(found.score) or not len(expected)
    for count in homogeneous.front_counts(int(devices.max())):
        fastest = seconds[fits & (devices == count)]
        if len(fastest):
            assert found.fastest[count][0] == pytest.approx(fastest.min(), rel=1e-9)


def test_bounds_cut_most_of_a_large_space_and_not_its_best():
    toy, on = Toy(layers=8, heads=8, global_batch=64, layer_flops=1e13, quirk=5), cluster(4, 8)
    wish = {"devices": 32}
    found = search(toy, on, rules=parse(wish), top_k=3)
    rows = everything(toy, on, wish)
    score, *_ = scored(toy, on, rows, objectives.TimeObjective())
    assert found.score == pytest.approx(np.sort(score)[:3])
    assert found.priced < table.size(rows) * 0.75
