"""Brings what a run wrote to the place where its script would have written it; overwrites nobody's work."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from airflow_training.cloud.client import CloudClient
from airflow_training.cloud.journal import SubmittedRun, keep_run, known_run
from airflow_training.cloud.outputs import model_files
from airflow_training.cloud.protocol import returned_path, returns_early
from airflow_training.errors import InputError, RuntimeUnavailable

__all__ = ["ModelReturn", "ReturnedFile", "put_in_place"]

_NAMED = 5
_PLACED = 20
"""Of each path, the newest digests that are remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnedFile:
    path: Path
    """Where it lies."""
    size: int
    conflict: bool
    """Something else lies at its own place, which was changed here meanwhile."""


class ModelReturn:
    """The model of one run, on its way to where its script would have written it."""

    def __init__(self, run: SubmittedRun) -> None:
        self.run = run
        self._there: dict[str, str] = {}
        """Path -> digest of what has come to it."""
        self._conflicts: set[Path] = set()
        self._place = ""
        """Where the file goes that is on its way."""

    def bring_new(self, client: CloudClient, *, told: Callable[[str], None]) -> None:
        """Bring what is whole by now, while the run goes on; what changes on its way comes with the next call."""
        rows = client.result(self.run.run_id)["files"]
        _check_rows([str(each["path"]) for each in rows], client, self.run)
        for row in rows:
            path, sha256 = str(row["path"]), str(row["sha256"])
            if self._there.get(path) == sha256:
                continue
            found = self._bring(client, row, tries=1)
            if found is not None:
                self._tell(found, told)

    def bring_back(self, client: CloudClient, *, told: Callable[[str], None]) -> list[ReturnedFile]:
        """Download what the run has left, verify it and put it in its place; say where it lies."""
        run = self.run
        result = client.result(run.run_id)
        if run.returns == "none":
            return []
        if run.returns == "address" or not result["files"]:
            where = result["address"]
            if result["files"]:
                names = ", ".join(each["path"] for each in result["files"])
                told(f"the model is at {where}: {names}")
            elif path := returned_path(run.returns):
                others = ", ".join(result["others"][:_NAMED]) or "nothing"
                raise InputError.of(
                    code="not_found",
                    field="--returns",
                    value=run.returns,
                    message=f"{run.run_id} has succeeded, and has not written {path!r}; it wrote {others}, below {where}",
                    hint=f"airflow-training cloud logs {run.run_id} shows what it printed",
                )
            elif result["others"]:
                told(f"no model among what it wrote; all of it is at {where}")
            return []
        _check_rows([str(each["path"]) for each in result["files"]], client, run)
        try:
            found = [self._bring(client, each, tries=3) for each in result["files"]]
        except OSError as error:
            raise RuntimeUnavailable(
                f"the model of {run.run_id} cannot be written to {self._place or error.filename}:"
                f" {error.strerror}; it is at {result['address']}; when there is room for it:"
                f" airflow-training cloud logs {run.run_id}"
            ) from None
        for each in filter(None, found):
            self._tell(each, told)
        return [each for each in found if each is not None]

    def _tell(self, found: ReturnedFile, told: Callable[[str], None]) -> None:
        name = os.path.relpath(found.path)
        if not found.conflict:
            told(f"model: {name} ({found.size} bytes)")
        elif found.path not in self._conflicts:
            self._conflicts.add(found.path)
            told(f"the file here was changed while the run went on: its model is {name}")

    def _bring(
        self, client: CloudClient, row: Mapping[str, object], *, tries: int
    ) -> ReturnedFile | None:
        """Bring one file; None where it did not come as the row says, and another call may find it whole."""
        run = self.run
        relative, size, sha256 = str(row["path"]), int(str(row["size"])), str(row["sha256"])
        root = Path(run.root)
        place = root / relative
        if not (root / os.path.normpath(relative)).resolve().is_relative_to(root.resolve()):
            raise RuntimeUnavailable(f"{client.url} answers with a file outside of the project")
        self._place = str(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_name(f".{place.name}.cloud-{run.run_id}.part")
        for _ in range(tries):
            client.download(run.run_id, relative, to=part)
            if part.stat().st_size == size and _digest(part) == sha256:
                break
            part.unlink()
        else:
            if tries == 1:
                return None
            raise RuntimeUnavailable(
                f"{relative} arrives damaged from {client.url}; nothing was kept"
            )
        if returns_early(run.returns):
            # another process that follows the run may have brought something meanwhile
            self.run = known_run(run.run_id) or run
            self._keep(relative, sha256)
        path = put_in_place(part, place, self.run)
        self._there[relative] = sha256
        return ReturnedFile(path=path, size=size, conflict=path != place)

    def _keep(self, relative: str, sha256: str) -> None:
        """Write down what is put there, before it is: what is newer may then replace it, and nothing else."""
        before = self.run.placed.get(relative, ())
        if sha256 not in before:
            placed = {**self.run.placed, relative: [*before, sha256][-_PLACED:]}
            self.run = replace(self.run, placed=placed)
            keep_run(self.run)


def _check_rows(paths: Sequence[str], client: CloudClient, run: SubmittedRun) -> None:
    """A service that answers with something else than a model might replace programs of this machine."""
    known = {*paths} if returned_path(run.returns) else {*model_files(paths)}
    for each in paths:
        parts = each.split("/")
        if each not in known or each != os.path.normpath(each) or {"..", ".git"} & {*parts}:
            raise RuntimeUnavailable(f"{client.url} answers with {each!r}, which is no model")


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
    name = place.relative_to(run.root).as_posix()
    placed, known = run.placed.get(name, ()), run.digests.get(name)
    if placed and _digest(place) in placed:
        return True
    if known is not None:
        return _digest(place) == known
    return place.stat().st_ctime_ns <= run.at_ns


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            found.update(data)
    return found.hexdigest()
