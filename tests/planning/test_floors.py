"""Bounds never exceed the cost model: else a search would cut its best answer."""

from __future__ import annotations

import numpy as np
import pytest

from airflow_training.planning import cost
from airflow_training.planning.computation import ComputationView
from airflow_training.planning.plan import Workload
from airflow_training.planning.search import space, table
from airflow_training.planning.search.constraints import Constraints
from airflow_training.planning.sources.documents import parse_cluster, parse_model
from airflow_training.planning.transformer import computation
from tests.planning import networks

FREE = Constraints()


def gpt(**sizes: int) -> ComputationView:
    return computation(parse_model({"seq": 2048, "vocab": 51200, **sizes}))


@pytest.mark.parametrize("runtime", ["megatron-lm", "fsdp", "generic"])
@pytest.mark.parametrize(
    ("view", "nodes", "batch"),
    [
        pytest.param(gpt(hidden=1024, layers=12, heads=16), 2, 64, id="small"),
        pytest.param(gpt(hidden=8192, layers=30, heads=64), 12, 384, id="uneven-stages"),
        pytest.param(
            gpt(hidden=2048, layers=8, heads=16, experts=8, experts_per_token=2),
            4,
            128,
            id="experts",
        ),
        pytest.param(
            networks.mlp(512, 8192, 1024, 4096, 512, 10), 2, 1024, id="layers-that-differ"
        ),
    ],
)
def test_no_strategy_beats_its_bounds(view, nodes, batch, runtime):
    cluster = parse_cluster(
        {
            "name": "c",
            "nodes": [
                {
                    "count": nodes,
                    "device": "A100-SXM4-80GB",
                    "devices_per_node": 8,
                    "intra_node": "nvlink3",
                    "nics_per_node": 8,
                    "nic_gbit_s": 200,
                }
            ],
        }
    )
    workload = Workload(view=view, global_batch=batch, runtime=runtime)
    splits = space.splits(space.limits_of(workload, cluster), FREE)
    rows = space.expand(splits, space.modes(FREE))
    some = np.random.default_rng(0).permutation(table.size(rows))[:20_000]
    rows = table.take(rows, np.sort(some))

    least = cost.floors(workload, cluster, rows)(rows)
    assert np.all(least <= cost.step_seconds(workload, cluster, rows) * (1 + 1e-9))

    held = cost.memory_bytes(workload, cluster, rows)
    bytes_of = cost.memory_floors(workload, cluster, space.cross_modes(splits, space.modes(FREE)))
    assert np.all(bytes_of(rows) <= held)
    assert np.all(bytes_of(space.leanest(rows, space.modes(FREE))) <= held)
