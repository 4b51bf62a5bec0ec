"""A Hugging Face Trainer goes on from its last step, as if nothing had been."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from airflow_training.checkpoints import CheckpointError
from airflow_training.checkpoints.huggingface import HuggingFaceCheckpoint
from airflow_training.checkpoints.tree import differences

EPOCHS, SAMPLES, BATCH = 2, 24, 4
STEPS = SAMPLES // BATCH
TOTAL = EPOCHS * STEPS

pytestmark = pytest.mark.e2e


class Killed(Exception):
    """Stands for a process that ends."""


class At(transformers.TrainerCallback):
    """Does something after a step, as any other callback might."""

    def __init__(self, step: int | None, action: Any) -> None:
        self.step, self.action = step, action

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            self.action()


class Config(transformers.PretrainedConfig):
    model_type = "tiny"


class Network(transformers.PreTrainedModel):
    """A linear model that draws random numbers in training."""

    config_class = Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1)
        )
        self.register_buffer("mean", torch.zeros(1))
        self.post_init()

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        answer = self.layers(x).squeeze(1)
        if self.training:
            self.mean.mul_(0.9).add_(0.1 * answer.detach().mean())
        return {"loss": torch.nn.functional.mse_loss(answer, labels), "logits": answer}


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
    tmp_path: Path,
    *,
    at: int | None = None,
    action: Any = kill,
    resume: bool = True,
) -> dict[str, Any]:
    """Return all state after training."""
    dice = np.random.default_rng(0)
    rows = dice.normal(size=(SAMPLES, 4)).astype("float32")
    data = [{"x": row, "labels": row.sum()} for row in rows]
    checkpoint = HuggingFaceCheckpoint(root=root, every={"steps": 1})
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "output"),
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=BATCH,
        learning_rate=0.01,
        save_strategy="no",
        eval_strategy="epoch",
        logging_steps=2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    transformers.set_seed(1)
    trainer = transformers.Trainer(
        Network(Config()),
        arguments,
        train_dataset=data,
        eval_dataset=data[:4],
        callbacks=[checkpoint, At(at, action)],
    )
    trainer.train(resume_from_checkpoint=checkpoint.resume() if resume else None)
    assert trainer.optimizer is not None
    assert trainer.lr_scheduler is not None
    return {
        "model": trainer.model.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "scheduler": trainer.lr_scheduler.state_dict(),
        "random": torch.get_rng_state(),
        "step": trainer.state.global_step,
        "epoch": trainer.state.epoch,
    }


@pytest.mark.parametrize("kills", [[3], [1, STEPS, STEPS + 2], [TOTAL]])
def test_a_killed_training_ends_with_the_same_state(tmp_path, kills):
    for step in kills:
        with pytest.raises(Killed):
            train(tmp_path / "root", tmp_path, at=step)
    straight = train(None, tmp_path)
    resumed = train(tmp_path / "root", tmp_path)
    assert list(differences(straight, resumed)) == []
    assert resumed["step"] == TOTAL


def test_sigterm_saves_the_step_and_ends(tmp_path, monkeypatch):
    with pytest.raises(SystemExit) as ended:
        train(tmp_path / "root", tmp_path, at=3, action=terminate)
    assert ended.value.code == 143
    assert steps(progress(tmp_path, monkeypatch))[0] == 4


def test_progress_and_evaluation_are_reported(tmp_path, monkeypatch):
    lines = progress(tmp_path, monkeypatch)
    assert sorted(set(steps(lines))) == list(range(1, TOTAL + 1))
    assert [line["section"] for line in lines if "section" in line] == ["eval", None] * EPOCHS + [
        "save",
        None,
    ]
    assert {"loss", "eval_loss"} <= {name for line in lines for name in line.get("metrics", {})}


def test_nothing_of_the_way_it_resumes_is_left_behind(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    with pytest.raises(Killed):
        train(tmp_path / "root", tmp_path, at=3)
    train(tmp_path / "root", tmp_path)
    assert list((tmp_path / "temporary").iterdir()) == []
    assert "missing keys" not in caplog.text


def test_a_training_that_would_begin_anew_beside_a_checkpoint_is_told_how_to_go_on(tmp_path):
    with pytest.raises(Killed):
        train(tmp_path / "root", tmp_path, at=3)
    with pytest.raises(CheckpointError, match=r"checkpoint\.resume\(\)"):
        train(tmp_path / "root", tmp_path, resume=False)


def progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    path = tmp_path / "progress"
    monkeypatch.setenv("TRAINING_PROGRESS_FILE", str(path))
    train(tmp_path / "root", tmp_path)
    return [json.loads(line) for line in path.read_text().splitlines()]


def steps(lines: list[dict[str, Any]]) -> list[int]:
    return [line["step"] for line in lines if "step" in line]
