"""Bounds never exceed the cost model: else a search would cut its best answer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from airflow_training.planning import cost
from airflow_training.planning.search import space, table
from airflow_training.planning.search.constraints import Constraints
from airflow_training.planning.search.layer_split import StageSeconds, layer_splits
from airflow_training.planning.search.objectives import TimeObjective
from airflow_training.planning.search.pass_times import (
    layer_mode_of,
    least_score,
    least_seconds,
    most_layers,
    paces_of,
)
from airflow_training.planning.search.searching import MODEL, question_of
from airflow_training.planning.sources.documents import parse_cluster, parse_model
from airflow_training.planning.view.computation import ComputationView
from airflow_training.planning.view.plan import Workload
from airflow_training.planning.view.transformer import computation
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
    modes = space.modes(FREE)
    floors = cost.memory_floors(workload, cluster, space.cross_modes(splits, modes))
    assert np.all(floors.bytes_held(rows) <= held)
    assert np.all(floors.bytes_held(space.leanest(rows, modes)) <= held)


@pytest.mark.parametrize("hidden", [1024, 4096])
@pytest.mark.parametrize("seed", range(4))
def test_no_arrangement_on_several_kinds_beats_its_bound(seed, hidden):
    kinds = {"fast": "A100-SXM4-80GB", "slow": "V100-SXM2-32GB", "slowest": "T4"}
    cluster = parse_cluster(
        {
            "name": "c",
            "nodes": [
                {
                    "name": name,
                    "count": 2,
                    "device": device,
                    "devices_per_node": 4,
                    "nic_gbit_s": rate,
                }
                for (name, device), rate in zip(kinds.items(), (200, 100, 50), strict=True)
            ],
        }
    )
    workload = Workload(
        view=gpt(hidden=hidden, layers=10, heads=16), global_batch=48, precision="fp16"
    )
    question = question_of(workload, cluster, FREE, TimeObjective())
    splits = space.stage_splits(space.limits_of(workload, cluster), FREE, widest=4)
    modes = space.modes(FREE)
    known = paces_of(question, splits, modes, MODEL)
    floors = cost.memory_floors(workload, cluster, space.cross_modes(splits, modes))
    random = np.random.default_rng(seed)
    for _ in range(50):
        number = random.integers(table.size(splits), size=1)
        stages = int(random.integers(2, 8))
        order = random.integers(len(kinds), size=stages)
        rows = space.expand(replace(table.take(splits, number), pp=np.array([stages])), modes)
        rows = table.take(rows, rows.sequence_parallel == rows.sequence_parallel[-1])
        columns = number * table.size(known.ways) + layer_mode_of(rows, known.ways)
        passes = workload.global_batch // (rows.dp * rows.micro_batch)
        pipeline = StageSeconds(
            layers=known.layers[order, :, columns[0]],
            before=float(known.before[order[0], columns[0]]),
            after=float(known.after[order[-1], columns[0]]),
        )
        layers = layer_splits(pipeline, micro_batches=int(passes[0]))[0]
        found = MODEL.arranged(
            workload,
            cluster,
            rows,
            stage_layers=layers,
            stage_devices=tuple(list(kinds)[kind] for kind in order),
        )
        every = np.repeat(np.bincount(order, minlength=len(kinds))[None], table.size(rows), axis=0)
        room = most_layers(question, floors, rows, every)
        seconds = least_seconds(known, columns, every, passes, room)
        least = least_score(question, MODEL, rows, seconds, every)
        fits = np.all(found.spare_bytes >= 0, axis=1)
        assert np.all(least[fits] <= found.step_seconds[fits] * (1 + 1e-9))
