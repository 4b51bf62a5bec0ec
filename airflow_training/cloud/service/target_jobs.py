"""A job of a target's own, on the runtime where its runs go: one instance that says something of an image, or makes something there."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_training.cloud.service.launching import ProcessLauncher
from airflow_training.cloud.service.runs import read_log
from airflow_training.cloud.target_settings import TargetSettings

__all__ = ["TargetJobError", "run_job"]

_LAST_WORDS = 1500
_OWN = ("cpu", "memory", "ephemeral-storage")


class TargetJobError(Exception):
    """It did not succeed, or printed no document; the message has its last words."""


def run_job(settings: TargetSettings, name: str, spec: Mapping[str, Any]) -> Any:
    """Run a job of one instance to its end, and return the JSON document in the last line that it printed.

    Blocks. `spec`: its image and command, and what else is its own. Raises TargetJobError.
    """
    run_id = f"{name}-{uuid.uuid4().hex[:12]}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.json"
        path.write_text(json.dumps(_document(settings, name, spec)))
        done = subprocess.run(
            [sys.executable, "-m", "airflow_training.cli", "run", str(path), "--run-id", run_id],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise TargetJobError(done.stderr.strip()[-_LAST_WORDS:])
    read = read_log(ProcessLauncher(), run_id, rank=0, attempt=-1, offset=0)
    printed = read.data.decode(errors="replace").strip()
    try:
        return json.loads(printed.splitlines()[-1])
    except (ValueError, IndexError):
        raise TargetJobError(f"it printed {printed[-_LAST_WORDS:]!r}") from None


def _document(settings: TargetSettings, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    runtime = {"name": settings.runtime.name}
    if settings.runtime.connection:
        runtime["connection"] = settings.runtime.connection
    role: dict[str, Any] = {"name": "worker", "restartPolicy": "Never"}
    # a namespace with a quota wants requests; what a script computes on is not needed here
    if own := {each: str(settings.resources[each]) for each in _OWN if each in settings.resources}:
        role["resources"] = {"limits": own}
    common = {"framework": "custom", "runtime": runtime, "cleanPodPolicy": "All", "roles": [role]}
    return {
        "apiVersion": "airflow-training/v1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": settings.namespace},
        "spec": settings.add_to({**common, **spec}),
    }
