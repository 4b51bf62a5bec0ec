"""Runs whose instances are elsewhere: agents fetch the code from a storage, and leave the output there."""

from __future__ import annotations

import json
import posixpath
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from airflow_training.agent.code_setup import CHANGES_FILE, CHANGES_FOLDER
from airflow_training.capture.model import Tree
from airflow_training.cloud.environment import read_record
from airflow_training.cloud.protocol import SubmissionRequest, TreeManifest, returns_early
from airflow_training.cloud.service.content import ContentFolder, digest_of
from airflow_training.cloud.service.data_tree import data_contents, tree_with_data
from airflow_training.cloud.service.jobs import job_document
from airflow_training.cloud.service.package_archives import PackageArchives
from airflow_training.cloud.service.places import OutputStream
from airflow_training.cloud.service.run_data import DataPlace, account_folder
from airflow_training.cloud.service.runs import chosen_files
from airflow_training.cloud.service.tree_storage import TreeStorage
from airflow_training.cloud.target_settings import TargetSettings
from airflow_training.environments import EnvironmentCatalogue, Match, PreparedEnvironment, match
from airflow_training.errors import InputError
from airflow_training.remote_data.manifest import DataManifest

__all__ = ["StoragePlace"]

_OWN_PACKAGE = "airflow-training"
"""Agents bring what a script needs of it."""
_DRIVERS = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}  # fmt: skip
"""Scheme of an address -> the distribution that fsspec needs for it."""
_MOST_NAMES = 1000
_LIST_BYTES = 64 << 20
"""Of the list of what a run wrote."""


class StoragePlace:
    """See `places.RunPlace`."""

    def __init__(
        self,
        settings: TargetSettings,
        catalogue: EnvironmentCatalogue,
        archives: Path,
        content: ContentFolder,
    ) -> None:
        """`archives`: folder of what is known of `PackageArchives`."""
        self._settings = settings
        self._catalogue = catalogue
        self._content = content
        self._storage = TreeStorage(settings.storage)
        self._archives = PackageArchives(settings, archives, self._storage)

    def check(self, request: SubmissionRequest) -> None:  # noqa: ARG002 - the protocol's
        """See `RunPlace`."""
        self._storage.check()

    def match(self, record: bytes) -> Match:
        """See `RunPlace`."""
        found = match(
            read_record(record), self._catalogue, leave_out=[_OWN_PACKAGE], only_adds=True
        )
        self._check_drivers(found)
        return found

    def lay_out(
        self,
        manifest: TreeManifest,
        run_id: str,  # noqa: ARG002 - the protocol's
        *,
        shared: DataManifest | None = None,
    ) -> None:
        """See `RunPlace`: agents lay it out, and compare it again."""
        added = {} if shared is None else data_contents(shared)

        def content(sha256: str) -> bytes | Path:
            return added[sha256] if sha256 in added else self._verified(sha256)

        self._storage.put(self.tree(manifest, shared), content)

    def tree(self, manifest: TreeManifest, shared: DataManifest | None) -> Tree:
        """See `RunPlace`."""
        return manifest.tree if shared is None else tree_with_data(manifest.tree, shared)

    def data_place(self, account: str) -> DataPlace:
        """See `RunPlace`: instances lay it out, and find chunks in the storage."""
        return DataPlace(
            storage=f"{self._storage.uri}/data/{account_folder(account)}",
            is_here=False,
            address=self._settings.address.rstrip("/"),
        )

    def prepare(self, found: Match) -> PreparedEnvironment:
        """See `RunPlace`: what is missing in the image is installed by one instance, for all."""
        began = time.monotonic()
        was_there = not found.requirements or self._archives.make(found)
        return PreparedEnvironment(
            python=Path(found.image.python),
            installed=found.requirements,
            seconds=time.monotonic() - began,
            cached=was_there,
        )

    def job(
        self,
        request: SubmissionRequest,
        run_id: str,
        *,
        found: Match | None = None,
        ready: PreparedEnvironment | None = None,
        tree: str = "",
    ) -> Mapping[str, Any]:
        """See `RunPlace`."""
        settings = self._settings
        image = found.image if found else self._catalogue.images[0]
        document = job_document(
            request, interpreter=image.python, folder=None, runtime=settings.runtime.name
        )
        spec = dict(document["spec"])
        if settings.runtime.connection:
            spec["runtime"] = {**spec["runtime"], "connection": settings.runtime.connection}
        spec["image"] = image.name
        spec["code"] = {
            "uri": settings.storage,
            "digest": f"sha256:{tree or request.tree_digest}",
            "python": image.python,
        }
        if found and ready and found.requirements:
            spec["code"]["archive"] = self._archives.find(found)
        output: dict[str, Any] = {"uri": f"{self._storage.uri}/{_output_key(run_id)}"}
        if returns_early(request.returns):
            output["continuous"] = True
        spec["output"] = output
        # without the annotations: an engine may refuse names of ours, and `spec.code` says the digest
        metadata = {"name": document["metadata"]["name"], "namespace": settings.namespace}
        return {**document, "metadata": metadata, "spec": settings.add_to(spec)}

    def result(self, request: SubmissionRequest, run_id: str) -> Mapping[str, Any]:
        """See `RunPlace`."""
        changes = self._changes(run_id)
        rows = {path.removeprefix("project/"): row for path, row in changes.items()}
        chosen = chosen_files(request, [*rows])
        files = [{"path": each, "size": rows[each]["size"], "sha256": rows[each]["sha256"]} for each in chosen]  # fmt: skip
        return {
            "returns": request.returns,
            "address": f"{self._storage.uri}/{_output_key(run_id)}/{CHANGES_FOLDER}/project",
            "files": files,
            "others": sorted(rows.keys() - {*chosen})[:_MOST_NAMES],
        }

    def output(self, run_id: str, path: str, *, start: int) -> OutputStream:
        """See `RunPlace`."""
        row = self._changes(run_id).get(f"project/{path}")
        if row is None:
            raise KeyError(path)
        key = f"{_output_key(run_id)}/{CHANGES_FOLDER}/project/{path}"
        return OutputStream(
            pieces=self._storage.stream(key, start=start, size=row["size"] - start),
            start=start,
            size=row["size"],
        )

    def _changes(self, run_id: str) -> Mapping[str, Mapping[str, Any]]:
        """What a run wrote below its project, by path; empty until it has succeeded."""
        text = self._storage.read(f"{_output_key(run_id)}/{CHANGES_FILE}", most=_LIST_BYTES)
        if text is None:
            return {}
        try:
            rows = json.loads(text)["files"]
            return {row["path"]: row for row in rows if _is_change(row)}
        except (ValueError, TypeError, KeyError, RecursionError):
            raise InputError.of(
                code="wrong_type",
                field="returns",
                value=f"{self._storage.uri}/{_output_key(run_id)}/{CHANGES_FILE}",
                message=f"is no list of files of at most {_LIST_BYTES >> 20} MiB, so that nothing comes back",
                hint="what the run wrote lies beside it",
            ) from None

    def _verified(self, sha256: str) -> Path:
        path = self._content.path(sha256)
        if digest_of(path) != sha256:
            self._content.forget(sha256)
            raise InputError.of(
                code="conflict",
                field="content",
                value=sha256,
                message="what the service keeps of it is damaged; nothing was executed",
                hint="the same command again sends it",
            )
        return path

    def _check_drivers(self, found: Match) -> None:
        """Raise InputError where the image lacks what reads the storage: nothing can be installed before."""
        scheme = urlsplit(self._storage.uri).scheme
        if scheme in ("", "file"):
            return
        needed = ["fsspec", *filter(None, [_DRIVERS.get(scheme)])]
        missing = [each for each in needed if each not in found.image.record.by_name]
        if missing:
            raise InputError.of(
                code="environment_difference",
                field="storage",
                value=self._storage.uri,
                message=f"{found.image.name} lacks {' and '.join(missing)}, with which instances read it",
                hint=f"add {' '.join(missing)} to the image, or name a file:// address of a shared volume",
            )


def _is_change(row: Any) -> bool:
    """Whether a row names a file that a run wrote below its project: it may have written the list itself."""
    path, size, sha256 = row["path"], row["size"], row["sha256"]
    return (
        isinstance(path, str)
        and type(size) is int
        and size >= 0
        and isinstance(sha256, str)
        and path.startswith("project/")
        and posixpath.normpath(path) == path
        and "\0" not in path
    )


def _output_key(run_id: str) -> str:
    return f"runs/{run_id}"
