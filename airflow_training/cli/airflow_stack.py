"""A complete Airflow on this machine, for the demo and for tests: start, ask, stop. No scheduler code.

Each component is a process group of its own (`airflow standalone` orphans its children), listening
on loopback ports that were free, with its own home. Airflow itself is never imported here.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from airflow_training.errors import TrainingError

COMPONENTS = ("api-server", "scheduler", "dag-processor", "triggerer")
STOP_SECONDS = 12.0
_HEALTHY_SECONDS = 120
_LOCK_SECONDS = 60
_PARSE_SECONDS = 60
_PR_SET_PDEATHSIG = 1


def free_ports(count: int) -> list[int]:
    """Return loopback ports that nobody listens on now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _end_with_parent() -> None:
    """Let the kernel end this process when the one that started it dies, even by SIGKILL."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class StackError(TrainingError):
    """Airflow did not start; the message ends with the tail of the component's log."""


_BUNDLES = [
    {"name": name, "classpath": classpath, "kwargs": {"refresh_interval": 5}}
    for name, classpath in (
        ("dags-folder", "airflow.dag_processing.bundles.local.LocalDagBundle"),
        ("jobs", "airflow_training.compiler.bundle.JobBundle"),
    )
]


@dataclass(kw_only=True)
class AirflowStack:
    """The four components over one home. `environment` is added to what they inherit."""

    home: Path
    path: str = ""
    """Below which its UI and API are served, such as `/airflow`, as behind a proxy."""
    environment: Mapping[str, str] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self.port, worker_log, trigger_log = free_ports(3)
        self.url = f"http://127.0.0.1:{self.port}{self.path}"
        self.env = {
            # A half-filled configuration of the caller must not leak into this Airflow.
            **{k: v for k, v in os.environ.items() if not k.startswith("AIRFLOW")},
            "AIRFLOW_HOME": str(self.home),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.home / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.1",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "10",
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(_BUNDLES),
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_STORAGE_PATH": str(self.home / "bundles"),
            "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "2",
            "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "8",
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(worker_log),
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(trigger_log),
            "AIRFLOW__TRAINING__ALLOW_LOCAL": "True",
            **self.environment,
        }
        (self.home / "dags").mkdir(exist_ok=True)

    def migrate(self) -> None:
        """Create or upgrade Airflow's own database; raises StackError."""
        done = subprocess.run(
            [sys.executable, "-m", "airflow", "db", "migrate"],
            env=self.env,
            cwd=self.home,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            raise StackError("airflow db migrate failed:\n" + done.stderr.decode()[-2000:])
        # readers and the writer no longer wait for each other
        with contextlib.closing(sqlite3.connect(self.home / "airflow.db")) as database:
            database.execute("pragma journal_mode=wal")

    def environment_of(self, component: str) -> Mapping[str, str]:
        """Return the environment of a component, with how long it waits for SQLite's write lock.

        SQLite's own five seconds are too few on a busy machine: triggerer and scheduler die of
        them. The API server keeps them, as it waits on its event loop.
        """
        if component == "api-server":
            return self.env
        database = f"sqlite:///{self.home / 'airflow.db'}?timeout={_LOCK_SECONDS}"
        return {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database, **self.env}

    def start(self, *components: str) -> None:
        """Start these components (all by default), each in its own process group."""
        for name in components or COMPONENTS:
            with (self.home / f"{name}.log").open("ab") as log:
                self.processes[name] = subprocess.Popen(
                    [sys.executable, "-m", "airflow", name],
                    env=self.environment_of(name),
                    cwd=self.home,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=_end_with_parent,  # noqa: PLW1509 - one call, no locks
                )

    def wait_healthy(self) -> None:
        """Return when every component reports healthy; raises StackError."""
        components = ("scheduler", "dag_processor", "triggerer")
        deadline = time.monotonic() + _HEALTHY_SECONDS
        while time.monotonic() < deadline:
            for name, process in self.processes.items():
                if process.poll() is not None:
                    raise StackError(f"airflow {name} ended:\n{self.log_tail(name)}")
            with contextlib.suppress(httpx.HTTPError):
                health = httpx.get(f"{self.url}/api/v2/monitor/health", timeout=5).json()
                if all(health.get(c, {}).get("status") == "healthy" for c in components):
                    return
            time.sleep(0.5)
        raise StackError(
            f"Airflow was not healthy within {_HEALTHY_SECONDS} s:\n{self.log_tail('api-server')}"
        )

    def log_tail(self, component: str) -> str:
        """Return the end of a component's log."""
        return (self.home / f"{component}.log").read_text(errors="replace")[-2000:]

    def client(self) -> httpx.Client:
        """Return an authorised client whose base is the REST API."""
        token = httpx.get(f"{self.url}/auth/token", timeout=30).raise_for_status()
        return httpx.Client(
            base_url=f"{self.url}/api/v2",
            headers={"Authorization": f"Bearer {token.json()['access_token']}"},
            timeout=30,
        )

    def wait_dag(self, client: httpx.Client, dag_id: str) -> dict[str, Any]:
        """Return the DAG once it was parsed; raises StackError with Airflow's import errors."""
        deadline = time.monotonic() + _PARSE_SECONDS
        while time.monotonic() < deadline:
            answer = client.get(f"/dags/{dag_id}")
            if answer.status_code == 200:
                found: dict[str, Any] = answer.json()
                return found
            time.sleep(0.5)
        errors = client.get("/importErrors").json().get("import_errors", [])
        raise StackError(
            f"DAG {dag_id} did not appear within {_PARSE_SECONDS:.0f} s\n"
            + "\n".join(str(e.get("stack_trace", e)) for e in errors)
        )

    def wait(self) -> None:
        """Return when a component ends; it should not, so this waits for an interrupt."""
        while all(process.poll() is None for process in self.processes.values()):
            time.sleep(0.5)

    def kill(self, *components: str) -> None:
        """SIGKILL whole components, as a crash would."""
        for name in components:
            process = self.processes.pop(name)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def stop(self) -> None:
        """TERM every process group, then KILL what is left of it."""
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        for process in self.processes.values():
            # The group may outlive its leader: workers and servers that were slow to end.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.processes.clear()

    def __enter__(self) -> AirflowStack:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
