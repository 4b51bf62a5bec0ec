"""Kueue gets its quota back however a run ends, and lets its pods go."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest

from airflow_training.runtimes.kubernetes.api import Api
from airflow_training.runtimes.kubernetes.kinds import PODS
from tests.kubernetes.conftest import Stage, connect_to, resolved
from tests.kubernetes.emulator import Cluster
from tests.waiting import PATIENCE, until

FINALIZER = "kueue.x-k8s.io/managed"
NO_REPLACEMENT = ("kueue.x-k8s.io/retriable-in-group", "false")
OVER = ("Succeeded", "Failed")


@pytest.fixture
def scripted() -> Iterator[Cluster]:
    with Cluster(installed=["kueue"]) as cluster:
        yield cluster


class Group:
    """Does as Kueue does: its pods stay until all have ended and one says that no other will come."""

    def __init__(self, cluster: Cluster) -> None:
        self.finished = False
        self._cluster = cluster

    def is_over(self, pods: Sequence[dict[str, Any]]) -> bool:
        told = any(
            NO_REPLACEMENT in (pod["metadata"].get("annotations") or {}).items() for pod in pods
        )
        return told and all(pod["status"].get("phase") in OVER for pod in pods)

    @property
    def places(self) -> int:
        """Return how many places it holds: it takes back only those of pods that have succeeded."""
        pods = self._cluster.control.list("pods", namespace="default")
        return 0 if self.finished else sum(pod["status"].get("phase") != OVER[0] for pod in pods)

    async def reconcile(self) -> None:
        api = Api(connect_to(self._cluster), "", budget_seconds=5.0)
        while True:
            pods, _ = await api.list(PODS, "default")
            if pods and self.is_over(pods):
                self.finished = True
                for pod in pods:
                    change = {"metadata": {"finalizers": None}}
                    await api.patch(PODS, "default", pod["metadata"]["name"], change)
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def watched(stage: Stage) -> AsyncIterator[Group]:
    group = Group(stage.cluster)
    task = asyncio.ensure_future(group.reconcile())
    try:
        yield group
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def team(pod: Any = None, **spec: Any) -> Any:
    template = {"metadata": {"finalizers": [FINALIZER]}, "spec": pod or {}}
    role = {"name": "worker", "replicas": 2, "template": template}
    return resolved(role, schedulingPolicy={"gang": "kueue", "queue": "research"}, **spec)


async def test_a_run_that_is_stopped_gives_its_quota_back(stage: Stage):
    async with watched(stage) as group:
        uid = stage.launch(team())
        async with stage.driving(uid) as task:
            await stage.until_running(uid)
            stage.store.add_request(uid, "stop", reason="enough")
            assert await asyncio.wait_for(task, PATIENCE) == "Stopped"
        assert group.finished
    assert not stage.pods()


async def test_a_run_that_fails_and_keeps_no_pods_gives_its_quota_back(stage: Stage):
    async with watched(stage) as group:
        uid = stage.launch(team(cleanPodPolicy="All", restart={"maxRestarts": 0}))
        async with stage.driving(uid) as task:
            await stage.until_running(uid)
            stage.cluster.control.finish(stage.name("worker-1"), exit_code=3)
            assert await asyncio.wait_for(task, PATIENCE) == "Failed"
        assert group.finished
    assert not stage.pods()


async def test_pods_that_never_got_a_place_go_with_their_run(stage: Stage):
    """Kueue takes them for active as long as they are there."""
    for node in [each["metadata"]["name"] for each in stage.cluster.control.list("nodes")]:
        stage.cluster.control.cordon(node)
    async with watched(stage) as group:
        uid = stage.launch(team())
        async with stage.driving(uid) as task:
            await until(lambda: len(stage.pods()) == 2)
            stage.store.add_request(uid, "stop", reason="enough")
            assert await asyncio.wait_for(task, PATIENCE) == "Stopped"
        assert not group.finished
    assert not stage.pods()


MAIN, PROXY = {"name": "main", "image": "busybox"}, {"name": "proxy", "image": "busybox"}


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param({"containers": [MAIN, PROXY]}, id="a-container-beside-it"),
        pytest.param({"initContainers": [{**PROXY, "restartPolicy": "Always"}]}, id="a-sidecar"),
    ],
)
async def test_an_ended_instance_gives_its_quota_back_though_a_helper_went_on(
    stage: Stage, pod: dict[str, Any]
):
    stage.cluster.control.behave("worker-0", stop_code=0)  # as a proxy does that is told to end
    async with watched(stage) as group:
        uid = stage.launch(team(pod))
        async with stage.driving(uid) as task:
            await stage.until_running(uid)
            assert group.places == 2
            stage.cluster.control.finish(stage.name("worker-0"), container="main")
            await until(lambda: group.places == 1)
            await until(lambda: stage.entry(uid).state == "succeeded")
            assert stage.entry(uid, index=1).state == "running"
            stage.cluster.control.finish(stage.name("worker-1"), container="main")
            assert await asyncio.wait_for(task, PATIENCE) == "Succeeded"
        await until(lambda: group.finished)
    assert stage.store.ledger(uid).job.restarts == ()
