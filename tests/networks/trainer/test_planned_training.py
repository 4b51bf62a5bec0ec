"""A network that its job's plan splits learns what it learns without a plan, over kills and other splits too."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy
import pytest

from tests.networks.trainer.made import TABLE
from tests.networks.trainer.test_training import start, train, write_tables
from tests.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

BATCH = 8
DEEP: tuple[dict[str, Any], ...] = (
    *TABLE[:2],
    {"name": "dense1", "type": "Linear", "inputs": ["x"], "params": {"out_features": 8}},
    {"name": "act1", "type": "Tanh"},
    {"name": "norm", "type": "LayerNorm"},
    {"name": "dense2", "type": "Linear", "params": {"out_features": 6}},
    {"name": "act2", "type": "ReLU"},
    {"name": "logits", "type": "Linear", "params": {"out_features": 2}},
    *TABLE[3:],
)
"""No dropout: its numbers follow from the split."""
TRAINED: dict[str, Any] = {
    "layers": DEEP,
    "epochs": 3,
    "seed": 3,
    "optimizer": {"name": "SGD", "learningRate": 0.1, "momentum": 0.9},
}


def strategy(**split: Any) -> dict[str, Any]:
    return {"global_batch": BATCH, "micro_batch": 2, "precision": "fp32", **split}


def assert_equal(found: Any, expected: Any) -> None:
    (weights, metrics), (wanted, wanted_metrics) = found, expected
    assert weights.keys() == wanted.keys()
    for name in wanted:
        assert numpy.linalg.norm(weights[name] - wanted[name]) <= 1e-5 * max(
            1.0, float(numpy.linalg.norm(wanted[name]))
        ), name
    assert metrics == pytest.approx(wanted_metrics, abs=1e-5)


@pytest.mark.parametrize(
    ("world", "split"),
    [
        pytest.param(4, {"dp": 2, "tp": 2}, id="dp2-tp2"),
        pytest.param(2, {"pp": 2}, id="pp2"),
        pytest.param(2, {"dp": 2, "zero": 3}, id="zero3"),
        pytest.param(4, {"dp": 2, "pp": 2, "zero": 1, "micro_batch": 1}, id="dp2-pp2"),
    ],
)
def test_a_split_network_learns_what_replicas_without_a_plan_learn(tmp_path, world, split):
    write_tables(tmp_path, 32)
    replicas = split.get("dp", 1)
    found = train(tmp_path, "split", world=world, plan=strategy(**split), **TRAINED)
    expected = train(tmp_path, "whole", world=replicas, batchSize=BATCH // replicas, **TRAINED)
    assert_equal(found, expected)
    for rank in range(1, world):
        assert (tmp_path / f"split/model-{rank}/model.safetensors").is_file()
    lines = [
        [
            json.loads(line)
            for line in (tmp_path / f"split/progress-{rank}").read_text().splitlines()
        ]
        for rank in range(world)
    ]
    last = [[each for each in told if "step" in each][-1] for told in lines]
    assert {(each["step"], each["total_steps"]) for each in last} == {(12, 12)}
    assert sum(max(each.get("samples", 0) for each in told) for told in lines) == 3 * 32


@pytest.mark.parametrize(
    ("world", "split"),
    [
        (2, {"dp": 2, "zero": 2}),
        (4, {"dp": 2, "pp": 2, "micro_batch": 1}),
        (2, {"tp": 2, "micro_batch": 4, "global_batch": 40}),
        (2, {"pp": 2, "micro_batch": 4, "global_batch": 40}),
    ],
)
def test_samples_that_fill_no_batch_count_as_much_as_all_others(tmp_path, world, split):
    write_tables(tmp_path, 31)
    plan = strategy(**{"global_batch": 32, "micro_batch": 8, **split})
    found = train(tmp_path, "split", world=world, plan=plan, **TRAINED)
    assert_equal(found, train(tmp_path, "whole", batchSize=31, **TRAINED))


NORMED: tuple[dict[str, Any], ...] = (
    *DEEP[:2],
    {"name": "scaled", "type": "BatchNorm1d", "inputs": ["x"]},
    {**DEEP[2], "inputs": ["scaled"]},
    *DEEP[3:],
)


@pytest.mark.parametrize(
    ("world", "split"), [(2, {"dp": 2}), (2, {"dp": 2, "zero": 3}), (1, {"micro_batch": 32})]
)
def test_a_norm_sees_each_sample_of_an_unfilled_batch_once(tmp_path, world, split):
    write_tables(tmp_path, 21)
    trained = {**TRAINED, "layers": NORMED}
    plan = strategy(**{"global_batch": 32, "micro_batch": 16, **split})
    found = train(tmp_path, "split", world=world, plan=plan, **trained)
    assert_equal(found, train(tmp_path, "whole", batchSize=21, **trained))


@pytest.mark.parametrize(
    ("world", "split"),
    [
        (1, {}),
        (2, {"tp": 2}),
        (2, {"dp": 2, "micro_batch": 1}),
        (2, {"pp": 2}),
        (4, {"dp": 2, "tp": 2}),
    ],
)
def test_a_norm_learns_the_statistics_of_samples_that_fill_no_micro_batch(tmp_path, world, split):
    write_tables(tmp_path, 17)
    barely = {**TRAINED, "epochs": 8, "optimizer": {"name": "SGD", "learningRate": 1e-9}}
    plan = strategy(**{"global_batch": 32, "micro_batch": 2, **split})
    weights, _ = train(tmp_path, "split", world=world, plan=plan, **{**barely, "layers": NORMED})
    values = numpy.loadtxt(tmp_path / "train.csv", delimiter=",", skiprows=1)[:, :2]
    assert weights["scaled.running_mean"] == pytest.approx(values.mean(0), abs=0.15)
    assert weights["scaled.running_var"] == pytest.approx(values.var(0, ddof=1), rel=0.6)


def test_a_replica_without_samples_changes_neither_weights_nor_statistics_much(tmp_path):
    write_tables(tmp_path, 2)
    rows = [*Path(tmp_path, "train.csv").read_text().splitlines()]
    Path(tmp_path, "train.csv").write_text("\n".join([rows[0], "50,-50,1"]) + "\n")
    barely = {**TRAINED, "epochs": 40, "optimizer": {"name": "SGD", "learningRate": 1e-9}}
    plan = strategy(dp=2, micro_batch=4)
    weights, _ = train(tmp_path, "split", world=2, plan=plan, **{**barely, "layers": NORMED})
    assert weights["scaled.running_mean"] == pytest.approx([50, -50], rel=0.05)


def test_a_killed_training_goes_on_by_another_split(tmp_path, monkeypatch):
    write_tables(tmp_path, 32)
    long: dict[str, Any] = {
        **TRAINED, "epochs": 60, "optimizer": {"name": "AdamW", "learningRate": 0.001},
    }  # fmt: skip
    expected = train(tmp_path, "whole", batchSize=32, **long)
    whole = strategy(global_batch=32, micro_batch=8)
    saves = {"root": str(tmp_path / "checkpoints"), "every": {"steps": 2}}
    monkeypatch.setenv("TRAINING_CHECKPOINT", json.dumps(saves))
    ranks = start(tmp_path, "first", world=4, plan={**whole, "dp": 2, "tp": 2}, **long)
    wait_until(
        lambda: [*(tmp_path / "checkpoints").glob("**/manifests/*.json")],
        alive=lambda: all(each.poll() is None for each in ranks),
        patience=2 * PATIENCE,
    )
    ranks[1].send_signal(signal.SIGKILL)
    assert [each.wait(timeout=2 * PATIENCE) for each in ranks] == [75, -9, 75, 75]
    found = train(tmp_path, "second", world=2, plan={**whole, "pp": 2}, **long)
    steps = [
        json.loads(line).get("step", 0)
        for line in (tmp_path / "second/progress-0").read_text().splitlines()
    ]
    assert 0 < min(filter(None, steps)) <= max(steps) == 60
    assert min(filter(None, steps)) > 2  # not from the start
    assert_equal(found, expected)


def test_ranks_that_hold_the_same_weights_draw_the_same_dropout(tmp_path):
    from safetensors.numpy import load_file

    write_tables(tmp_path, 32)
    dropped = [
        *DEEP[:4],
        {"name": "dense2", "type": "Linear", "params": {"out_features": 6}},
        {"name": "drop", "type": "Dropout", "params": {"p": 0.5}},
        {"name": "norm", "type": "LayerNorm"},
        *DEEP[7:],
    ]
    train(tmp_path, "split", world=2, plan=strategy(tp=2), **{**TRAINED, "layers": dropped})
    first, second = (load_file(tmp_path / f"split/model-{n}/model.safetensors") for n in range(2))
    for name in first:
        numpy.testing.assert_array_equal(first[name], second[name])


def test_a_split_network_begins_with_the_weights_of_a_model(tmp_path):
    write_tables(tmp_path, 32)
    first = train(tmp_path, "first", batchSize=8, **TRAINED)
    barely = {**TRAINED, "epochs": 1, "optimizer": {"name": "SGD", "learningRate": 1e-9}, "seed": 5}
    model = str(tmp_path / "first" / "model-0")
    assert_equal(
        train(tmp_path, "again", world=2, plan=strategy(tp=2), initial=model, **barely), first
    )


def test_a_layer_that_the_plan_cannot_split_ends_all_ranks_with_its_name(tmp_path):
    write_tables(tmp_path, 32)
    layers: list[dict[str, Any]] = [
        *DEEP[:2],
        {"name": "scaled", "type": "BatchNorm1d", "inputs": ["x"]},
        *DEEP[2:],
    ]
    layers[3] = {**layers[3], "inputs": ["scaled"]}
    plan = strategy(dp=2, pp=2)
    ranks = start(tmp_path, "split", world=4, plan=plan, **{**TRAINED, "layers": layers})
    assert [each.wait(timeout=2 * PATIENCE) for each in ranks] == [2] * 4
    for rank in range(4):
        said = Path(tmp_path, f"split/stderr-{rank}").read_text()
        assert "cannot train: the plan cannot be carried out: scaled: BatchNorm1d" in said
        assert "Traceback" not in said
        assert "LossNet" not in said
