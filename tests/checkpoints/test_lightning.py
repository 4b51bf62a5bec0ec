"""Lightning goes on after its last step, or where an epoch began, as if nothing had been."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from airflow_training.checkpoints.lightning import LightningCheckpoint
from airflow_training.checkpoints.sampler import ResumableSampler
from airflow_training.checkpoints.tree import differences
from tests.checkpoints.ends import Killed, kill, terminate

EPOCHS, SAMPLES, BATCH = 3, 24, 4
STEPS = SAMPLES // BATCH
TOTAL = EPOCHS * STEPS

pytestmark = [pytest.mark.e2e] + [
    pytest.mark.filterwarnings(f"ignore:{message}")
    for message in (
        ".*does not have many workers.*",
        ".*is smaller than the logging interval.*",
        ".*is deprecated.*",
        ".*`srun` command is available.*",  # on a machine with Slurm
    )
]


class At(pl.Callback):
    """Does something after a step, as any other callback might."""

    def __init__(self, step: int | None, action: Any) -> None:
        self.step, self.action = step, action

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step == self.step:
            self.action()


class Module(pl.LightningModule):
    """A linear model with everything that has a state: buffers, moments, schedules, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(4, 8),
            torch.nn.BatchNorm1d(8),
            torch.nn.Dropout(0.3),
            torch.nn.Linear(8, 1),
        )
        self.seen = 0

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        self.seen += 1
        x, y = batch
        return torch.nn.functional.mse_loss(self.layers(x).squeeze(1), y)

    def validation_step(self, batch: Any, _: int) -> None:
        x, y = batch
        self.log("val_loss", torch.nn.functional.mse_loss(self.layers(x).squeeze(1), y))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=10.0)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "monitor": "val_loss"},
        }

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["seen"] = self.seen

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.seen = checkpoint["seen"]


def train(
    root: Path | None,
    *,
    sampled: bool,
    at: int | None = None,
    action: Any = kill,
    accumulate: int = 1,
    **options: Any,
) -> dict[str, Any]:
    """Return all state after training."""
    pl.seed_everything(0, verbose=False)
    dice = torch.Generator().manual_seed(0)
    rows = torch.randn(SAMPLES, 4, generator=dice)
    data = TensorDataset(rows, rows.sum(dim=1))
    sampler = ResumableSampler(SAMPLES, batch_size=BATCH, rank=0, world=1) if sampled else None
    if sampler is not None:
        loader: Any = DataLoader(data, batch_sampler=sampler)
    else:
        loader = DataLoader(data, batch_size=BATCH, shuffle=True)
    stopping = pl.callbacks.EarlyStopping("val_loss", patience=5, mode="max")
    trainer = pl.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        accumulate_grad_batches=accumulate,
        callbacks=[
            LightningCheckpoint(data=sampler, root=root, every={"steps": 1}),
            stopping,
            At(at, action),
        ],
        **options,
    )
    module = Module()
    trainer.fit(module, loader, DataLoader(data, batch_size=8))
    return {
        "model": module.state_dict(),
        "optimizer": trainer.optimizers[0].state_dict(),
        "scheduler": trainer.lr_scheduler_configs[0].scheduler.state_dict(),
        "random": torch.get_rng_state(),
        "step": trainer.global_step,
        "epoch": trainer.current_epoch,
        "seen": module.seen,
        "waited": stopping.wait_count,
    }


@pytest.mark.parametrize("sampled", [False, True], ids=["by epochs", "by steps"])
@pytest.mark.parametrize("kills", [[STEPS + 2], [1, STEPS, STEPS + 1, 2 * STEPS], [TOTAL]])
def test_a_killed_training_ends_with_the_same_state(tmp_path, sampled, kills):
    for step in kills:
        with pytest.raises(Killed):
            train(tmp_path, sampled=sampled, at=step)
    straight = train(None, sampled=sampled)
    resumed = train(tmp_path, sampled=sampled)
    assert list(differences(straight, resumed)) == []
    assert resumed["step"] == TOTAL


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"accumulate": 2}, id="gradients accumulated"),
        pytest.param({"val_check_interval": 2}, id="validation within epochs"),
    ],
)
@pytest.mark.parametrize("step", [2, 4])
def test_a_step_and_its_validation_are_whole_or_not_there(tmp_path, options, step):
    with pytest.raises(Killed):
        train(tmp_path, sampled=True, at=step, **options)
    straight = train(None, sampled=True, **options)
    resumed = train(tmp_path, sampled=True, **options)
    assert list(differences(straight, resumed)) == []


def test_a_training_that_was_over_is_not_made_again(tmp_path, monkeypatch):
    first = train(tmp_path, sampled=True)
    lines = progress(tmp_path, monkeypatch)
    assert [line for line in lines if "step" in line] == []
    assert first["step"] == TOTAL


def test_sigterm_saves_the_step_and_ends(tmp_path, monkeypatch):
    with pytest.raises(SystemExit) as ended:
        train(tmp_path, sampled=True, at=3, action=terminate)
    assert ended.value.code == 143
    steps = [line["step"] for line in progress(tmp_path, monkeypatch) if "step" in line]
    assert steps[0] == 4


def test_progress_and_validation_are_reported(tmp_path, monkeypatch):
    lines = progress(tmp_path, monkeypatch)
    steps = [line for line in lines if "step" in line]
    assert [line["step"] for line in steps] == list(range(1, TOTAL + 1))
    assert {line["total_steps"] for line in steps} == {TOTAL}
    assert "val_loss" in steps[-1]["metrics"]
    sections = [line["section"] for line in lines if "section" in line]
    # Lightning tries it out first
    assert sections == ["eval", None] * (1 + EPOCHS) + ["save", None]


def progress(root: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    path = root.parent / f"{root.name}.progress"
    monkeypatch.setenv("TRAINING_PROGRESS_FILE", str(path))
    train(root, sampled=True)
    return [json.loads(line) for line in path.read_text().splitlines()]
