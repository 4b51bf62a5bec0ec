"""A runtime that does not answer any more: who is told to stop leaves, and says what it leaves behind."""

from __future__ import annotations

import asyncio

import pytest

from airflow_training.errors import StillAlive, StopUnconfirmed
from airflow_training.runtimes.faults import Behaviour, Script
from airflow_training.supervise.cleanup import drive_to_end
from tests.builders import job, role
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.e2e

FOREVER = Script(default=Behaviour(run_seconds=None))
AWAY = 1e9


async def test_who_is_told_to_stop_leaves_a_runtime_that_does_not_answer(stage):
    stage.runtime.script = FOREVER
    uid = stage.launch(job(role("worker", 2), runtime="memory"))
    supervisor = stage.supervisor(uid)
    driving = asyncio.ensure_future(supervisor.run())
    await until(lambda: len(stage.live(uid)) == 2)
    stage.runtime.be_unreachable(AWAY)
    await until(lambda: stage.store.ledger(uid).job.condition == "RuntimeUnknown")
    supervisor.interrupt(by="SIGTERM")
    with pytest.raises(StopUnconfirmed) as raised:
        await asyncio.wait_for(driving, PATIENCE)
    assert list(raised.value.instances) == ["worker-0", "worker-1"]
    assert raised.value.recorded
    assert stage.store.lease(uid) is None, "the next one need not wait for it"
    assert not stage.store.ledger(uid).job.is_over, "what lives is not told as ended"

    stage.runtime.be_unreachable(0)
    async with stage.driving(uid) as next_one:
        assert await asyncio.wait_for(next_one, PATIENCE) == "Stopped", "nobody asks again"
    assert not stage.live(uid)


async def test_who_takes_over_and_never_saw_the_runtime_leaves_too(stage):
    stage.runtime.script = FOREVER
    uid = stage.launch(job(role("worker", 2), runtime="memory"))
    async with stage.driving(uid):
        await until(lambda: stage.store.ledger(uid).job.state == "Running")
    stage.runtime.be_unreachable(AWAY)
    supervisor = stage.supervisor(uid)
    driving = asyncio.ensure_future(supervisor.run())
    await until(lambda: stage.store.lease(uid))
    supervisor.interrupt(by="SIGINT")
    with pytest.raises(StopUnconfirmed) as raised:
        await asyncio.wait_for(driving, PATIENCE)
    assert list(raised.value.instances) == ["worker-0", "worker-1"]


async def test_a_runtime_that_is_back_in_time_ends_what_is_told_to_stop(stage):
    stage.runtime.script = FOREVER
    uid = stage.launch(job(role("worker", 2), runtime="memory"))
    supervisor = stage.supervisor(uid)
    driving = asyncio.ensure_future(supervisor.run())
    await until(lambda: len(stage.live(uid)) == 2)
    stage.runtime.be_unreachable(1)
    supervisor.interrupt(by="SIGTERM")
    assert await asyncio.wait_for(driving, PATIENCE) == "Stopped"
    assert not stage.live(uid)


@pytest.mark.parametrize("driven", [True, False], ids=["driven", "driven-by-nobody"])
async def test_a_kill_answers_that_the_runtime_does_not(stage, driven):
    stage.runtime.script = FOREVER
    uid = stage.launch(job(role("worker", 2), runtime="memory"))
    async with stage.driving(uid) as other:
        await until(lambda: stage.store.ledger(uid).job.state == "Running")
        stage.runtime.be_unreachable(AWAY)
        await until(lambda: stage.store.ledger(uid).job.condition == "RuntimeUnknown")
        if not driven:
            other.cancel()
            await asyncio.gather(other, return_exceptions=True)
        stage.store.add_request(uid, "stop", by="somebody")
        with pytest.raises(StillAlive, match=r"runtime does not answer.*is recorded"):
            await drive_to_end(uid, store=stage.store, runtime=stage.runtime, timeout_seconds=3)
        if driven:
            stage.runtime.be_unreachable(0)
            assert await asyncio.wait_for(other, PATIENCE) == "Stopped"
