"""A kubelet tells how a container ended before it tells that it was the one who ended it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from airflow_training.control.observations import Observation
from airflow_training.runtimes.kubernetes import observing
from airflow_training.runtimes.kubernetes.logs import LogArchive
from airflow_training.runtimes.kubernetes.pods import PodOptions
from airflow_training.runtimes.kubernetes.runtime import KubernetesRuntime
from airflow_training.runtimes.port import InstanceUpdate, Snapshot
from tests.kubernetes import samples
from tests.kubernetes.conftest import Stage, connect_to, resolved
from tests.kubernetes.emulator import Cluster, Control
from tests.waiting import PATIENCE

RUN = dataclasses.replace(samples.RUN, namespace="default")
POD = f"{RUN.prefix}-worker-0"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        cluster.control.delay_phases(seconds=0.3)
        yield cluster


@pytest.fixture
def runtime(cluster: Cluster, tmp_path: Path) -> KubernetesRuntime:
    archive = LogArchive(str(tmp_path), tail_bytes=0)
    return KubernetesRuntime(connect=connect_to(cluster), archive=archive, options=PodOptions())


@pytest.mark.parametrize(
    ("happens", "state", "reason", "disrupted"),
    [
        pytest.param(
            lambda control: control.evict_by_node(POD), "failed", "Evicted", True, id="evicted"
        ),
        pytest.param(
            lambda control: control.finish(POD), "succeeded", "Completed", False, id="done"
        ),
        pytest.param(
            lambda control: control.finish(POD, exit_code=3), "failed", "Error", False, id="failed"
        ),
    ],
)
async def test_an_end_is_judged_when_all_is_said(
    cluster: Cluster,
    runtime: KubernetesRuntime,
    happens: Callable[[Control], None],
    state: str,
    reason: str,
    disrupted: bool,
):
    job = samples.a_job(samples.a_role(main=samples.a_container(command=["sleep", "inf"])))
    await runtime.prepare(RUN, job)
    spec = samples.an_instance(job)
    await runtime.create([dataclasses.replace(spec, ref=dataclasses.replace(spec.ref, run=RUN))])
    ends: list[str] = []
    with anyio.fail_after(PATIENCE):
        async with contextlib.aclosing(runtime.watch(RUN)) as changes:
            async for seen in observations(changes):
                if seen.state == "running" and seen.reason == "Started" and not ends:
                    await asyncio.to_thread(happens, cluster.control)
                if seen.reason == "Ending":
                    ends.append(cluster.control.get("pods", POD)["status"]["phase"])
                    assert not seen.port_open
                if seen.state in ("succeeded", "failed"):
                    break
    assert ends == ["Running"]
    assert (seen.state, seen.reason, seen.disrupted) == (state, reason, disrupted)


async def test_a_pod_whose_last_phase_is_late_stays_all_the_same(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(observing, "SETTLE_SECONDS", 0.0)
    stage.cluster.control.delay_phases(seconds=1.0)
    uid = stage.launch(resolved({"name": "worker", "replicas": 2, "command": ["true"]}))
    async with stage.driving(uid) as task:
        assert await asyncio.wait_for(task, PATIENCE) == "Succeeded"
    kept = [pod["metadata"]["labels"].get("airflow-training/kept") for pod in stage.pods().values()]
    assert kept == ["true", "true"]


async def observations(changes: AsyncIterator[Any]) -> AsyncIterator[Observation]:
    async for change in changes:
        if isinstance(change, InstanceUpdate):
            yield change.instance
        elif isinstance(change, Snapshot):
            for each in change.instances:
                yield each
