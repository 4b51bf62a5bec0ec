"""A service without sockets, and projects to send to it."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from airflow_training.cloud.client import CloudClient
from airflow_training.cloud.options import RunOptions
from airflow_training.cloud.protocol import PREFIX, CloudRunState
from airflow_training.cloud.service.admission import Admission, KeyAdmission
from airflow_training.cloud.service.app import cloud_app
from airflow_training.cloud.service.submissions import Submissions
from airflow_training.cloud.submit import Submission, prepare
from airflow_training.control.model import Event
from airflow_training.documents.resolved import ResolvedJob, RunKey
from airflow_training.environments import recording
from airflow_training.environments.scan import scan
from airflow_training.errors import InputError
from airflow_training.runtimes.port import Runtime
from airflow_training.supervise.runtimes import open_runtime

KEY = "the key of this test"


class RecordedRuns:
    """A launcher that keeps what it is asked to run, as a store would: once for each run."""

    def __init__(self) -> None:
        self.begun: dict[str, Mapping[str, Any]] = {}
        self.events: Sequence[Event] = ()
        """Of the newest."""
        self.refused: InputError | None = None

    def check(self, document: Mapping[str, Any], *, run_id: str, folder: Path, by: str) -> None:
        if self.refused is not None:
            raise self.refused

    def begin(
        self,
        document: Mapping[str, Any],
        *,
        run_id: str,
        folder: Path,
        state_folder: Path,
        by: str,
        events: Sequence[Event],
    ) -> None:
        assert self.begun.setdefault(run_id, document) == document
        self.events = events

    def key(self, run_id: str) -> RunKey:
        return RunKey(source="cli", run_id=run_id)

    def runtime(self, job: ResolvedJob) -> Runtime:
        return open_runtime(job.runtime, connection=job.connection)

    def before_start(self, run_id: str) -> CloudRunState | None:
        return None

    def stop(self, run_id: str, by: str) -> None:
        raise KeyError(run_id)


class LoopbackService:
    """The real app over a folder, reached without a socket."""

    def __init__(
        self,
        folder: Path,
        admission: Admission | None = None,
        resources: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder = folder
        self.runs = RecordedRuns()
        self.admission = admission or KeyAdmission(KEY, account="ada")
        self.submissions = Submissions(
            folder, self.admission, self.runs, same_machine=True, resources=resources
        )

    def http(self, kind: Callable[..., Any] | None = None, *, key: str = KEY) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of libraries that the client imports
            from starlette.testclient import TestClient
        app = cloud_app(self.submissions, self.admission)
        headers = {"Authorization": f"Bearer {key}"}
        return (kind or TestClient)(app, base_url=f"http://127.0.0.1{PREFIX}", headers=headers)

    def client(self, *, key: str = KEY) -> CloudClient:
        return CloudClient(self.http(key=key))


@pytest.fixture
def service(tmp_path: Path, airflow_home: Path) -> LoopbackService:
    return LoopbackService(tmp_path / "service")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "pkg").mkdir(parents=True)
    (folder / "train.py").write_text("from pkg import model\n")
    (folder / "pkg" / "model.py").write_text("width = 3\n" * 3000)
    (folder / "pkg" / "words").write_bytes(bytes(range(256)) * 200)
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("train.py")
    return folder


_scan_once = functools.cache(scan)


@pytest.fixture(autouse=True)
def _one_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed is read once for all tests here: nothing of it changes meanwhile."""
    monkeypatch.setattr(recording, "scan", _scan_once)


def captured(project: Path, *args: str, **options: Any) -> Submission:
    return prepare(["train.py", *args], RunOptions(**{"resources": {}, **options}), cwd=project)
