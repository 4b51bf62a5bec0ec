"""Documents that the Airflow tests share; each test changes only what it is about."""

from __future__ import annotations

import copy
from typing import Any

PYTORCH: dict[str, Any] = {
    "apiVersion": "airflow-training/v1",
    "kind": "TrainingJob",
    "metadata": {"name": "digits"},
    "spec": {
        "framework": "pytorch",
        "command": ["python", "train.py", "--lr", "{{ params.lr }}"],
        "roles": [{"name": "master"}, {"name": "worker", "replicas": 2}],
        "dag": {
            "schedule": "@weekly",
            "startDate": "2026-01-01",
            "params": {
                "lr": {
                    "type": "number",
                    "default": 0.1,
                    "minimum": 0,
                    "description": "learning rate",
                }
            },
            "outlets": ["s3://models/digits/final"],
            "tags": ["retraining"],
            "maxActiveRuns": 1,
            "owner": "research",
        },
    },
}


def job(name: str = "digits", **spec: Any) -> dict[str, Any]:
    """Return the PyTorch job under another name, with these keys of `spec` replaced."""
    document = copy.deepcopy(PYTORCH)
    document["metadata"]["name"] = name
    document["spec"].update(spec)
    return document


def shell(name: str, script: str, **spec: Any) -> dict[str, Any]:
    """Return a one-role job that runs a shell script, on the local runtime."""
    return {
        "apiVersion": "airflow-training/v1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {
            "framework": "custom",
            "runtime": {"name": "local"},
            "command": ["sh", "-c", script],
            "roles": [{"name": "worker"}],
            **spec,
        },
    }
