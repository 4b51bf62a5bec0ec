"""What images lack, in the storage of a target: installed by one instance there, for however many run with it.

An archive is known by the digest of its environment: the image, and each package with its version. Whoever unpacks it compares its
bytes with what the instance that installed them has said.
"""

from __future__ import annotations

import fcntl
import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_training.capture.model import Tree
from airflow_training.cloud.service import pack_packages
from airflow_training.cloud.service.jobs import literal
from airflow_training.cloud.service.target_jobs import TargetJobError, run_job
from airflow_training.cloud.service.tree_storage import TreeStorage
from airflow_training.cloud.target_settings import TargetSettings
from airflow_training.environments import Match
from airflow_training.errors import InputError

__all__ = ["PackageArchives"]

_NOTHING = Tree(entries=[])


class PackageArchives:
    """The archives of a target, of which `folder` keeps the digests."""

    def __init__(self, settings: TargetSettings, folder: Path, storage: TreeStorage) -> None:
        self._settings = settings
        self._folder = folder
        self._storage = storage

    def find(self, found: Match) -> Mapping[str, str] | None:
        """`spec.code.archive` of a job with what a match lacks; None where it was not made here, or is gone."""
        try:
            known: dict[str, Any] = json.loads(self._record(found).read_text())
        except (OSError, ValueError):
            return None
        if self._storage.size(known["path"]) != known["bytes"]:
            return None
        return {"path": known["path"], "digest": known["digest"]}

    def make(self, found: Match) -> bool:
        """Have what a match lacks; return whether it was there. Blocks while an instance installs it.

        Raises InputError where a package cannot be installed.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / f"{found.digest}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # however many ask at once, one makes it
            if self.find(found) is not None:
                return True
            place = f"environments/{uuid.uuid4().hex}"
            self._storage.put(_NOTHING, lambda _: b"")
            said = self._install(found, place)
            record = {"path": f"{place}/packages.tar", **said}
            draft = self._record(found).with_suffix(".part")
            draft.write_text(json.dumps(record))
            draft.replace(self._record(found))
        return False

    def _record(self, found: Match) -> Path:
        return self._folder / f"{found.digest}.json"

    def _install(self, found: Match, place: str) -> Mapping[str, Any]:
        python, uri = found.image.python, self._storage.uri
        program = Path(pack_packages.__file__).read_text("utf-8")
        spec = {
            "image": found.image.name,
            "command": [python, "-c", literal(program)],
            "code": {
                "uri": uri,
                "digest": f"sha256:{_NOTHING.digest}",
                "packages": [*found.requirements],
                "python": python,
            },
            "output": {"uri": f"{uri}/{place}"},
        }
        try:
            said = run_job(self._settings, "environment", spec)
            return {"digest": said["digest"], "bytes": said["bytes"]}
        except TargetJobError as error:
            raise InputError.of(
                code="not_installed",
                field="environment",
                message=f"cannot be installed for {found.image.name}: {error}",
                hint="add it to the image, or install a version here that the target's index has",
            ) from None
