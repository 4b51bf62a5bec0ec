"""The program of a plan with `engine`, on real ranks: equal to the loop that everybody writes, and what it refuses."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from airflow_training.errors import InputError
from airflow_training.execution import ExecutionPlan
from airflow_training.execution.engine_settings import EngineSettings, read_engine
from airflow_training.execution.runner import train_by_plan
from tests.execution import plain_training
from tests.execution.plain_training import BATCH, data, train_serially
from tests.execution.ranks import call_ranks

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

MODEL = "tests.execution.plain_training:example"


def plan_file(folder: Path, strategy: dict[str, object], **engine: object) -> str:
    path = folder / "plan.json"
    strategy = {"global_batch": BATCH, "precision": "fp32", **strategy}
    path.write_text(json.dumps({"strategy": strategy, "engine": {"model": MODEL, **engine}}))
    return str(path)


def train(path: str, folder: str) -> tuple[int, float]:
    """Train on this rank; return the steps, and its distance from the serial training."""
    rank = os.environ["RANK"]
    os.environ |= {
        "TRAINING_PROGRESS_FILE": f"{folder}/progress-{rank}",
        "TRAINING_OUTPUT_DIR": f"{folder}/output-{rank}",
    }
    Path(folder, f"output-{rank}").mkdir()
    training = train_by_plan(*read_engine(path))
    _, serial = train_serially(seed=3, epochs=2, micro_batch=4)
    state = torch.load(Path(folder, f"output-{rank}", "model.pt"), weights_only=True)
    assert state.keys() == serial.keys()
    return training.steps, max(
        float((state[name] - serial[name]).norm() / serial[name].norm()) for name in serial
    )


@pytest.mark.parametrize(
    "split", [{"dp": 2, "zero": 1, "micro_batch": 2}, {"pp": 2, "micro_batch": 4}]
)
def test_two_ranks_train_a_plain_module_as_its_own_loop_does(split, tmp_path):
    path = plan_file(tmp_path, split, epochs=2, seed=3, precision="fp64")
    for steps, distance in call_ranks(2, train, path, str(tmp_path)):
        assert steps == 8
        assert distance <= 1e-10
    lines = [json.loads(line) for line in (tmp_path / "progress-0").read_text().splitlines()]
    assert lines[0]["section"] == "init"
    last = lines[-1]
    assert (last["step"], last["total_steps"], last["epoch"], last["samples"]) == (8, 8, 2.0, 128)
    expected, _ = train_serially(seed=3, epochs=2, micro_batch=4)
    assert last["metrics"]["loss"] == pytest.approx(expected, rel=1e-9)
    assert last["metrics"]["samples_per_second"] > 0
    other = [json.loads(line) for line in (tmp_path / "progress-1").read_text().splitlines()]
    assert other[-1]["step"] == 8
    assert "samples" not in other[-1]  # they are those of the whole job


def whole_weights(path: str) -> dict[str, list[float]]:
    """Train on this rank; return all weights as it holds them."""
    training = train_by_plan(*read_engine(path))
    return {name: tensor.flatten().tolist() for name, tensor in training.gather().items()}


def test_ranks_that_hold_the_same_numbers_draw_the_same(tmp_path):
    dropping = "tests.execution.plain_training:dropping"
    split: dict[str, object] = {"tp": 2, "micro_batch": 4}
    path = plan_file(tmp_path, split, model=dropping, steps=3, randomness="independent")
    first, second = call_ranks(2, whole_weights, path)
    assert first == second


def test_one_rank_trains_by_a_plan_of_one_device(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINING_PROGRESS_FILE", str(tmp_path / "progress"))
    path = plan_file(tmp_path, {"micro_batch": 16}, steps=3)
    assert train_by_plan(*read_engine(path)).steps == 3
    assert json.loads((tmp_path / "progress").read_text().splitlines()[-1])["step"] == 3


@pytest.mark.parametrize(
    ("engine", "fields"),
    [
        ({"loss": "los", "data": "dat"}, ["spec.plan.engine.loss", "spec.plan.engine.data"]),
        ({"model": "no_such_module:example"}, ["spec.plan.engine.model"]),
        ({"model": "tests.execution.plain_training:data"}, ["spec.plan.engine.model"]),
        ({"data": "optimizer", "optimizer": "optimizer"}, []),
    ],
)
def test_what_cannot_be_trained_is_refused_at_its_field(engine, fields):
    settings = EngineSettings(**{"model": MODEL, "epochs": 1, **engine})
    plan = ExecutionPlan(global_batch=BATCH, micro_batch=BATCH)
    if not fields:
        with pytest.raises(TypeError):  # the user's own mistake, with the user's own traceback
            train_by_plan(settings, plan)
        return
    with pytest.raises(InputError) as refused:
        train_by_plan(settings, plan)
    assert [problem.field for problem in refused.value.problems] == fields


def test_more_samples_in_a_step_than_there_are_is_refused():
    plan = ExecutionPlan(global_batch=128, micro_batch=128)
    with pytest.raises(InputError, match="70 samples, and a step takes 128"):
        train_by_plan(EngineSettings(model=MODEL, epochs=1), plan)


def test_a_plan_that_names_nothing_to_train_is_refused(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"strategy": {"global_batch": 4, "micro_batch": 4}}))
    with pytest.raises(InputError, match=r"engine\.model"):
        read_engine(str(path))
    with pytest.raises(InputError, match="PLAN_FILE: is not set"):
        read_engine("")
    newer = {"engine": {"model": MODEL, "colour": 1}, "strategy": {}}
    path.write_text(json.dumps(newer))
    with pytest.raises(InputError, match=r"engine\.colour: is no key"):
        read_engine(str(path))


class DrawnSamples(list[tuple[torch.Tensor, torch.Tensor]]):
    """Samples that are drawn as they are read, as by augmentation."""

    def __getitem__(self, number):
        drawn.append(float(torch.rand(())))
        return super().__getitem__(number)


drawn: list[float] = []


def drawing() -> DrawnSamples:
    drawn.clear()
    return DrawnSamples(data())


def test_samples_drawn_as_they_are_read_are_the_same_after_a_restart(tmp_path, monkeypatch):
    monkeypatch.setattr(plain_training, "drawing", drawing, raising=False)
    plan = ExecutionPlan(global_batch=BATCH, micro_batch=BATCH)
    train_by_plan(EngineSettings(model=MODEL, data="drawing", steps=3), plan)
    whole = drawn[-BATCH:]
    monkeypatch.setenv(
        "TRAINING_CHECKPOINT", json.dumps({"root": str(tmp_path), "every": {"steps": 2}})
    )
    train_by_plan(EngineSettings(model=MODEL, data="drawing", steps=2), plan)
    training = train_by_plan(EngineSettings(model=MODEL, data="drawing", steps=3), plan)
    assert training.steps == 3
    assert len(drawn) == 2 * BATCH  # one to look at, and the last step
    assert drawn[-BATCH:] == whole


def test_weights_are_there_whole_or_not_at_all(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINING_OUTPUT_DIR", str(tmp_path))
    (tmp_path / "model.pt").write_bytes(b"of an earlier training")

    def full(_: object, path: Path) -> None:
        Path(path).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    plan = ExecutionPlan(global_batch=BATCH, micro_batch=BATCH)
    with pytest.raises(OSError, match="No space"):
        train_by_plan(EngineSettings(model=MODEL, steps=1), plan)
    assert [each.name for each in tmp_path.iterdir()] == ["model.pt"]
    assert (tmp_path / "model.pt").read_bytes() == b"of an earlier training"


def test_several_optimizers_are_refused(monkeypatch):
    def two(parameters):
        return [plain_training.optimizer(parameters), plain_training.optimizer(parameters)]

    monkeypatch.setattr(plain_training, "two", two, raising=False)
    plan = ExecutionPlan(global_batch=BATCH, micro_batch=BATCH)
    with pytest.raises(InputError, match="optimizer: returns list, and not one"):
        train_by_plan(EngineSettings(model=MODEL, optimizer="two", steps=1), plan)
