"""A run on a cluster loses a node: its split follows once nothing of the old one can live."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_training.admission.check import check_text
from airflow_training.admission.plan.history import NO_HISTORY
from airflow_training.admission.plan.step import plan_job
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.runtimes.memory import MemoryRuntime
from airflow_training.runtimes.port import ClusterSnapshot, NodeView
from airflow_training.state.store import Store
from tests.kubernetes.conftest import Stage
from tests.kubernetes.emulator import Cluster, Node
from tests.waiting import until

LABELS = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
GPT = {"hidden": 1024, "layers": 8, "heads": 16, "seq": 1024, "vocab": 32000}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Give a cluster of three nodes with a GPU each."""
    machines = [Node(name=f"gpu-{n}", gpus=1, labels=LABELS) for n in (1, 2, 3)]
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    with Cluster(nodes=machines) as cluster:
        yield Stage(store=store, cluster=cluster, folder=tmp_path)
    store.close()


class ThreeNodes(MemoryRuntime):
    """What the cluster looked like when the run was planned."""

    async def cluster_view(
        self, job: ResolvedJob | None = None, *, with_free: bool = False
    ) -> ClusterSnapshot:
        node = NodeView(name="gpu", cpus=64, memory_bytes=2**38, gpus=1, labels=LABELS)
        return ClusterSnapshot(nodes=[replace(node, name=f"gpu-{n}") for n in (1, 2, 3)])


@pytest.fixture
def job() -> ResolvedJob:
    document = {
        "apiVersion": "airflow-training/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "planned"},
        "spec": {
            "framework": "custom",
            "runtime": {"name": "kubernetes"},
            "image": "train",
            "resources": {"limits": {"nvidia.com/gpu": 1}},
            "roles": [{"name": "worker", "replicas": 3}],
            "restart": {"backoff": {"initialSeconds": 0.05}},
            "plan": {"model": GPT, "globalBatch": 480, "constraints": {"tp": 1, "pp": 1}},
        },
    }
    [checked] = check_text(
        yaml.safe_dump(document),
        run_uid="x" * 20,
        planner=lambda job, resolved: plan_job(
            job, resolved, runtime=lambda _: ThreeNodes(), history=NO_HISTORY
        ),
    )
    assert checked.resolved is not None, [str(problem) for problem in checked.problems]
    assert checked.resolved.role("worker").replicas == 3
    return replace(checked.resolved, reconcile_seconds=0.1, unknown_seconds=0.2)


def variables(pod: Any) -> dict[str, str]:
    [container] = pod["spec"]["containers"]
    return {each["name"]: each.get("value", "") for each in container["env"]}


def told(stage: Stage, uid: str) -> list[str]:
    return [e.event.message for e in stage.store.events(uid) if e.event.reason == "Replanned"]


async def test_a_run_goes_on_without_a_node_that_is_lost(stage, job):
    uid = stage.launch(job)
    control = stage.cluster.control
    async with stage.driving(uid):
        await stage.until_running(uid)
        assert variables(stage.pods()["worker-0"])["DP_SIZE"] == "3"
        lost = stage.pods()["worker-1"]["spec"]["nodeName"]
        control.node_lost(lost, evict_after=0.1)
        await until(lambda: told(stage, uid))
        await until(lambda: len(stage.pods()) == 1)
        assert stage.pods()["worker-1"]["spec"]["nodeName"] == lost
        assert stage.store.ledger(uid).job.state == "Restarting", "the lost one may still run"

        control.delete_node(lost)
        await until(lambda: set(stage.pods()) == {"worker-0", "worker-1"})
        await until(lambda: stage.store.ledger(uid).job.state == "Running")
        pods = stage.pods()
        assert {variables(pod)["DP_SIZE"] for pod in pods.values()} == {"2"}
        assert lost not in {pod["spec"]["nodeName"] for pod in pods.values()}

        # a script that does not say how far it is moves only when it must
        control.add_node("gpu-4", gpus=1, labels=LABELS)
        await until(lambda: "ClusterChanged" in [e.reason for e in stage.events])
    assert stage.store.ledger(uid).job.job_attempt == 1
    assert len(told(stage, uid)) == 1
    [message] = told(stage, uid)
    assert "lost 1 node, 2 are left: the split takes 3 devices and 2 are there" in message
    assert stage.store.job(uid).plan.applied_replicas == {"worker": 2}


async def test_a_run_shrinks_to_a_new_quota(stage, job):
    uid = stage.launch(job)
    async with stage.driving(uid):
        await stage.until_running(uid)
        stage.cluster.control.create(
            {
                "apiVersion": "v1",
                "kind": "ResourceQuota",
                "metadata": {"name": "less"},
                "spec": {"hard": {"requests.nvidia.com/gpu": "2"}},
            }
        )
        await until(lambda: told(stage, uid))
        await until(lambda: set(stage.pods()) == {"worker-0", "worker-1"})
        await until(lambda: stage.store.ledger(uid).job.state == "Running")
        assert {variables(pod)["DP_SIZE"] for pod in stage.pods().values()} == {"2"}
    [message] = told(stage, uid)
    assert message.startswith("the quota is 2 devices (before: none): the split takes 3 devices")


async def test_what_pods_hold_is_not_free(stage, job):
    uid = stage.launch(job)
    async with stage.driving(uid):
        await stage.until_running(uid)
        stage.cluster.control.add_node("gpu-4", gpus=2, labels=LABELS)
        view = await stage.runtime().cluster_view(job, with_free=True)
        assert {node.name: node.free_gpus for node in view.nodes} == {
            **{f"gpu-{n}": 0 for n in (1, 2, 3)},
            "gpu-4": 2,
        }
        control = stage.cluster.control
        control.add_user("looker", token="looker")
        control.allow("looker", [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}])
        unknown = await stage.runtime(token="looker").cluster_view(with_free=True)
        assert {node.free_gpus for node in unknown.nodes} == {None}
