"""Waiting for a machine that is shared: what others use now is not there for the next."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from airflow_training.admission.queueing import QueueTurn, standing_text
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.runtimes.memory import MemoryRuntime
from airflow_training.runtimes.port import ClusterSnapshot, NodeView
from airflow_training.state.queue import QueueStanding
from airflow_training.supervise.abandoned_places import take_turn
from airflow_training.supervise.owners import forget_owner, new_owner
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
    assert ("of it is free" in await turn.before()) is not starts


async def test_what_is_missing_and_who_keeps_it_is_told(stage):
    wanted = asking(**{"cpu": "4", "nvidia.com/gpu": "1"})
    uid = stage.launch(wanted)
    machine = Machine(free_cpus=3.0, free_gpus=1)
    turn = QueueTurn(store=stage.store, runtime=machine, job=wanted, uid=uid, max_running_jobs=0)
    assert (await turn.before()).startswith(
        "cpu: asks for 8, 3 of it is free; nvidia.com/gpu: asks for 2, 1 of it"
    )


def test_a_run_that_has_ended_and_keeps_its_place_is_named():
    standing = QueueStanding(
        running=0, running_ids=(), waiting=0, waiting_ids=(), kept=1, kept_ids=("keep",)
    )
    told = standing_text(standing, max_running_jobs=0)
    assert told == "1 run ended, of which an instance stays for a look inside (keep)"


@pytest.mark.parametrize(
    ("driver_lives", "starts"),
    [pytest.param(True, False, id="driven"), pytest.param(False, True, id="driver-died")],
)
async def test_a_run_of_which_nothing_lives_holds_a_place_only_while_it_is_driven(
    stage, driver_lives, starts
):
    wanted = asking()
    first, second = (stage.launch(wanted, run_id=name) for name in "ab")
    turns = [
        QueueTurn(store=stage.store, runtime=Machine(), job=wanted, uid=uid, max_running_jobs=1)
        for uid in (first, second)
    ]
    assert await take_turn(turns[0])
    owner = new_owner()
    assert stage.store.acquire(first, owner=owner) is not None
    if not driver_lives:
        forget_owner(owner)
    assert await take_turn(turns[1]) is starts
    assert stage.store.run(first).queued is starts
    if starts:
        assert "PlaceGivenBack" in [each.event.reason for each in stage.store.events(first)]
    else:
        assert await turns[1].before() == "1 run of 1 (max_running_jobs) started (a)"
    forget_owner(owner)
