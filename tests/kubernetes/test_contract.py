"""The Kubernetes runtime keeps the contract of the port, also while everything around it fails.

Containers are processes here, so that a hold is a real one; under faults they are scripted, as it
is the requests and the watches that matter there.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from airflow_training.documents.resolved import ResolvedRole, RunRef
from airflow_training.runtimes.kubernetes.logs import LogArchive
from airflow_training.runtimes.kubernetes.pods import PodOptions
from airflow_training.runtimes.kubernetes.runtime import KubernetesRuntime
from tests.contracts.runtime import JOB, Harness, Kind, RuntimeContract
from tests.kubernetes.conftest import connect_to
from tests.kubernetes.emulator import Cluster, Control

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
            "image": "busybox",
            "resolved": ResolvedRole(
                name=kind, replicas=2, template={"spec": {"containers": [container]}}
            ),
            "ports": {"main": 1234, "other": 1235},
            **changes,
        }
        return super().spec(kind, index, attempt=attempt, **values)


def runtime_on(cluster: Cluster, folder: Path) -> KubernetesRuntime:
    return KubernetesRuntime(
        connect=connect_to(cluster),
        archive=LogArchive(str(folder / "logs"), tail_bytes=0),
        options=PodOptions(agent_image="python:3.12-alpine"),
    )


_numbers = itertools.count()


async def harness_on(cluster: Cluster, folder: Path) -> Harness:
    # Names carry the first five characters: numbered, no two runs of a cluster can share one.
    uid = f"{next(_numbers):05d}{uuid4().hex[:15]}"
    run = RunRef(uid=uid, job="contract", namespace="default", controller="tests")
    harness = PodHarness(runtime=runtime_on(cluster, folder), run=run, commands=COMMANDS)
    await harness.runtime.prepare(run, JOB)
    return harness


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(kubelet="processes") as cluster:
        yield cluster


class TestKubernetes(RuntimeContract):
    @pytest.fixture
    async def harness(self, cluster: Cluster, tmp_path: Path) -> Harness:
        return await harness_on(cluster, tmp_path)


# under faults -------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def scripted() -> Iterator[Cluster]:
    with Cluster(bookmark_seconds=0.2) as cluster:
        yield cluster


def cut(control: Control) -> None:
    control.cut_watches()


def forget(control: Control) -> None:
    control.compact()
    control.cut_watches()


def conflict(control: Control) -> None:
    control.fail_requests(code=409, verb="update")
    control.fail_requests(code=409, verb="create")


def too_many(control: Control) -> None:
    control.fail_requests(code=429, retry_after=1, path="/pods")


def broken(control: Control) -> None:
    control.fail_requests(code=500)


def slow(control: Control) -> None:
    control.hang_requests(seconds=0.15)


def unsent(control: Control) -> None:
    control.reset_requests(after_effect=False)


def unheard(control: Control) -> None:
    control.reset_requests(after_effect=True)


def twice(control: Control) -> None:
    control.duplicate_events()


def late(control: Control) -> None:
    # every other pod's events come late: they are overtaken
    control.delay_events(pattern="-[02468]$", seconds=0.3)


class Either:
    """Equal to each of some values."""

    def __init__(self, *values: str) -> None:
        self._values = values

    def __eq__(self, other: object) -> bool:
        return other in self._values

    def __hash__(self) -> int:
        return hash(self._values)


@contextlib.asynccontextmanager
async def trouble(control: Control, once: Callable[[Control], None]) -> AsyncIterator[None]:
    """Cause the same fault again and again while the block lasts."""

    async def again_and_again() -> None:
        while True:
            control.clear_faults()
            once(control)
            # long enough that who tries again, or comes back when told to, meets not the next one
            await asyncio.sleep(5.0 if once is too_many else 1.0)

    task = asyncio.create_task(again_and_again())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        control.clear_faults()


@pytest.mark.parametrize(
    "fault",
    [cut, forget, conflict, too_many, broken, slow, unsent, unheard, twice, late],
    ids=lambda fault: fault.__name__,
)
class TestKubernetesUnderFaults(RuntimeContract):
    @pytest.fixture
    async def harness(
        self,
        scripted: Cluster,
        tmp_path: Path,
        fault: Callable[[Control], None],
        request: pytest.FixtureRequest,
    ) -> AsyncIterator[Harness]:
        if "held" in request.node.name:
            pytest.skip("a hold is a process, and here are none")
        if "told_to_finish" in request.node.name:
            pytest.skip("an agent is a process, and here are none")
        async with trouble(scripted.control, fault):
            harness = await harness_on(scripted, tmp_path)
            if fault is unheard:  # asked again, it finds what the lost answer was about
                harness.made = Either("created", "adopted")
            yield harness
