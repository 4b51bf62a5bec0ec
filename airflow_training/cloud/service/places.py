"""Where the tree of a submission is laid out, what it runs in there, and where its output is found."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from airflow_training.builtin_runtimes import HERE
from airflow_training.capture.model import Tree
from airflow_training.cloud.environment import match_environment, prepare_environment
from airflow_training.cloud.protocol import SubmissionRequest, TreeManifest
from airflow_training.cloud.service.content import ContentFolder
from airflow_training.cloud.service.jobs import job_document
from airflow_training.cloud.service.layout import changed_files, lay_out
from airflow_training.cloud.service.run_data import DataPlace, account_folder
from airflow_training.cloud.service.run_files import RunFiles, open_below, pieces_of
from airflow_training.cloud.service.runs import run_result
from airflow_training.environments import Match, PreparedEnvironment
from airflow_training.remote_data.manifest import DataManifest

__all__ = ["FolderPlace", "OutputStream", "RunPlace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputStream:
    """A file that a run wrote, from a byte on."""

    pieces: Iterator[bytes]
    start: int
    size: int
    """Of the whole file, in bytes."""


class RunPlace(Protocol):
    """Knows where runs of a service find their code and leave their output. All methods block."""

    def check(self, request: SubmissionRequest) -> None:
        """Raise InputError with what the place refuses; nothing of the submission is here yet."""

    def match(self, record: bytes) -> Match:
        """What a program of that record runs in; raises InputError with each difference."""

    def lay_out(
        self, manifest: TreeManifest, run_id: str, *, shared: DataManifest | None = None
    ) -> None:
        """Bring the tree there; raises InputError where one byte differs: nothing was executed.

        `shared`: data that comes on demand, where runs read such.
        """

    def tree(self, manifest: TreeManifest, shared: DataManifest | None) -> Tree:
        """What `lay_out` brings there."""

    def data_place(self, account: str) -> DataPlace:
        """Where data of an account that comes on demand is kept, and who lays it out."""

    def prepare(self, found: Match) -> PreparedEnvironment:
        """Build what a match lacks; raises InputError where a package cannot be installed."""

    def job(
        self,
        request: SubmissionRequest,
        run_id: str,
        *,
        found: Match | None = None,
        ready: PreparedEnvironment | None = None,
        tree: str = "",
    ) -> Mapping[str, Any]:
        """The job; `found`, `ready` and the digest of its `tree` are not known where it is only to be checked.

        Raises InputError.
        """

    def result(self, request: SubmissionRequest, run_id: str) -> Mapping[str, Any]:
        """What a run wrote; see `runs.run_result`."""

    def output(self, run_id: str, path: str, *, start: int) -> OutputStream:
        """A file that a run wrote; raises KeyError for anything else."""


class FolderPlace:
    """Folders of this machine, one for each run, and the environments of its cache."""

    def __init__(
        self,
        folder: Path,
        content: ContentFolder,
        *,
        same_machine: bool,
        environments: Path | None = None,
    ) -> None:
        """`same_machine`: the data of who submits is here. `environments`: see `Submissions`."""
        self._environments = environments
        self._folder = folder
        self._content = content
        self._same_machine = same_machine
        self._files = RunFiles()

    def check(self, request: SubmissionRequest) -> None:
        """See `RunPlace`."""

    def match(self, record: bytes) -> Match:
        """See `RunPlace`."""
        return match_environment(record, self._environments)

    def lay_out(
        self, manifest: TreeManifest, run_id: str, *, shared: DataManifest | None = None
    ) -> None:
        """See `RunPlace`."""
        lay_out(
            manifest,
            self._folder / run_id,
            self._content,
            link_data=self._same_machine,
            shared=shared,
        )

    def tree(self, manifest: TreeManifest, shared: DataManifest | None) -> Tree:  # noqa: ARG002 - the protocol's
        """See `RunPlace`."""
        return manifest.tree

    def data_place(self, account: str) -> DataPlace:
        """See `RunPlace`."""
        return DataPlace(storage=str(self._folder.parent / "data" / account_folder(account)))

    def prepare(self, found: Match) -> PreparedEnvironment:
        """See `RunPlace`."""
        return prepare_environment(found, self._environments)

    def job(
        self,
        request: SubmissionRequest,
        run_id: str,
        *,
        found: Match | None = None,  # noqa: ARG002 - the protocol's
        ready: PreparedEnvironment | None = None,
        tree: str = "",  # noqa: ARG002 - the protocol's
    ) -> Mapping[str, Any]:
        """See `RunPlace`."""
        interpreter = "python" if ready is None else str(ready.python)
        folder = self._folder / run_id
        return job_document(request, interpreter=interpreter, folder=folder, runtime=HERE)

    def result(self, request: SubmissionRequest, run_id: str) -> Mapping[str, Any]:
        """See `RunPlace`."""
        return run_result(request, self._folder / run_id, self._files)

    def output(self, run_id: str, path: str, *, start: int) -> OutputStream:
        """See `RunPlace`."""
        folder = self._folder / run_id
        if f"project/{path}" not in changed_files(folder):
            raise KeyError(path)
        try:
            file = open_below(folder / "project", path)
        except FileNotFoundError:
            raise KeyError(path) from None
        size = os.fstat(file.fileno()).st_size
        return OutputStream(
            pieces=pieces_of(file, start=start, size=size - start), start=start, size=size
        )
