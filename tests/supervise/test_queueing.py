"""Waiting for a machine that is shared: what others use now is not there for the next."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from airflow_training.admission.queueing import QueueTurn
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.runtimes.memory import MemoryRuntime
from airflow_training.runtimes.port import ClusterSnapshot, NodeView
from tests.builders import job, role

GIB = 2**30


class Machine(MemoryRuntime):
    """One machine without a scheduler of its own; some of it is in use."""

    capabilities = dataclasses.replace(MemoryRuntime.capabilities, shares_machine=True)

    def __init__(self, **free: Any) -> None:
        super().__init__()
        self.node = NodeView(name="here", cpus=8, memory_bytes=16 * GIB, gpus=2, **free)

    async def cluster_view(
        self, job: ResolvedJob | None = None, *, with_free: bool = False
    ) -> ClusterSnapshot:
        return ClusterSnapshot(nodes=[self.node])


def asking(**limits: str):
    """Return a job of two instances that ask for so much each."""
    container = {"name": "main", "resources": {"limits": limits}}
    return job(role(replicas=2, template={"spec": {"containers": [container]}}), runtime="memory")


@pytest.mark.parametrize(
    ("limits", "free", "starts"),
    [
        pytest.param({"cpu": "4"}, {}, True, id="nothing-in-use"),
        pytest.param({"cpu": "4"}, {"free_cpus": 8.0}, True, id="just-enough"),
        pytest.param({"cpu": "4"}, {"free_cpus": 7.5}, False, id="processors-in-use"),
        pytest.param({"memory": "4Gi"}, {"free_memory_bytes": 7 * GIB}, False, id="memory-in-use"),
        pytest.param({"nvidia.com/gpu": "1"}, {"free_gpus": 1}, False, id="gpus-in-use"),
        pytest.param({}, {"free_cpus": 0.0}, True, id="asks-for-nothing"),
    ],
)
async def test_a_run_starts_when_what_it_asks_for_is_free(stage, limits, free, starts):
    wanted = asking(**limits)
    uid = stage.launch(wanted)
    turn = QueueTurn(
        store=stage.store, runtime=Machine(**free), job=wanted, uid=uid, max_running_jobs=0
    )
    assert await turn.try_start() is starts
