"""Settings of a trainer as a job gives them, and readers over files of a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow_training.admission.trainer.job import trainer_document
from airflow_training.admission.trainer.network import FoundNetwork, find_network
from airflow_training.documents.trainer import NetworkSource, Trainer
from airflow_training.networks.trainer.addresses import find_files
from airflow_training.networks.trainer.reading import SUFFIXES, ShareReader
from airflow_training.networks.trainer.settings import TrainerSettings

TABLE = (
    {"name": "x", "type": "Input", "params": {"shape": [2]}},
    {"name": "y", "type": "Input", "params": {"shape": [], "dtype": "int64"}},
    {"name": "logits", "type": "Linear", "inputs": ["x"], "params": {"out_features": 2}},
    {"name": "loss", "type": "CrossEntropyLoss", "inputs": ["logits", "y"]},
    {"name": "accuracy", "type": "Accuracy", "inputs": ["logits", "y"]},
)
LISTS = (
    {"name": "x", "type": "Input", "params": {"shape": [3, 2]}},
    {"name": "y", "type": "Input", "params": {"shape": [3]}},
    {"name": "dense", "type": "Linear", "inputs": ["x"], "params": {"out_features": 1}},
    {"name": "scores", "type": "Flatten"},
    {"name": "loss", "type": "ListwiseRankingLoss", "inputs": ["scores", "y"]},
    {"name": "ndcg", "type": "NDCG", "inputs": ["scores", "y"]},
)
IMAGES = (
    {"name": "x", "type": "Input", "params": {"shape": [1, 2, 2]}},
    {"name": "y", "type": "Input", "params": {"shape": [], "dtype": "int64"}},
    {"name": "flat", "type": "Flatten", "inputs": ["x"]},
    {"name": "logits", "type": "Linear", "params": {"out_features": 2}},
    {"name": "loss", "type": "CrossEntropyLoss", "inputs": ["logits", "y"]},
)
TEXT = (
    {"name": "x", "type": "Input", "params": {"shape": [4], "dtype": "int64"}},
    {"name": "y", "type": "Input", "params": {"shape": [4], "dtype": "int64"}},
    {
        "name": "table",
        "type": "Embedding",
        "inputs": ["x"],
        "params": {"num_embeddings": 256, "embedding_dim": 256},
    },
    {"name": "scores", "type": "Permute", "params": {"dims": [0, 2, 1]}},
    {"name": "loss", "type": "CrossEntropyLoss", "inputs": ["scores", "y"]},
)


def network_document(layers: Any) -> dict[str, Any]:
    return {
        "apiVersion": "airflow-training/v1",
        "kind": "Network",
        "metadata": {"name": "net"},
        "spec": {"layers": [dict(each) for each in layers]},
    }


def settings_of(layers: Any, data: Any, *, files: Any = (), **more: Any) -> TrainerSettings:
    trainer = Trainer(network=NetworkSource(document=network_document(layers)), data=data, **more)
    found, problems = find_network(trainer.network, base_dir="")
    assert problems == []
    assert isinstance(found, FoundNetwork)
    return TrainerSettings.from_document(trainer_document(trainer, found, files=files))


def reader_of(settings: TrainerSettings, folder: Path, *names: str) -> ShareReader:
    return ShareReader(find_files(str(folder), names, SUFFIXES[settings.data.format]), settings)
