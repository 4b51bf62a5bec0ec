"""The search over layers and kinds of nodes of stages comes as near the best as trying everything."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from airflow_training.planning.search import heterogeneous, homogeneous, objectives, prices, table
from airflow_training.planning.search import search as searched
from airflow_training.planning.search.constraints import Constraints, parse
from airflow_training.planning.search.layer_split import StageLayers, StageSeconds, layer_splits
from airflow_training.planning.sources.clusters import parse_cluster
from airflow_training.planning.view.cluster import ClusterView
from airflow_training.planning.view.plan import StrategyTable, Workload
from airflow_training.planning.view.strategy import TransformerModel
from airflow_training.planning.view.transformer import computation
from tests.examples import examples
from tests.planning.standin import Toy, cluster, device

FREE = Constraints()
NO_SHRINKING = (Phase.explicit, Phase.generate)
"""Shrinking a gap of a search takes minutes and says little."""


def mixed(*, fast: int, slow: int, ratio: float, slow_memory: float = 16) -> ClusterView:
    """Single-device nodes of two kinds."""
    one = cluster(fast, 1, name="fast", device=device("fast", peak=1e14)).groups[0]
    peak = 1e14 / ratio
    weaker = device("slow", memory_gib=slow_memory, peak=peak)
    other = cluster(slow, 1, name="slow", device=weaker).groups[0]
    return ClusterView(name="mixed", groups=(one, other))


toys = st.builds(
    lambda layers, uneven, **rest: Toy(
        layers=layers, uneven=tuple(uneven[:layers]) if uneven else (), heads=1, **rest
    ),
    layers=st.integers(2, 5),
    uneven=st.one_of(st.none(), st.lists(st.floats(0.3, 3), min_size=5, max_size=5)),
    global_batch=st.sampled_from([2, 4, 6]),
    sequence=st.just(128),
    layer_flops=st.floats(1e11, 1e13),
    layer_elements=st.floats(1e6, 3e8),
    activation_bytes=st.floats(1e6, 1e9),
    quirk=st.integers(0, 28),
)
clusters = st.builds(
    mixed,
    fast=st.integers(1, 2),
    slow=st.integers(1, 3),
    ratio=st.floats(1, 5),
    slow_memory=st.sampled_from([2, 8, 16]),
)


def question(toy: Toy, on: ClusterView, rules: Constraints = FREE) -> homogeneous.SearchProblem:
    return homogeneous.SearchProblem(
        workload=toy.workload,
        cluster=on,
        constraints=rules,
        objective=objectives.TimeObjective(),
        rates=prices.rates(on, objectives.TimeObjective()),
    )


def search(toy: Toy, on: ClusterView, rules: Constraints = FREE, *, kinds: int = 1, top_k: int = 3):
    return heterogeneous.rank_arranged(
        question(toy, on, rules),
        top_k=top_k,
        pricing=toy.pricing,
        to_beat=np.inf,
        least_kinds=kinds,
    )


def rows_of_width(toy: Toy, width: int, stages: int) -> StrategyTable | None:
    rows = [
        (1, stages, width // cp, cp, 1, mb, z, 0, rc, ov)
        for cp in (1,)
        for mb in range(1, toy.global_batch + 1)
        if toy.global_batch % (width // cp * mb) == 0
        for z, rc, ov in product(range(4), range(3), range(4))
        if not ov or (z == 3) == (ov == 3)
    ]
    if not rows:
        return None
    names: tuple[str, ...] = ("tp", "pp", "dp", "cp", "virtual_stages", "micro_batch", "zero")
    names = (*names, "sequence_parallel", "recompute", "overlap")
    return table.build(dict(zip(names, np.asarray(rows).T, strict=True)))


def best_of_everything(toy: Toy, on: ClusterView) -> float:
    """Try every width, every order of kinds and every split of the layers."""
    best = np.inf
    counts = [group.devices for group in on.groups]
    names = [group.name for group in on.groups]
    for width in range(1, max(counts) + 1):
        for stages in product(*(range(count // width + 1) for count in counts)):
            total = sum(stages)
            rows = rows_of_width(toy, width, total) if 0 < total <= toy.layers else None
            if rows is None:
                continue
            line = [name for name, n in zip(names, stages, strict=True) for _ in range(n)]
            for order in sorted(set(permutations(line))):
                for layers in product(range(1, toy.layers + 1), repeat=total):
                    if sum(layers) != toy.layers:
                        continue
                    costs = toy.arranged(
                        toy.workload, on, rows, stage_layers=layers, stage_devices=order
                    )
                    fits = np.all(costs.spare_bytes >= 0, axis=1)
                    best = min(best, np.where(fits, costs.step_seconds, np.inf).min())
    return float(best)


GAPS: list[float] = []


@settings(
    max_examples=examples(120),
    derandomize=True,
    deadline=None,
    phases=NO_SHRINKING,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(toy=toys, on=clusters)
def test_no_arrangement_is_better(toy, on):
    expected = best_of_everything(toy, on)
    found = search(toy, on)
    if not np.isfinite(expected):
        assert not found.best
        return
    gap = found.best[0].score / expected - 1
    GAPS.append(gap)
    assert -1e-9 <= gap <= 0.01


def test_nearly_every_answer_is_the_best_one():
    """Runs after the property above: at least 99 of 100 of its problems had no gap at all."""
    if len(GAPS) < 100:
        pytest.skip("the property did not run in this process")
    assert np.mean(np.asarray(GAPS) <= 1e-9) >= 0.99


def test_slow_devices_get_fewer_layers():
    toy = Toy(
        layers=8, heads=1, global_batch=16, sequence=128, layer_flops=1e13, layer_elements=1e6
    )
    best = search(toy, mixed(fast=1, slow=1, ratio=3), kinds=2).best[0]
    by_name = dict(zip(best.stage_devices, best.stage_layers, strict=True))
    assert by_name == {"fast": 6, "slow": 2}


def test_pinned_stages_are_kept():
    toy, on = Toy(layers=4, heads=1, sequence=128), mixed(fast=2, slow=2, ratio=2)
    rules = parse({"stage_layers": [1, 3], "stage_devices": ["slow", "fast"]})
    best = search(toy, on, rules).best
    assert {(plan.stage_layers, plan.stage_devices) for plan in best} == {
        ((1, 3), ("slow", "fast"))
    }


@pytest.mark.soak
def test_a_large_cluster_is_searched_as_well_as_with_its_sizes_pinned():
    nodes = {"count": 32, "devices_per_node": 8, "nic_gbit_s": 100, "nics_per_node": 4}
    kinds = [{"device": "A100-SXM4-80GB", **nodes}, {"device": "V100-SXM2-32GB", **nodes}]
    model = TransformerModel(hidden=8192, layers=48, heads=64, seq=2048, vocab=51200)
    workload = Workload(
        view=computation(model), global_batch=4096, precision="fp16", runtime="megatron-lm"
    )
    on = parse_cluster({"name": "mixed", "nodes": kinds})
    free = searched(workload, on)
    pinned = searched(workload, on, constraints=parse({"tp": 4, "dp": 32}))
    assert set(free.plans[0].strategy.stage_devices or ()) == {"A100-SXM4-80GB", "V100-SXM2-32GB"}
    assert free.plans[0].step_seconds <= pinned.plans[0].step_seconds * 1.01


def stages(*seconds: float, layers: int, before: float = 0, after: float = 0) -> StageSeconds:
    each = np.repeat(np.asarray(seconds)[:, None], layers, axis=1)
    return StageSeconds(layers=each, before=before, after=after)


@pytest.mark.parametrize(
    ("pipeline", "expected"),
    [
        pytest.param(stages(1, 1, layers=4), (2, 2), id="equal"),
        pytest.param(stages(1, 3, layers=8), (6, 2), id="a-slow-second-stage"),
        pytest.param(stages(1, 1, layers=5, after=1), (3, 2), id="the-head-counts"),
        pytest.param(stages(1, 1, layers=5, before=1), (2, 3), id="the-embedding-counts"),
    ],
)
def test_layers_go_where_time_is_left(pipeline, expected):
    assert layer_splits(pipeline, micro_batches=64)[0] == expected


def test_runs_that_are_too_big_are_cut():
    two = stages(1, 1, layers=4)
    assert layer_splits(two, micro_batches=8, too_big=[StageLayers(0, 2)])[0] == (1, 3)
    assert layer_splits(two, micro_batches=8, too_big=[StageLayers(0, 1, begin=0)]) == []
