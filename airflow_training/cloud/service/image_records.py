"""What the Python of an image has: asked once, by a run in it, on the runtime where others will run."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from airflow_training.cloud.service.jobs import literal
from airflow_training.cloud.service.target_jobs import TargetJobError, run_job
from airflow_training.cloud.target_settings import TargetSettings
from airflow_training.environments import EnvironmentCatalogue, scan_program
from airflow_training.environments.catalogue import CatalogueImage, read_catalogue
from airflow_training.environments.recording import record_of
from airflow_training.errors import InputError

__all__ = ["catalogue_of"]


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
    command = [settings.python, "-c", literal(scan_program())]
    try:
        return run_job(settings, "image-record", {"image": settings.image, "command": command})
    except TargetJobError as error:
        raise InputError.of(
            code="bad_reference",
            field="image",
            value=settings.image,
            message=f"does not say what it has: {error}",
            hint="an image with a Python 3.8 or newer, which `python` names",
        ) from None
