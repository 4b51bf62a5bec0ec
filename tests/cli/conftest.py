"""Commands as a user types them: in this process where nothing runs, else as real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Answer:
    """What a command left behind."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """Return the one JSON document, which must be alone on stdout."""
        return json.loads(self.stdout)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a fresh Airflow home, with the working directory beside it."""
    folder = tmp_path / "home"
    folder.mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("AIRFLOW_HOME", str(folder))
    monkeypatch.chdir(tmp_path / "work")
    return folder


@pytest.fixture
def typed(home, monkeypatch, capfd) -> Callable[..., Answer]:
    """Return a function that runs a command in this process."""

    def run(*words: str) -> Answer:
        from airflow_training.cli.main import main

        monkeypatch.setattr(sys, "argv", ["airflow-training", *words])
        capfd.readouterr()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1 if end.code else 0
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return Answer(code=code, stdout=out, stderr=err)

    return run


COMMAND = (sys.executable, "-m", "airflow_training.cli")


@pytest.fixture
def command(home) -> Callable[..., Answer]:
    """Return a function that runs a command as a process of its own."""

    def run(*words: str) -> Answer:
        done = subprocess.run(
            [*COMMAND, *words], capture_output=True, text=True, check=False, timeout=90
        )
        assert "Traceback" not in done.stderr
        return Answer(code=done.returncode, stdout=done.stdout, stderr=done.stderr)

    return run


def job_file(
    path: Path,
    *roles: tuple[str, int],
    command: Sequence[str] = ("true",),
    name: str = "digits",
    **spec: Any,
) -> Path:
    """Write a custom job (JSON is YAML) and return its path."""
    document = {
        "apiVersion": "airflow-training/v1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {
            "framework": "custom",
            "command": list(command),
            "roles": [
                {"name": each, "replicas": count} for each, count in roles or [("worker", 1)]
            ],
            **spec,
        },
    }
    path.write_text(json.dumps(document))
    return path


def alive(marker: str) -> list[int]:
    """Return the processes whose environment or command line carries the marker."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            text = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if marker.encode() in text:
            found.append(int(entry.name))
    return found
