"""Commands as a user types them: in this process where nothing runs, else as real processes."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.waiting import PATIENCE, wait_until

T = TypeVar("T")


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
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sqlite_template: Path) -> Path:
    """Return a fresh Airflow home, with the working directory beside it."""
    folder = tmp_path / "home"
    folder.mkdir()
    shutil.copy(sqlite_template, folder / "airflow_training.db")
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
_FORKED = multiprocessing.get_context("forkserver")


@pytest.fixture
def command(home, tmp_path) -> Callable[..., Answer]:
    """Return a function that runs a command as a process of its own."""
    numbers = itertools.count()

    def run(*words: str) -> Answer:
        return forked(words, Path.cwd(), os.environ, tmp_path / f"{next(numbers)}")

    return run


def forked(
    words: Sequence[str], folder: Path, environment: Mapping[str, str], output: Path
) -> Answer:
    """Run a command in a process of its own that has imported everything; `output` is where it may write."""
    out, err = (output.with_suffix(f".{name}") for name in ("out", "err"))
    process = _FORKED.Process(
        target=_run_command, args=(words, folder, dict(environment), out, err)
    )
    process.start()
    try:
        process.join(2 * PATIENCE)  # it may be a whole training
        assert process.exitcode is not None, f"{words} takes too long: {err.read_text()}"
    finally:
        process.kill()
        process.join()
    assert "Traceback" not in err.read_text()
    return Answer(code=process.exitcode, stdout=out.read_text(), stderr=err.read_text())


class Background:
    """A command that runs beside its test: what of `subprocess.Popen` tests use, forked as `command` is."""

    def __init__(self, folder: Path, words: Sequence[str]) -> None:
        out, err = (Path(folder, name) for name in ("out", "err"))
        for pipe in (out, err):
            os.mkfifo(pipe)
        arguments = (words, Path.cwd(), dict(os.environ), out, err)
        self._process = _FORKED.Process(target=_run_command, args=arguments)
        self._process.start()
        self.pid = self._process.pid or 0
        self.stdout, self.stderr = (pipe.open() for pipe in (out, err))  # waits until it writes

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def until(self, probe: Callable[[], T | None], what: str = "") -> T:
        """Wait for what the command is to bring about; tell what it said where it ended before."""
        return wait_until(
            probe,
            what,
            alive=lambda: self.returncode is None,
            seen=lambda: "it runs" if self.returncode is None else self.communicate(),
        )

    def wait(self, timeout: float = PATIENCE) -> int:
        self._process.join(timeout)
        assert self.returncode is not None, f"{self.pid} takes too long"
        return self.returncode

    def communicate(self, timeout: float = PATIENCE) -> tuple[str, str]:
        """Return what it still says on stdout and stderr, when it has ended."""
        with ThreadPoolExecutor(2) as pool:
            found = [pool.submit(each.read) for each in (self.stdout, self.stderr)]
            try:
                self.wait(timeout)
            finally:
                self.kill()
            out, err = (each.result() for each in found)
        return out, err

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        for each in (self.stdout, self.stderr):
            each.close()


@pytest.fixture
def background(
    home: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Background]]:
    """Return a function that starts a command; whatever is left of it is stopped after the test."""
    started: list[Background] = []

    def run(*words: str) -> Background:
        started.append(Background(tmp_path_factory.mktemp("background"), words))
        return started[-1]

    yield run
    for each in started:
        each.terminate()
        each.wait()
        each.close()


def _run_command(
    words: Sequence[str], folder: Path, environment: Mapping[str, str], out: Path, err: Path
) -> None:
    """Be the command: what is imported already saves the second that most of them take to begin."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    for number, path in ((1, out), (2, err)):
        with path.open("wb") as file:
            os.dup2(file.fileno(), number)
    sys.argv = ["airflow-training", *words]
    from airflow_training.cli.__main__ import main

    main()


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
