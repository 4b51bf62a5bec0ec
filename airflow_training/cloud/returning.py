"""Brings what a run wrote to the place where its script would have written it; overwrites nobody's work."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from airflow_training.cloud.client import CloudClient
from airflow_training.cloud.journal import SubmittedRun
from airflow_training.cloud.outputs import model_files
from airflow_training.errors import RuntimeUnavailable

__all__ = ["ReturnedFile", "bring_back", "put_in_place"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnedFile:
    path: Path
    """Where it lies."""
    size: int
    conflict: bool
    """Something else lies at its own place, which was changed here meanwhile."""


def bring_back(
    client: CloudClient, run: SubmittedRun, *, told: Callable[[str], None]
) -> list[ReturnedFile]:
    """Download the run's model, verify it and put it in its place; say where it lies."""
    result = client.result(run.run_id)
    if run.returns == "none":
        return []
    if run.returns == "address" or not result["files"]:
        where = result["address"]
        if result["files"]:
            told(f"the model is at {where}: {', '.join(each['path'] for each in result['files'])}")
        elif result["others"]:
            told(f"no model among what it wrote; all of it is at {where}")
        return []
    _check_rows([str(each["path"]) for each in result["files"]], client, run)
    try:
        found = [_bring(client, run, each) for each in result["files"]]
    except OSError as error:
        raise RuntimeUnavailable(
            f"the model of {run.run_id} cannot be written to {error.filename or run.root}:"
            f" {error.strerror}; it is at {result['address']}; when there is room for it:"
            f" airflow-training cloud logs {run.run_id}"
        ) from None
    for each in found:
        name = os.path.relpath(each.path)
        if each.conflict:
            told(f"the file here was changed while the run went on: its model is {name}")
        else:
            told(f"model: {name} ({each.size} bytes)")
    return found


def _check_rows(paths: Sequence[str], client: CloudClient, run: SubmittedRun) -> None:
    """A service that answers with something else than a model might replace programs of this machine."""
    known = {*paths} if run.returns.startswith("model=") else {*model_files(paths)}
    for each in paths:
        parts = each.split("/")
        if each not in known or each != os.path.normpath(each) or {"..", ".git"} & {*parts}:
            raise RuntimeUnavailable(f"{client.url} answers with {each!r}, which is no model")


def _bring(client: CloudClient, run: SubmittedRun, row: Mapping[str, object]) -> ReturnedFile:
    relative, size, sha256 = str(row["path"]), int(str(row["size"])), str(row["sha256"])
    root = Path(run.root)
    place = root / relative
    if not (root / os.path.normpath(relative)).resolve().is_relative_to(root.resolve()):
        raise RuntimeUnavailable(f"{client.url} answers with a file outside of the project")
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(f".{place.name}.cloud-{run.run_id}.part")
    for _ in range(3):
        client.download(run.run_id, relative, to=part)
        if part.stat().st_size == size and _digest(part) == sha256:
            break
        part.unlink()
    else:
        raise RuntimeUnavailable(f"{relative} arrives damaged from {client.url}; nothing was kept")
    path = put_in_place(part, place, run)
    return ReturnedFile(path=path, size=size, conflict=path != place)


def put_in_place(part: Path, place: Path, run: SubmittedRun) -> Path:
    """Rename a file to its place, unless that was changed since the run was submitted; returns where it lies.

    What is there already, as of a run that is followed again, stays.

    A place where nothing lies is taken by a link, which fails where somebody was faster.
    """
    beside = place.with_name(f"{place.name}.cloud-{run.run_id}")
    for known in (place, beside):
        if _is_same(known, part):
            part.unlink()
            return known
    if os.path.lexists(place):
        if _is_unchanged(place, run):
            part.replace(place)
            return place
        part.replace(beside)
        return beside
    try:
        os.link(part, place)
    except FileExistsError:
        part.replace(beside)
        return beside
    except OSError:  # a file system without links
        part.replace(place)
        return place
    part.unlink()
    return place


def _is_same(place: Path, part: Path) -> bool:
    if place.is_symlink() or not place.is_file() or place.stat().st_size != part.stat().st_size:
        return False
    return _digest(place) == _digest(part)


def _is_unchanged(place: Path, run: SubmittedRun) -> bool:
    """Whether a file is still what it was when the run was submitted."""
    if place.is_symlink() or not place.is_file():
        return False
    known = run.digests.get(place.relative_to(run.root).as_posix())
    if known is not None:
        return _digest(place) == known
    return place.stat().st_ctime_ns <= run.at_ns


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            found.update(data)
    return found.hexdigest()
