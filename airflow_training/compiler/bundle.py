"""A DAG bundle of job files: each becomes a DAG file of its own, with its own import errors.

Airflow's DAG processor lists Python files only, so the bundle keeps one small stub per job file.
Configure it beside your DAGs folder:

    [dag_processor]
    dag_bundle_config_list = [
        {"name": "dags-folder", "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle"},
        {"name": "jobs", "classpath": "airflow_training.compiler.bundle.JobBundle",
         "kwargs": {"jobs": "/opt/airflow/jobs"}}]
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

from airflow.dag_processing.bundles.base import BaseDagBundle

from airflow_training.compiler.form import job_files
from airflow_training.settings import load_settings

__all__ = ["JobBundle"]

_STUB = """\
# airflow dag made from {path}; do not edit
from airflow_training.compiler.loader import load_stub

globals().update(load_stub({path!r}))

{job}
"""


class JobBundle(BaseDagBundle):
    """The job files of a folder. `jobs`: the folder; `[training] jobs_folder` by default."""

    supports_versioning = False

    def __init__(self, *, jobs: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._jobs = Path(jobs).expanduser() if jobs else load_settings().jobs_folder

    @property
    def path(self) -> Path:
        """Return the folder of the stubs."""
        return Path(self.base_dir) / "stubs"

    def get_current_version(self) -> None:
        """Return nothing: files are read as they are."""

    def initialize(self) -> None:
        """Write the stubs; workers call this too."""
        self.refresh()
        super().initialize()

    def refresh(self) -> None:
        """Bring the stubs in line with the job files."""
        with self.lock():
            self.path.mkdir(parents=True, exist_ok=True)
            wanted = {_stub_name(path, self._jobs): path for path in job_files(self._jobs)}
            for stub in self.path.glob("*.py"):
                if stub.name not in wanted:
                    stub.unlink()
            for name, path in wanted.items():
                _write(self.path / name, path)


def _stub_name(path: Path, folder: Path) -> str:
    """Return a module name that is stable and belongs to one path only."""
    relative = path.relative_to(folder).as_posix()
    plain = "".join(c if c.isalnum() else "_" for c in path.stem)
    return f"{plain}_{hashlib.sha256(relative.encode()).hexdigest()[:8]}.py"


def _write(stub: Path, path: Path) -> None:
    """Write a changed stub in one step.

    It holds the job as comments: Airflow's tab *Code* shows it, and a changed job is parsed again.
    """
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    text = _STUB.format(path=str(path), job="\n".join(f"# {line}".rstrip() for line in lines))
    if stub.is_file() and stub.read_text(encoding="utf-8") == text:
        return
    handle, name = tempfile.mkstemp(dir=stub.parent, prefix=".", suffix=".tmp")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    Path(name).replace(stub)
