"""A preset trained for real on this machine, killed once in between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

import airflow_training
from tests.cli.conftest import COMMAND
from tests.waiting import PATIENCE, wait_until

PRESETS = Path(airflow_training.__file__).parent / "presets"


def write_preset(name: str, *, env: Mapping[str, str] | None = None, **trainer: Any) -> None:
    """Put a preset where commands are typed: it saves often, and waits little between attempts."""
    document = yaml.safe_load((PRESETS / f"{name}.yaml").read_text())
    spec = document["spec"]
    if trainer:
        spec["trainer"] |= trainer
    for each in spec.get("env", []):
        each["value"] = (env or {}).get(each["name"], each["value"])
    spec["runtime"] = {"name": "local"}
    spec["restart"] = {"backoff": {"initialSeconds": 0.05}}
    spec["checkpoint"] = {"uri": "checkpoints", "everySteps": 10}
    spec["output"] = {"uri": "model"}
    Path("job.yaml").write_text(yaml.safe_dump(document, sort_keys=False))


def train_killed(home: Path, *, victim: str = "worker-1") -> Mapping[str, Any]:
    """Train `job.yaml`, kill one rank by SIGKILL once a checkpoint is there, and return how it ended."""
    words = [*COMMAND, "run", "job.yaml", "--run-id", "r", "-o", "json"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as run:
        try:
            wait_until(
                lambda: [*Path("checkpoints").glob("r-*/*/manifests/*.json")],
                alive=lambda: run.poll() is None,
                patience=2 * PATIENCE,
            )
            (state,) = home.glob(f"training/*/{victim}/current/.agent/state.json")
            os.kill(json.loads(state.read_text())["child"]["pid"], signal.SIGKILL)
            told, _ = run.communicate(timeout=4 * PATIENCE)
        finally:
            run.kill()
    found: Mapping[str, Any] = json.loads(told)
    return found


def last_metrics(home: Path) -> Mapping[str, float]:
    """Return the newest value of each metric that rank 0 reported."""
    found: dict[str, float] = {}
    for path in sorted(home.glob("training/*/master-0/attempt-*/progress.jsonl")):
        for line in path.read_text().splitlines():
            found |= json.loads(line).get("metrics", {})
    return found
