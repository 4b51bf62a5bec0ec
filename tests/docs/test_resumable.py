"""Every snippet of the page on resumable scripts trains, saves, and has nothing left to do when run again."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_training.checkpoints import reading
from tests.ports import free_port

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.filterwarnings("ignore"),  # of the frameworks, about themselves and this machine
]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "resumable.md"
EPOCHS = 2
SAMPLES = 32


def snippet(heading: str) -> str:
    """Return the first Python block below a heading."""
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2]
    match = re.search(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert match is not None
    return match[1]


def of_torch(_: Path) -> dict[str, Any]:
    import torch

    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return {
        "data": torch.utils.data.TensorDataset(torch.ones(SAMPLES, 3), torch.ones(SAMPLES, 1)),
        "epochs": EPOCHS,
        "loss_of": torch.nn.functional.mse_loss,
        "model": model,
        "optimizer": optimizer,
        "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1),
    }


def of_group(folder: Path) -> dict[str, Any]:
    import torch

    return {
        **of_torch(folder),
        "DistributedDataParallel": torch.nn.parallel.DistributedDataParallel,
    }


def of_lightning(folder: Path) -> dict[str, Any]:
    import lightning.pytorch as pl
    import torch

    class Module(pl.LightningModule):  # type: ignore[misc]  # mypy does not follow it here
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return {**of_torch(folder), "module": Module()}


def of_huggingface(folder: Path) -> dict[str, Any]:
    import numpy
    import transformers

    model = transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=8,
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=1,
            intermediate_size=8,
            max_position_embeddings=8,
        )
    )
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=16,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    sample = {"input_ids": numpy.array([1, 2, 3]), "labels": 1}
    return {"model": model, "arguments": arguments, "data": [sample] * SAMPLES}


def of_keras(_: Path) -> dict[str, Any]:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    import keras
    import numpy

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    return {
        "epochs": EPOCHS,
        "model": model,
        "x": numpy.ones((SAMPLES, 3)),
        "y": numpy.ones((SAMPLES, 1)),
    }


def of_xgboost(_: Path) -> dict[str, Any]:
    import numpy
    import xgboost

    data = xgboost.DMatrix(numpy.eye(SAMPLES), numpy.arange(SAMPLES))
    return {"data": data, "parameters": {"nthread": 1}, "rounds": 4}


def of_anything(_: Path) -> dict[str, Any]:
    return {"steps": 40}


@pytest.mark.parametrize(
    ("heading", "names", "last_step"),
    [
        ("PyTorch", of_torch, 4),
        ("Ranks that stay when one is lost", of_group, 4),
        ("Lightning", of_lightning, 4),
        ("Hugging Face", of_huggingface, 4),
        ("Keras", of_keras, 2),
        ("XGBoost", of_xgboost, 4),
        ("Anything else", of_anything, 40),
        ("Your own way", of_anything, 40),
    ],
)
def test_a_snippet_trains_to_the_end_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    heading: str,
    names: Callable[[Path], dict[str, Any]],
    last_step: int,
) -> None:
    root = str(tmp_path / "root")
    told = {"root": root, "every": {"steps": 1}, "resume": {"kind": "latest"}}
    monkeypatch.setenv("TRAINING_CHECKPOINT", json.dumps(told))
    code = compile(snippet(heading), f"{PAGE.name}: {heading}", "exec")
    monkeypatch.chdir(tmp_path)
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "RANK": "0"}
    for name, value in {**group, "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    before = signal.getsignal(signal.SIGTERM)
    try:
        exec(code, names(tmp_path))
        first = [entry.step for entry in reading.history(root)]
        exec(code, names(tmp_path))
        second = [entry.step for entry in reading.history(root)]
    finally:
        signal.signal(signal.SIGTERM, before)
    assert max(first) == last_step
    assert second == first
