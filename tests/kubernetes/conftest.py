"""Runs on an emulated cluster, driven by the real loop over a real store."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_training.admission.check import check_text
from airflow_training.admission.launch import launch
from airflow_training.control.model import Event, InstanceEntry
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob, RunKey
from airflow_training.runtimes.kubernetes.connection import CONNECTIONS
from airflow_training.runtimes.kubernetes.logs import LogArchive
from airflow_training.runtimes.kubernetes.pods import PodOptions
from airflow_training.runtimes.kubernetes.runtime import KubernetesRuntime
from airflow_training.state.store import Store
from airflow_training.supervise.loop import Supervisor
from airflow_training.supervise.owners import new_owner
from tests.kubernetes.emulator import Cluster
from tests.ports import free_port
from tests.waiting import PATIENCE, until, wait_until

FAULTS = 10
"""How many there are in the contract of the port under faults."""
CONTROLLER = "tests"


@pytest.hookimpl(tryfirst=True)  # before pytest looks at -m
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let each test of the contract meet two of the faults in `make e2e`, each time others."""
    faulty = [item for item in items if "TestKubernetesUnderFaults" in item.nodeid]
    for number, item in enumerate(faulty):
        test, fault = divmod(number, FAULTS)
        if (test + fault) % 5:
            item.add_marker(pytest.mark.soak)
    functions = [item for item in items if isinstance(item, pytest.Function)]
    for each in functions:
        again = "test_in_place.py::TestKubernetes" in each.nodeid
        if again and "staying" not in each.function.__code__.co_names:
            each.add_marker(pytest.mark.soak)  # it is as in test_contract.py


def connect_to(
    cluster: Cluster, *, token: str = "", connections: int = CONNECTIONS
) -> Callable[[str], Any]:
    """Return what connects to an emulated cluster, whatever the connection is called."""

    async def connect(connection: str) -> Any:
        from kubernetes_asyncio import client, config

        document = cluster.kubeconfig(token=token) if token else cluster.kubeconfig()
        configuration = client.Configuration()
        configuration.connection_pool_maxsize = connections
        await config.load_kube_config_from_dict(document, client_configuration=configuration)
        return client.ApiClient(configuration)

    return connect


def resolved(*roles: dict[str, Any], name: str = "digits", **spec: Any) -> ResolvedJob:
    """Return a job whose instances sleep until the test says otherwise."""
    document = {
        "apiVersion": "airflow-training/v1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": spec.pop("namespace", "default")},
        "spec": {
            "framework": "custom",
            "image": "busybox",
            "command": ["sleep", "inf"],
            "roles": list(roles) or [{"name": "worker"}],
            "restart": {"backoff": {"initialSeconds": 0.05}},
            **spec,
        },
    }
    (checked,) = check_text(yaml.safe_dump(document), runtime="kubernetes", run_uid="x" * 20)
    assert checked.resolved is not None, checked.problems
    return checked.resolved


@dataclass
class Stage:
    """One store and one cluster, shared by any number of supervisors."""

    store: Store
    cluster: Cluster
    folder: Path
    patience_seconds: float = 2.0
    events: list[Event] = field(default_factory=list)
    _made: list[KubernetesRuntime] = field(default_factory=list)
    """Kept, so that their connections are closed with the event loop and not before."""

    def runtime(self, *, token: str = "", connections: int = CONNECTIONS) -> KubernetesRuntime:
        made = KubernetesRuntime(
            connect=connect_to(self.cluster, token=token, connections=connections),
            archive=LogArchive(str(self.folder / "logs"), tail_bytes=0),
            options=PodOptions(agent_image="python:3.12-alpine"),
            patience_seconds=self.patience_seconds,
            collected=self.folder / "collected",
        )
        self._made.append(made)
        return made

    def launch(self, job: ResolvedJob, *, run_id: str = "one") -> str:
        """Store a run and return its uid."""
        key = RunKey(source="cli", run_id=run_id)
        return launch(job, key=key, store=self.store, controller=CONTROLLER, activate_all=True).uid

    @contextlib.asynccontextmanager
    async def driving(self, uid: str, **options: Any) -> AsyncIterator[asyncio.Task[str]]:
        """Drive a run beside the body; a test that leaves early cancels it."""
        supervisor = Supervisor(
            store=self.store,
            runtime=options.pop("runtime", None) or self.runtime(),
            run_uid=uid,
            owner=new_owner(),
            on_event=self.events.append,
            **options,
        )
        task = asyncio.ensure_future(supervisor.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # what is there -------------------------------------------------------------------------------
    def entry(self, uid: str, role: str = "worker", index: int = 0) -> InstanceEntry:
        return self.store.ledger(uid).instances[InstanceKey(role, index)]

    def states(self, uid: str) -> dict[str, str]:
        found = self.store.ledger(uid).instances
        return {f"{role}-{index}": entry.state for (role, index), entry in found.items()}

    def pods(self, namespace: str = "default") -> dict[str, Any]:
        """Return instance (`worker-0`) -> its pod."""
        found = self.cluster.control.list("pods", namespace=namespace)
        return {
            "{airflow-training/role}-{airflow-training/index}".format_map(_Labels(pod)): pod
            for pod in found
            if "airflow-training/role" in pod["metadata"]["labels"]  # a spare is no instance
        }

    def name(self, instance: str) -> str:
        """Return the name of an instance's pod."""
        return str(self.pods()[instance]["metadata"]["name"])

    def uid(self, instance: str) -> str:
        return str(self.pods()[instance]["metadata"]["uid"])

    async def until_running(self, uid: str) -> None:
        await until(
            lambda: set(self.states(uid).values()) == {"running"}, seen=lambda: self.states(uid)
        )


class _Labels(dict[str, str]):
    def __init__(self, pod: Any) -> None:
        super().__init__(pod["metadata"]["labels"])


@pytest.fixture
def scripted() -> Iterator[Cluster]:
    """Give a cluster whose pods do what the test says."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def stage(scripted: Cluster, tmp_path: Path, sqlite_template: Path) -> Iterator[Stage]:
    shutil.copy(sqlite_template, tmp_path / "store.db")
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    yield Stage(store=store, cluster=scripted, folder=tmp_path)
    store.close()


ROUTE = """
import sys, uvicorn
from fastapi import FastAPI
from airflow_training.web.progress import router

app = FastAPI()
app.include_router(router, prefix="/training")
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
"""


@pytest.fixture
def route(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve the plugin's route over the store of this folder; return its address."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/training"
    monkeypatch.setenv("AIRFLOW__TRAINING__CALLBACK_URL", url)
    process = subprocess.Popen(
        [sys.executable, "-c", ROUTE, str(port)], env={**os.environ, "AIRFLOW_HOME": str(tmp_path)}
    )
    try:
        wait_until(
            lambda: _listens(port), "the route listens", alive=lambda: process.poll() is None
        )
        yield url
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _listens(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


def asked_of(runtime: KubernetesRuntime) -> Counter[str]:
    """Return what a runtime has asked the server, but for whether it is there at all: that depends on the time."""
    asked = runtime.api.requests + runtime.log_api.requests
    return Counter(
        {what: count for what, count in asked.items() if not what.startswith("look for ")}
    )
