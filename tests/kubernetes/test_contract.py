"""The Kubernetes runtime keeps the contract of the port, against an emulated cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from airflow_training.runtimes.kubernetes import KubernetesRuntime
from airflow_training.runtimes.kubernetes.logs import LogArchive
from airflow_training.runtimes.kubernetes.pods import PodOptions
from airflow_training.spec.resolved import RunRef
from tests.contracts.runtime import JOB, Harness, Kind, RuntimeContract
from tests.kubernetes.emulator import Cluster

COMMANDS: dict[Kind, tuple[str, ...]] = {
    "sleeper": ("sleep", "inf"),
    "quick": ("true",),
    "broken": ("sh", "-c", "echo broken; exit 3"),
}


class PodHarness(Harness):
    """Gives each instance the pod it would have been rendered to."""

    def spec(self, kind: Kind, index: int = 0, *, attempt: int = 0, **changes: Any) -> Any:
        container = {
            "name": "main",
            "image": "busybox",
            "command": list(self.commands[kind]),
            "ports": [{"name": "main", "containerPort": 1234}],
        }
        values = {
            "container": "main",
            "image": "busybox",
            "pod": {"spec": {"containers": [container]}},
            "ports": {"main": 1234, "other": 1235},
            **changes,
        }
        return super().spec(kind, index, attempt=attempt, **values)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


def runtime_on(cluster: Cluster, folder: Path) -> KubernetesRuntime:
    async def connect(connection: str) -> Any:
        from kubernetes_asyncio import config

        return await config.new_client_from_config_dict(cluster.kubeconfig())

    return KubernetesRuntime(
        connect=connect,
        archive=LogArchive(str(folder / "logs"), tail_bytes=0),
        options=PodOptions(agent_image="python:3.12-alpine"),
    )


class TestKubernetes(RuntimeContract):
    @pytest.fixture
    async def harness(self, cluster: Cluster, tmp_path: Path) -> AsyncIterator[Harness]:
        uid = uuid4().hex[:20]
        run = RunRef(uid=uid, job="contract", namespace="default", controller="tests")
        harness = PodHarness(runtime=runtime_on(cluster, tmp_path), run=run, commands=COMMANDS)
        await harness.runtime.prepare(run, JOB)
        yield harness
