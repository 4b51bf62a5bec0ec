"""What the Python of an image has: asked once, by a run in it, on the runtime where others will run."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

from airflow_training.cloud.service.jobs import literal
from airflow_training.cloud.service.launching import ProcessLauncher
from airflow_training.cloud.service.runs import read_log
from airflow_training.cloud.target_settings import TargetSettings
from airflow_training.environments import EnvironmentCatalogue, scan_program
from airflow_training.environments.catalogue import CatalogueImage, read_catalogue
from airflow_training.environments.recording import record_of
from airflow_training.errors import InputError

__all__ = ["catalogue_of"]

_LAST_WORDS = 1500
_OWN = ("cpu", "memory", "ephemeral-storage")


def catalogue_of(settings: TargetSettings, folder: Path) -> EnvironmentCatalogue:
    """The images of a target. Blocks while one is asked what it has; the answer is kept in `folder`.

    Raises InputError where an image does not answer.
    """
    if settings.images:
        found = read_catalogue(Path(settings.images))
        return EnvironmentCatalogue(images=found.images, builds=found.builds and settings.builds)
    name = hashlib.sha256(f"{settings.image}\n{settings.python}".encode()).hexdigest()
    kept = folder / f"{name}.json"
    try:
        answer: Any = json.loads(kept.read_text())
    except (OSError, ValueError):
        answer = _ask(settings)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(answer))
    image = CatalogueImage(name=settings.image, python=settings.python, record=record_of(answer))
    return EnvironmentCatalogue(images=[image], builds=settings.builds)


def _ask(settings: TargetSettings) -> Any:
    run_id = f"image-{uuid.uuid4().hex[:12]}"
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.json"
        job.write_text(json.dumps(_job(settings)))
        done = subprocess.run(
            [sys.executable, "-m", "airflow_training.cli", "run", str(job), "--run-id", run_id],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        said = done.stderr.strip()[-_LAST_WORDS:]
        raise _no_answer(settings, f"does not say what it has: {said}")
    printed = read_log(ProcessLauncher(), run_id, rank=0, attempt=-1, offset=0).data.decode(
        errors="replace"
    )
    try:
        return json.loads(printed.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise _no_answer(settings, f"says no record, but {printed[-_LAST_WORDS:]!r}") from None


def _job(settings: TargetSettings) -> dict[str, Any]:
    runtime = {"name": settings.runtime.name}
    if settings.runtime.connection:
        runtime["connection"] = settings.runtime.connection
    role: dict[str, Any] = {"name": "worker", "restartPolicy": "Never"}
    # a namespace with a quota wants requests; what a script computes on is not needed to ask
    if own := {each: str(settings.resources[each]) for each in _OWN if each in settings.resources}:
        role["resources"] = {"limits": own}
    return {
        "apiVersion": "airflow-training/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "image-record", "namespace": settings.namespace},
        "spec": settings.add_to(
            {
                "framework": "custom",
                "runtime": runtime,
                "image": settings.image,
                "command": [settings.python, "-c", literal(scan_program())],
                "cleanPodPolicy": "All",
                "roles": [role],
            }
        ),
    }


def _no_answer(settings: TargetSettings, message: str) -> InputError:
    return InputError.of(
        code="bad_reference",
        field="image",
        value=settings.image,
        message=message,
        hint="an image with a Python 3.8 or newer, which `python` names",
    )
