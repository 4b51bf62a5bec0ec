"""Attempts follow one another inside one pod, where its agent can tell how each of them ends."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

from airflow_training.documents.resolved import RunRef
from airflow_training.runtimes.kubernetes import names
from airflow_training.runtimes.kubernetes.logs import LogArchive
from airflow_training.runtimes.kubernetes.pods import PodOptions
from airflow_training.runtimes.kubernetes.runtime import KubernetesRuntime
from airflow_training.runtimes.port import ReleaseAnswer
from tests.contracts.runtime import JOB, Harness, RuntimeContract, watching
from tests.kubernetes.conftest import connect_to
from tests.kubernetes.emulator import Cluster
from tests.kubernetes.reports import Reports
from tests.kubernetes.test_command_line import Shell
from tests.kubernetes.test_contract import COMMANDS, PodHarness


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(kubelet="processes") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def reports() -> Iterator[Reports]:
    server = Reports()
    yield server
    server.stop()


class EnvironmentHarness(PodHarness):
    """Tells each pod who it is, as rendering does."""

    def spec(self, kind: Any, index: int = 0, *, attempt: int = 0, **changes: Any) -> Any:
        spec = super().spec(kind, index, attempt=attempt, **changes)
        ref = spec.ref
        told = {"ROLE": ref.role, "INDEX": ref.index, "ATTEMPT": ref.attempt, "JOB_ATTEMPT": 0}
        env = {f"TRAINING_{name}": str(value) for name, value in told.items()}
        return dataclasses.replace(spec, env=env)


class TestKubernetes(RuntimeContract):
    @pytest.fixture
    async def harness(
        self, cluster: Cluster, reports: Reports, tmp_path: Path
    ) -> AsyncIterator[Harness]:
        run = RunRef(uid=uuid4().hex[:20], job="stays", namespace="default", controller="tests")
        runtime = KubernetesRuntime(
            connect=connect_to(cluster),
            archive=LogArchive(str(tmp_path / "logs"), tail_bytes=0),
            options=PodOptions(agent_image="python:3.12-alpine", callback_url=reports.url),
            callback_token=lambda _: "token",
            reports=reports.of,
        )
        harness = EnvironmentHarness(runtime=runtime, run=run, commands=COMMANDS)
        await runtime.prepare(run, JOB)
        yield harness
        await runtime.purge(run)

    async def test_a_pod_that_no_attempt_may_follow_in_can_be_looked_into(
        self, harness: Harness
    ) -> None:
        """What a hold writes is written once, and Kueue numbers pods by attempt."""
        runtime = self.keeps(harness)
        async with watching(harness.runtime, harness.run) as seen:
            once: dict[str, Any] = {
                "held": True,
                "live_files": {"/training/hosts": "x"},
                "keep_seconds": 60.0,
            }
            await harness.runtime.create([self.staying(harness, "broken", **once)])
            held = await seen.state("broken", 0, "pending", held=True)
            ref = harness.ref("broken", uid=held.uid)
            await harness.runtime.release([ref], ReleaseAnswer(kind="Confirmation"))
            waiting = await seen.state("broken", 0, "failed", can_stay=True)
            assert not waiting.in_place
            await runtime.keep(harness.ref("broken", uid=waiting.uid), seconds=600)
            await seen.state("broken", 0, "failed", kept=True, can_stay=False)
            await runtime.end_kept(harness.run)
            await seen.gone("broken", 0)


# a whole run, with the route that pods report to -----------------------------------------------------
TRAIN = """
import os, sys, time
import numpy
from airflow_training.agent.progress import report
from airflow_training.checkpoints import Saver

rank, attempt = int(os.environ["TRAINING_RANK"]), int(os.environ["TRAINING_ATTEMPT"])
saver = Saver()
found = saver.restore()
total = numpy.zeros(3) if found is None else found.state()["total"]
step = found.step if found else 0
print("starts after step", step, flush=True)
state = lambda: {"total": total, "rank": rank}
for step in range(step + 1, 41):
    total += step
    saver.boundary(step, state)
    report(step=step)
    time.sleep(0.1)
    if attempt == 0 and rank == 1 and step == 30:
        sys.exit(7)
saver.close(state)
print("total", total[0], flush=True)
"""


@pytest.mark.e2e
@pytest.mark.usefixtures("route")
def test_all_ranks_go_on_in_their_pods_from_their_checkpoint(cluster: Cluster, tmp_path: Path):
    shell = Shell(tmp_path, cluster.write_kubeconfig(tmp_path / "kubeconfig"))
    document = {
        "apiVersion": "airflow-training/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "stays"},
        "spec": {
            "framework": "custom",
            "image": "trainer:1",
            "command": ["python3", "-c", TRAIN],
            "checkpoint": {"uri": str(tmp_path / "ckpt"), "everySteps": 5},
            "restart": {"scope": "Job", "backoff": {"initialSeconds": 0.5}},
            "roles": [{"name": "worker", "replicas": 2}],
        },
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(document))
    done = shell("run", "job.yaml", "--runtime", "kubernetes", "--run-id", "r", "-o", "json")
    assert done.returncode == 0, done.stderr
    status = json.loads(done.stdout)
    assert (status["restarts"]["user"], status["job_attempt"]) == (1, 1)
    made = [
        pod
        for pod in cluster.control.list("pods", namespace="default")
        if pod["metadata"]["labels"]["app.kubernetes.io/name"] == "stays"
    ]
    turns = [json.loads(pod["metadata"]["annotations"][names.TURN]) for pod in made]
    assert [turn["number"] for turn in turns] == [1, 1]
    for index in (0, 1):
        before, after = (
            shell(
                "logs", "show", "r", "--role", "worker", "--index", str(index), "--attempt", each
            ).stdout
            for each in "01"
        )
        assert "starts after step 0\n" in before
        assert "total" not in before
        assert re.search(r"starts after step (25|30)\n", after)
        assert after.endswith("total 820.0\n")
