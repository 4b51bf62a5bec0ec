"""How the follower looks at the cluster, and what it makes of a change."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from airflow_training.admission.plan.follow import adaptive_plan
from airflow_training.admission.plan.history import NO_HISTORY
from airflow_training.control.model import ActivePhase, InstanceEntry, JobEntry, Ledger, RoleEntry
from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import RunRef
from airflow_training.runtimes.port import NodeView
from airflow_training.supervise.followers.follower import FollowerChange
from airflow_training.supervise.followers.replanning import Replanner, RunView
from tests.supervise.replanning.lab import FAR, Lab, Machines, nodes


class Eye:
    """A replanner over machines that a test takes away and gives back, one look at a time."""

    def __init__(self, lab: Lab) -> None:
        self.machines = Machines(3)
        job = lab.job(
            cluster="nodes", globalBatch=480, spec={"resources": {"limits": {"nvidia.com/gpu": 1}}}
        )
        assert job.role("worker").replicas == 3
        team = {
            InstanceKey("worker", i): InstanceEntry(
                key=InstanceKey("worker", i),
                node=f"n{i}",
                phase=ActivePhase(),
                state="running",
            )
            for i in range(3)
        }
        roles = {"worker": RoleEntry(role="worker", replicas=3, state="Running")}
        ledger = Ledger(job=JobEntry(state="Running", started_at=1.0), roles=roles, instances=team)
        self.state: RunView | None = RunView(
            job=job, ledger=ledger, progress={}, generation=1, now=time.time()
        )
        plan = adaptive_plan(job)
        assert plan is not None
        self.answered = 0
        self.replanner = Replanner(
            runtime=self.machines,
            run=RunRef(uid="run", job="job", namespace="default", controller="site"),
            plan=plan,
            history=NO_HISTORY,
            state=lambda: self.state,
            on_answer=self._count,
            every_seconds=60.0,
        )

    def _count(self) -> None:
        self.answered += 1

    async def poll(self, times: int = 1) -> None:
        for _ in range(times):
            await self.replanner.poll()

    def paused(self) -> RunView:
        assert self.state is not None
        job = replace(self.state.ledger.job, paused_at=2.0)
        return replace(self.state, ledger=replace(self.state.ledger, job=job))

    def waits(self, index: int, *, seconds: float) -> None:
        """Let an instance wait for a place since so long ago."""
        assert self.state is not None
        waiting = InstanceEntry(
            key=InstanceKey("worker", index),
            phase=ActivePhase(desired_since=time.time() - seconds),
        )
        team = {**self.state.ledger.instances, InstanceKey("worker", index): waiting}
        self.state = replace(self.state, ledger=replace(self.state.ledger, instances=team))

    def goes_on(self, change: FollowerChange) -> None:
        """Let the run be what came of a change, with its instances on the first nodes."""
        assert self.state is not None
        assert change.job is not None
        team = {key: entry for key, entry in self.state.ledger.instances.items() if key[1] < 2}
        size = change.job.role("worker").replicas
        roles = {"worker": RoleEntry(role="worker", replicas=size, state="Running")}
        self.state = RunView(
            job=change.job,
            ledger=replace(self.state.ledger, instances=team, roles=roles),
            progress={InstanceKey("worker", 0): ProgressReport(step=1, total_steps=FAR)},
            generation=1,
            now=time.time(),
        )

    def change(self) -> FollowerChange | None:
        return self.replanner.change(now=1.0)

    async def judged(self, machines: list[NodeView]) -> FollowerChange | None:
        """Return what comes of these nodes, then look once more, so that they are the usual ones."""
        self.machines.nodes = machines
        await self.poll(2)
        change = self.change()
        await self.poll()
        return change


@pytest.fixture
def eye(lab: Lab) -> Eye:
    return Eye(lab)


async def test_a_node_that_flaps_causes_no_search(eye):
    await eye.poll()
    for _ in range(3):
        eye.machines.nodes = nodes(2)
        await eye.poll()
        eye.machines.nodes = nodes(3)
        await eye.poll()
    assert eye.answered == 0


async def test_a_change_is_judged_once_at_the_second_look(eye):
    await eye.poll()
    eye.machines.nodes = nodes(2)
    await eye.poll(1)
    assert eye.answered == 0
    await eye.poll(5)
    assert eye.answered == 1
    change = eye.change()
    assert change is not None
    assert change.job.role("worker").replicas == 2
    assert change.ledger.roles["worker"].replicas == 2
    assert change.ledger.job.job_attempt == 1
    assert eye.change() is None
    await eye.poll(5)
    assert eye.answered == 1


async def test_while_it_cannot_move_nobody_searches(eye):
    await eye.poll()
    running, eye.state = eye.state, eye.paused()
    eye.machines.nodes = nodes(2)
    await eye.poll(5)
    assert eye.answered == 0
    eye.state = running
    await eye.poll(2)
    assert eye.answered == 1


async def test_a_run_that_was_paused_during_the_search_is_judged_again(eye):
    await eye.poll()
    eye.machines.nodes = nodes(2)
    await eye.poll(2)
    running, eye.state = eye.state, eye.paused()
    assert eye.change() is None
    eye.state = running
    await eye.poll(2)
    assert eye.answered == 2
    assert eye.change().job is not None


async def test_a_failed_node_is_replaced_where_a_spare_is_there(eye):
    """Four machines, three in use: the restart rules bring the lost one back, the split stays."""
    await eye.judged(nodes(4))
    change = await eye.judged(nodes(4)[1:])
    assert change.job is None
    [event] = change.events
    assert event.reason == "ClusterChanged"
    assert event.data["action"] == "replace"
    assert "spare" in event.message


async def test_a_spare_that_is_lost_is_no_failure(eye):
    await eye.judged(nodes(4))
    change = await eye.judged(nodes(3))
    assert [event.data["action"] for event in change.events] == ["stay"]


def left_by_others(count: int, *free: int | None) -> list[NodeView]:
    return [replace(node, free_gpus=gpus) for node, gpus in zip(nodes(count), free, strict=True)]


async def test_a_job_that_waits_for_a_place_takes_what_others_leave_and_grows_when_they_go(eye):
    await eye.poll()
    eye.waits(2, seconds=400.0)
    shrunk = await eye.judged(left_by_others(3, 0, 0, 0))
    assert shrunk.job.role("worker").replicas == 2
    assert shrunk.job.plan.capacity == "free"
    [event, *_] = shrunk.events
    assert event.message.startswith("counted without what others hold, A100-SXM4-80GB lost 1 node")

    eye.goes_on(shrunk)
    assert await eye.judged(left_by_others(3, 0, 0, 0)) is None
    grown = await eye.judged(left_by_others(3, 0, 0, 1))
    assert grown.job.role("worker").replicas == 3


@pytest.mark.parametrize(
    "free",
    [
        pytest.param((0, 0, 0), id="it-may-come-soon"),
        pytest.param((None, None, None), id="nobody-knows"),
    ],
)
async def test_a_job_that_may_still_get_its_place_stays(eye, free):
    await eye.judged(nodes(3))
    eye.waits(2, seconds=100.0 if free[0] == 0 else 400.0)
    assert await eye.judged(left_by_others(3, *free)) is None
