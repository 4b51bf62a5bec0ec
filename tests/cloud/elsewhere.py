"""A service with a home of its own, as on another machine, and a laptop that sends runs to it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx

from airflow_training.control.model import Event
from airflow_training.state.store import Store
from tests.waiting import PATIENCE, wait_until

ROOT = Path(__file__).parents[2]


class Elsewhere:
    """The service: killed and started again at the same address."""

    options: Sequence[str] = ("--token", "secret")
    before: Sequence[str] = ()

    def __init__(self, home: Path) -> None:
        self.home = home
        self.store = Store(f"sqlite:///{home}/airflow_training.db")
        self.port = 0
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> str:
        words = ["serve", "--port", str(self.port), *self.options]
        self.process = cloud(*words, cwd=self.home, home=self.home, before=self.before)
        assert self.process.stdout is not None
        url = self.process.stdout.readline().strip()
        wait_until(lambda: _answers(url), alive=lambda: self.process.poll() is None)
        self.port = int(url.rpartition(":")[2])
        return url

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def uid(self, run: str) -> str:
        return next(each.uid for each in self.store.runs() if each.key.run_id == run)

    def state(self, run: str) -> str:
        return next(each.state for each in self.store.runs() if each.key.run_id == run)

    def story(self, run: str) -> Mapping[str, Event]:
        return {each.event.reason: each.event for each in self.store.events(self.uid(run))}

    def data_state(self, run: str) -> Path:
        """What the service keeps of a run's data."""
        folder = self.home / "training-cloud" / "served" / "submissions"
        return next(
            each for each in folder.glob("*/data") if run in (each / "config.json").read_text()
        )


def cloud(
    *words: str, cwd: Path, home: Path | None = None, before: Sequence[str] = ()
) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if home is not None:
        environment |= {"AIRFLOW_HOME": str(home)}
    return subprocess.Popen(
        [*before, sys.executable, "-m", "airflow_training.cli", "cloud", *words],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def done(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, said = process.communicate(timeout=2 * PATIENCE)  # a whole run
    return process.returncode, out, said


def sharer_file(home: Path, run: str, kind: str) -> Path:
    return home / "training-cloud" / "client" / "data" / f"{run}.{kind}"


def sharer_pid(home: Path, run: str) -> int:
    """The process of the laptop that serves a run's data."""

    def pid() -> int:
        path = sharer_file(home, run, "lock")
        return int(path.read_text() or 0) if path.exists() else 0

    return wait_until(pid, what="a process that shares")


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/training/cloud/v1/").is_success
    except httpx.TransportError:
        return False
