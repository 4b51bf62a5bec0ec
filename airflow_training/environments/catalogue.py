"""The images that a target offers, each with the record of its Python: a file of the target's configuration.

```yaml
apiVersion: airflow-training/v1
kind: EnvironmentCatalogue
spec:
  builds: true
  images:
    - name: registry.example.com/training/torch:2.9
      python: /usr/bin/python3
      record: torch-2.9.json   # what `airflow-training environments record --output json` prints in it
```
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_training.environments.model import PythonEnvironment
from airflow_training.environments.recording import record
from airflow_training.errors import InputError, Problem

__all__ = [
    "CatalogueImage",
    "EnvironmentCatalogue",
    "catalogue_here",
    "read_catalogue",
    "read_record",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueImage:
    """One place where a Python is ready: a container image, or this machine."""

    name: str
    """The image's reference; `here` for this machine."""
    python: str
    """Path of the interpreter in it."""
    record: PythonEnvironment

    def to_json(self) -> Mapping[str, Any]:
        return {"name": self.name, "python": self.python, "record": self.record.to_json()}


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentCatalogue:
    """What a target offers; of images that serve equally well the first is taken."""

    images: Sequence[CatalogueImage]
    builds: bool = True
    """Whether the target makes what no image has; where it may not, only images count."""


def catalogue_here(python: str | Path | None = None) -> EnvironmentCatalogue:
    """Return the catalogue of this machine: one interpreter, by default the running one."""
    path = Path(shutil.which(python or sys.executable) or python or sys.executable).absolute()
    return EnvironmentCatalogue(
        images=[CatalogueImage(name="here", python=str(path), record=record(python))]
    )


def read_catalogue(path: Path) -> EnvironmentCatalogue:
    """Read the file of a target; raises InputError with every mistake. Names of records count from its folder."""
    from airflow_training.documents.loading import load_documents, read_file

    documents = load_documents(read_file(path), str(path))
    data = documents[0].data if len(documents) == 1 else None
    problems = [each for document in documents for each in document.problems]
    if not problems and (not isinstance(data, Mapping) or data.get("kind") != _KIND):
        problems = [_problem("kind", "one document is wanted here", allowed=(_KIND,))]
    if problems:
        raise InputError(problems=problems, path=str(path))
    spec = data["spec"] if isinstance(data, Mapping) and isinstance(data.get("spec"), Mapping) else {}  # fmt: skip
    images: list[CatalogueImage] = []
    for index, row in enumerate(spec.get("images") or ()):
        field = f"spec.images[{index}]"
        if not isinstance(row, Mapping) or not row.get("name") or not row.get("record"):
            problems.append(_problem(field, "needs `name` and `record`"))
            continue
        try:
            value = row["record"]
            if isinstance(value, Mapping):
                found = PythonEnvironment.from_json(value)
            else:
                found = read_record(path.parent / str(value))
        except InputError as error:
            problems.append(_problem(f"{field}.record", f"is no record: {error}", hint=_HINT))
            continue
        images.append(
            CatalogueImage(name=row["name"], python=row.get("python", "python3"), record=found)
        )
    if not images and not problems:
        problems.append(_problem("spec.images", "names no image"))
    if problems:
        raise InputError(problems=problems, path=str(path))
    return EnvironmentCatalogue(images=images, builds=spec.get("builds", True) is True)


def read_record(path: Path) -> PythonEnvironment:
    """Read what `environments record --output json` has printed; raises InputError for anything else."""
    from airflow_training.documents.loading import read_file

    try:
        return PythonEnvironment.from_json(json.loads(read_file(path)))
    except ValueError as error:
        raise InputError.of(
            code="syntax", field="", message=f"is no JSON: {error}", hint=_HINT, path=str(path)
        ) from None


def _problem(field: str, message: str, **more: Any) -> Problem:
    return Problem(code="bad_value", field=field, message=message, **more)


_KIND = "EnvironmentCatalogue"
_HINT = "run `airflow-training environments record --output json` in the image"
