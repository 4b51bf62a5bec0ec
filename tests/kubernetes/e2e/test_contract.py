"""The adapter keeps the contract of the port on this cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from airflow_training.documents.resolved import ResolvedRole, RunRef
from airflow_training.runtimes.kubernetes.logs import LogArchive
from airflow_training.runtimes.kubernetes.pods import PodOptions
from airflow_training.runtimes.kubernetes.runtime import KubernetesRuntime
from tests.contracts import runtime as contract
from tests.kubernetes.e2e.site import Site

SCRIPTS: dict[contract.Kind, str] = {
    "sleeper": "trap 'exit 143' TERM; sleep 100000 & wait",
    "quick": "true",
    "broken": "echo something is broken; exit 3",
}


class PodHarness(contract.Harness):
    """Gives each instance the pod it would have been rendered to."""

    image: str = ""
    python_image: str = ""

    def spec(self, kind: contract.Kind, index: int = 0, *, attempt: int = 0, **changes: Any) -> Any:
        # what is told to finish early has the agent in its container, which needs Python there
        image = self.python_image if changes.get("finishes") else self.image
        container = {
            "name": "main",
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "command": list(self.commands[kind]),
            "ports": [{"name": "main", "containerPort": 1234}],
        }
        values = {
            "image": image,
            "resolved": ResolvedRole(
                name=kind, replicas=2, template={"spec": {"containers": [container]}}
            ),
            "ports": {"main": 1234, "other": 1235},
            **changes,
        }
        return super().spec(kind, index, attempt=attempt, **values)


class TestOnTheCluster(contract.RuntimeContract):
    @pytest.fixture
    async def harness(
        self, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> AsyncIterator[contract.Harness]:
        from kubernetes_asyncio import config

        monkeypatch.setattr(contract, "PATIENCE", site.patience_seconds)

        async def connect(connection: str) -> Any:
            return await config.new_client_from_config(str(site.kubeconfig))

        runtime = KubernetesRuntime(
            connect=connect,
            archive=LogArchive(str(tmp_path / "logs"), tail_bytes=0),
            options=PodOptions(agent_image=site.training_image),
        )
        run = RunRef(
            uid=uuid4().hex[:20], job="contract", namespace=site.namespace, controller="e2e"
        )
        commands = {kind: ("sh", "-c", script) for kind, script in SCRIPTS.items()}
        harness = PodHarness(runtime=runtime, run=run, commands=commands)
        harness.image, harness.python_image = site.busybox_image, site.training_image
        await runtime.prepare(run, contract.JOB)
        yield harness
        await runtime.remove(harness.later(100))
