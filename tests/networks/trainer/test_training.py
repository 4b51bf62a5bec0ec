"""What is trained does not depend on how many processes train it; models start from others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import pytest

from tests.networks.trainer.made import LISTS, TABLE, settings_of
from tests.ports import free_port
from tests.waiting import PATIENCE

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


def write_tables(folder: Path, rows: int = 30) -> None:
    draw = numpy.random.RandomState(0)
    for name in ("train", "test"):
        values = draw.rand(rows, 2)
        lines = ["a,b,kind"] + [f"{a:.6f},{b:.6f},{int(a > b)}" for a, b in values]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")


def train(
    folder: Path, name: str, *, world: int = 1, **more: Any
) -> tuple[Mapping[str, Any], Mapping[str, float]]:
    """Train with some processes; return the weights, and the metrics of the last test."""
    from safetensors.numpy import load_file

    ranks = start(folder, name, world=world, **more)
    assert [each.wait(timeout=2 * PATIENCE) for each in ranks] == [0] * world
    out = folder / name
    told = [json.loads(line) for line in (out / "progress-0").read_text().splitlines()]
    metrics = [line["metrics"] for line in told if "test_loss" in line.get("metrics", {})]
    return load_file(out / "model-0" / "model.safetensors"), metrics[-1]


def start(
    folder: Path,
    name: str,
    *,
    world: int = 1,
    layers: Any = TABLE,
    data: Any = None,
    plan: Mapping[str, Any] | None = None,
    **more: Any,
) -> list[subprocess.Popen[str]]:
    """Start a training with some processes, each of which writes below `name`; `plan` is the strategy of one."""
    data = data or {"format": "csv", "label": "kind", "test": ["test.csv"]}
    initial = more.pop("initial", "")
    settings = settings_of(layers, data, files=["train.csv"], threads=1, **more)
    out = folder / name
    out.mkdir(exist_ok=True)
    document = dict(settings.document)
    if plan is not None:
        document |= {"byPlan": True, "batchSize": plan["global_batch"]}
        (out / "plan.json").write_text(json.dumps({"strategy": plan}))
    (out / "trainer.json").write_text(json.dumps(document))
    shared = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "PLAN_FILE": str(out / "plan.json"),
        "TRAINER_FILE": str(out / "trainer.json"),
        "TRAINING_DATA_URI": str(folder),
        "TRAINING_INITIAL_MODEL_URI": initial,
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    ranks = []
    for rank in range(world):
        own = {
            "TRAINING_OUTPUT_DIR": str(out / f"model-{rank}"),
            "TRAINING_PROGRESS_FILE": str(out / f"progress-{rank}"),
            "RANK": str(rank),
        }
        with (out / f"stderr-{rank}").open("w") as said:
            command = [sys.executable, "-m", "airflow_training.networks.trainer"]
            ranks.append(subprocess.Popen(command, stderr=said, text=True, env=shared | own))
    return ranks


PLAIN: dict[str, Any] = {
    "shuffle": False,
    "epochs": 4,
    "optimizer": {"name": "SGD", "learningRate": 0.5},
}


def test_three_ranks_with_unequal_shares_train_what_one_process_trains(tmp_path):
    write_tables(tmp_path, 31)
    one, tested = train(tmp_path, "one", batchSize=100, **PLAIN)
    three, tested_by_three = train(tmp_path, "three", world=3, batchSize=100, **PLAIN)
    for name in one:
        numpy.testing.assert_allclose(three[name], one[name], rtol=1e-4, atol=1e-5)
    assert tested_by_three == pytest.approx(tested, abs=1e-4)


def test_more_ranks_than_samples_train_too(tmp_path):
    write_tables(tmp_path, 2)
    one, _ = train(tmp_path, "one", batchSize=100, **PLAIN)
    three, _ = train(tmp_path, "three", world=3, batchSize=100, **PLAIN)
    for name in one:
        numpy.testing.assert_allclose(three[name], one[name], rtol=1e-4, atol=1e-5)


def test_gradients_of_an_interval_are_those_of_one_batch(tmp_path):
    write_tables(tmp_path, 32)
    whole, _ = train(tmp_path, "whole", batchSize=16, **PLAIN)
    added, _ = train(tmp_path, "added", batchSize=4, updateInterval=4, **PLAIN)
    for name in whole:
        numpy.testing.assert_allclose(added[name], whole[name], rtol=1e-4, atol=1e-5)


def test_a_hot_start_begins_with_the_weights_of_a_model(tmp_path):
    write_tables(tmp_path)
    first, _ = train(tmp_path, "first", batchSize=8, **PLAIN)
    barely: dict[str, Any] = {"epochs": 1, "optimizer": {"name": "SGD", "learningRate": 1e-9}}
    model = str(tmp_path / "first" / "model-0")
    again, _ = train(tmp_path, "again", initial=model, seed=5, **barely)
    for name in first:
        numpy.testing.assert_allclose(again[name], first[name], atol=1e-6)


def test_metrics_of_lists_are_the_same_on_three_ranks(tmp_path):
    draw = numpy.random.RandomState(1)
    for name in ("train", "test"):
        lines = ["q,y,a,b"]
        for query in range(9):
            lines += [
                f"{query},{draw.randint(3)},{draw.rand():.4f},{draw.rand():.4f}"
                for _ in range(draw.randint(1, 8))
            ]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    data = {"format": "csv", "label": "y", "query": "q", "test": ["test.csv"]}
    lists: dict[str, Any] = {"layers": LISTS, "data": data, "batchSize": 50, **PLAIN}
    _, one = train(tmp_path, "one", **lists)
    _, three = train(tmp_path, "three", world=3, **lists)
    assert three["ndcg"] == pytest.approx(one["ndcg"], abs=1e-4)


def test_running_statistics_are_the_same_on_all_ranks_and_stand_one_sample(tmp_path):
    from safetensors.numpy import load_file

    write_tables(tmp_path, 5)
    layers: list[Any] = [
        *TABLE[:2],
        {"name": "norm", "type": "BatchNorm1d", "inputs": ["x"]},
        *TABLE[2:],
    ]
    layers[3] = {**layers[3], "inputs": ["norm"]}
    train(tmp_path, "norm", world=2, layers=layers, batchSize=1, **PLAIN)
    first, second = (load_file(tmp_path / f"norm/model-{n}/model.safetensors") for n in range(2))
    for name in first:
        numpy.testing.assert_array_equal(first[name], second[name])
