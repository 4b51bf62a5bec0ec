"""Keras goes on after its last epoch, or with a sampler after its last batch, as if nothing had been."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import torch
from torch.utils.data import DataLoader, TensorDataset

from airflow_training.checkpoints import CheckpointError
from airflow_training.checkpoints.keras import KerasCheckpoint
from airflow_training.checkpoints.sampler import ResumableSampler

EPOCHS, SAMPLES, BATCH = 3, 40, 8
STEPS = SAMPLES // BATCH
TOTAL = EPOCHS * STEPS


# keras 3 asks torch for an array in a way that numpy 2 finds old
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]


class Killed(Exception):
    """Stands for a process that ends."""


class At(keras.callbacks.Callback):
    """Does something after a batch, as any other callback might."""

    def __init__(self, step: int | None, action: Any) -> None:
        super().__init__()
        self.step, self.action = step, action

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if int(self.model.optimizer.iterations) == self.step:
            self.action()


class Noise(keras.layers.Layer):
    """Draws from the random numbers of the process, as a user's own layer may."""

    def call(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + 0.01 * torch.randn_like(inputs)


def kill() -> None:
    raise Killed


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture(autouse=True)
def _signals():
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def train(
    root: Path | None,
    *,
    sampled: bool,
    at: int | None = None,
    action: Any = kill,
    every: int = 1,
    width: int = 6,
) -> tuple[list[np.ndarray], dict[str, list[float]]]:
    """Return all variables after training, and the history of the epochs that this call made."""
    keras.utils.set_random_seed(0)
    dice = np.random.default_rng(0)
    x = dice.normal(size=(SAMPLES, 4)).astype("float32")
    y = (x.sum(axis=1) > 0).astype("float32")
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(width, activation="relu"),
            keras.layers.BatchNormalization(),
            Noise(),
            keras.layers.Dropout(0.3, seed=1),
            keras.layers.Dense(1),
        ]
    )
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss=loss, metrics=["mae"])
    sampler = ResumableSampler(SAMPLES, batch_size=BATCH, rank=0, world=1) if sampled else None
    if sampler is None:
        data: dict[str, Any] = {"x": x, "y": y, "batch_size": BATCH}
    else:
        tensors = TensorDataset(torch.tensor(x), torch.tensor(y))
        loader = DataLoader(tensors, batch_sampler=sampler, generator=torch.Generator())
        data = {"x": loader, "shuffle": False}
    history = model.fit(
        **data,
        epochs=EPOCHS,
        verbose=0,
        validation_data=(x[:8], y[:8]),
        callbacks=[
            KerasCheckpoint(data=sampler, root=root, every={"steps": every}),
            At(at, action),
        ],
    )
    variables = [*model.variables, *model.optimizer.variables]
    return [keras.ops.convert_to_numpy(each.value).copy() for each in variables], history.history


def assert_same(first: list[np.ndarray], second: list[np.ndarray]) -> None:
    assert [a.tobytes() for a in first] == [a.tobytes() for a in second]


@pytest.mark.parametrize("sampled", [False, True], ids=["by epochs", "by batches"])
@pytest.mark.parametrize("kills", [[STEPS + 2], [1, STEPS, 2 * STEPS + 1], [TOTAL]])
def test_a_killed_training_ends_with_the_same_variables(tmp_path, sampled, kills):
    for step in kills:
        with pytest.raises(Killed):
            train(tmp_path, sampled=sampled, at=step)
    straight, _ = train(None, sampled=sampled)
    resumed, _ = train(tmp_path, sampled=sampled)
    assert_same(straight, resumed)


def test_an_epoch_that_went_on_has_the_metrics_of_the_whole_epoch(tmp_path):
    with pytest.raises(Killed):
        train(tmp_path, sampled=True, at=STEPS + 3)
    _, straight = train(None, sampled=True)
    _, resumed = train(tmp_path, sampled=True)
    assert resumed == {name: values[1:] for name, values in straight.items()}


def test_sigterm_saves_the_batch_and_ends(tmp_path, monkeypatch):
    with pytest.raises(SystemExit) as ended:
        train(tmp_path, sampled=True, at=3, action=terminate)
    assert ended.value.code == 143
    # asked after the third batch was told: the fourth is the next boundary
    steps = [line["step"] for line in progress(tmp_path, monkeypatch) if "step" in line]
    assert steps[0] == 5


def test_progress_and_evaluation_are_reported(tmp_path, monkeypatch):
    lines = progress(tmp_path, monkeypatch)
    steps = [line["step"] for line in lines if "step" in line]
    assert sorted(set(steps)) == list(range(1, TOTAL + 1))
    assert [line["section"] for line in lines if "section" in line] == ["eval", None] * EPOCHS + [
        "save",
        None,
    ]


def test_without_a_sampler_it_saves_after_the_epoch_in_which_a_save_was_due(tmp_path, monkeypatch):
    with pytest.raises(Killed):
        train(tmp_path, sampled=False, every=STEPS + 2, at=2 * STEPS + 1)
    steps = [
        line["step"] for line in progress(tmp_path, monkeypatch, sampled=False) if "step" in line
    ]
    assert steps[0] == 2 * STEPS + 1


def progress(
    root: Path, monkeypatch: pytest.MonkeyPatch, *, sampled: bool = True
) -> list[dict[str, Any]]:
    path = root.parent / f"{root.name}.progress"
    monkeypatch.setenv("TRAINING_PROGRESS_FILE", str(path))
    train(root, sampled=sampled)
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_model_of_another_shape_is_refused(tmp_path):
    train(tmp_path, sampled=False)
    with pytest.raises(CheckpointError, match=r"model: saved were variables of shapes \[\(4, 6\)"):
        train(tmp_path, sampled=False, width=7)
