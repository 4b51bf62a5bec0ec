"""Folders of a job that this machine cannot make: a file has their name, or that of a folder above them."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from airflow_training.documents.resolved import ResolvedJob
from airflow_training.errors import Problem

__all__ = ["blocked_folders"]

_SCHEME = "file://"


def blocked_folders(resolved: ResolvedJob) -> list[Problem]:
    """Return the mistake of a folder for checkpoints that no try could make; of a template, only the run knows."""
    uri = "" if resolved.checkpoint is None else resolved.checkpoint.uri
    given = unquote(uri.removeprefix(_SCHEME)) if uri.startswith(_SCHEME) else uri
    path = Path(resolved.base_dir, given)
    if not given or "://" in given or "{{" in given or not path.is_absolute():
        return []
    try:
        there = next(each for each in (path, *path.parents) if each.exists())
        if there.is_dir():
            return []
    except OSError:  # not for us to see: the instance tells
        return []
    return [
        Problem(
            code="bad_reference",
            field="spec.checkpoint.uri",
            value=uri,
            message=f"there is a file {there}, and checkpoints need a folder",
            hint="name another folder, or move the file",
        )
    ]
