"""`run` while its store is locked, full, truncated or gone: Ctrl-C still ends everything, in few words."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, Background, alive, job_file

pytestmark = pytest.mark.e2e

MOST_LINES = 16
"""What a run of two instances says from its start to its end, and a few for the outage."""


@contextlib.contextmanager
def locked(store: Path, _: int) -> Iterator[None]:
    with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@contextlib.contextmanager
def full(_: Path, pid: int) -> Iterator[None]:
    """As a full disk is to this one process: it can write no byte to any file."""
    hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
    yield


@contextlib.contextmanager
def truncated(store: Path, _: int) -> Iterator[None]:
    with store.open("r+b") as file:
        file.truncate(100)
    Path(f"{store}-wal").unlink()
    yield


@contextlib.contextmanager
def removed(store: Path, _: int) -> Iterator[None]:
    for path in store.parent.glob(f"{store.name}*"):
        path.unlink()
    yield


@contextlib.contextmanager
def replaced(store: Path, _: int) -> Iterator[None]:
    """By an empty one, as the next command makes it where there is none."""
    for path in store.parent.glob(f"{store.name}*"):
        path.unlink()
    done = subprocess.run([*COMMAND, "list"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    yield


@pytest.fixture
def host(home: Path, background: Callable[..., Background]) -> Iterator[tuple[Background, str]]:
    """Return a run of two instances that are up, and what their processes are known by."""
    marker = f"outage-{home}"
    path = job_file(
        Path("job.yaml"), ("worker", 2), command=["sh", "-c", "echo up >> up; exec sleep 300"],
        env=[{"name": "MARKER", "value": marker}], restart={"backoff": {"initialSeconds": 0.05}},
    )  # fmt: skip
    process = background("run", str(path), "--run-id", "o", "-o", "json")
    try:
        process.until(lambda: Path("up").exists() and Path("up").read_text().count("up") == 2)
        process.until(lambda: seen(home / "airflow_training.db") == "Running")
        yield process, marker
    finally:
        process.kill()
        for pid in alive(marker):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def seen(store: Path) -> str:
    with contextlib.closing(sqlite3.connect(store)) as connection:
        return str(connection.execute("SELECT state FROM training_runs").fetchone()[0])


@pytest.mark.parametrize(
    ("trouble", "number"),
    [
        pytest.param(locked, signal.SIGINT, marks=pytest.mark.soak),
        (full, signal.SIGTERM),
        pytest.param(truncated, signal.SIGINT, marks=pytest.mark.soak),
        (removed, signal.SIGINT),
        pytest.param(replaced, signal.SIGTERM, marks=pytest.mark.soak),
    ],
)
def test_a_run_whose_store_is_away_ends_all_it_started(host, home, trouble, number):
    process, marker = host
    with trouble(home / "airflow_training.db", process.pid):
        process.send_signal(number)
        out, err = process.communicate(timeout=25)  # it does not wait for the store
        assert not alive(marker)
    assert process.returncode == 1
    assert out == ""
    assert "Traceback" not in err
    assert len(err.splitlines()) <= MOST_LINES, err
    assert err.count("does not answer") <= 1, err
    assert "nothing of it is alive" in err
    assert Path("up").read_text().count("up") == 2, "nothing was started again"
