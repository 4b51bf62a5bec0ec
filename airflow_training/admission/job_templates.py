"""Named job templates: parameterised job documents in a configured folder. Reads names, parses nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import InputError, Problem

__all__ = ["find_template", "template_names"]

_SUFFIXES = (".yaml", ".yml", ".json")


def template_names(folder: Path) -> Sequence[str]:
    """Return the names of all templates, sorted; a template is called like its file."""
    if not folder.is_dir():
        return ()
    return sorted({each.stem for each in folder.iterdir() if each.suffix in _SUFFIXES})


def find_template(name: str, *, folder: Path) -> Path:
    """Return the file of the template called `name`; raises InputError (`bad_reference`)."""
    known = template_names(folder)
    if name in known:
        return next(path for suffix in _SUFFIXES if (path := folder / f"{name}{suffix}").is_file())
    problem = Problem(
        code="bad_reference",
        field="--template",
        value=name,
        message=f"no job template is called {name!r}",
        allowed=known,
        hint=did_you_mean(name, known) or f"put {name}.yaml into {folder}",
    )
    raise InputError(problems=[problem])
