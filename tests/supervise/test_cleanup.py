"""Cleanup looks at what is alive; what the store says about it is no proof."""

from __future__ import annotations

import asyncio

import pytest

from airflow_training.control.attempts import AttemptId
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import RunRef
from airflow_training.errors import StillAlive
from airflow_training.runtimes.faults import Behaviour, Script
from airflow_training.runtimes.memory import MemoryRuntime
from airflow_training.runtimes.port import InstanceRef, InstanceSpec
from airflow_training.supervise.cleanup import clean_up
from tests.builders import job, role
from tests.waiting import PATIENCE, until

FOREVER = Script(default=Behaviour(run_seconds=None))


async def clean(stage, uid: str, *, runtime: MemoryRuntime | None = None) -> None:
    await clean_up(uid, store=stage.store, runtime=runtime or stage.runtime, timeout_seconds=20)


async def test_cleanup_ends_a_run_that_nobody_drives_any_more(stage):
    stage.runtime.script = FOREVER
    uid = stage.launch(job(role("worker", 2), runtime="memory"))
    async with stage.driving(uid):
        await until(lambda: len(stage.live(uid)) == 2)
    await clean(stage, uid)
    assert not stage.live(uid)
    assert (stage.store.ledger(uid).job.state, stage.store.lease(uid)) == ("Stopped", None)


async def test_cleanup_sees_an_end_through_that_was_begun(stage):
    """The holder died between the decision that the job is over and the last instance's end."""
    slow = Behaviour(run_seconds=None, stop_seconds=3600)
    stage.runtime.script = Script(default=slow)
    uid = stage.launch(job(runtime="memory", grace_seconds=3600))
    async with stage.driving(uid):
        await until(lambda: stage.live(uid))
        stage.store.add_request(uid, "stop")
        await until(lambda: stage.store.ledger(uid).job.state == "Stopped")
    assert not stage.store.ledger(uid).job.drained
    cleaning = asyncio.ensure_future(clean(stage, uid))
    await until(lambda: stage.store.lease(uid))
    stage.runtime.vanish(uid, "worker", 0)
    await cleaning
    assert stage.store.ledger(uid).job.drained


async def test_cleanup_ends_what_lives_although_the_run_is_over(stage):
    """Somebody's create was on its way while the run ended; nobody watches it any more."""
    uid = stage.launch(job(runtime="memory"))
    stage.runtime.script = Script(default=Behaviour(run_seconds=0.01))
    await asyncio.wait_for(stage.supervisor(uid).run(), PATIENCE)
    assert stage.store.ledger(uid).job.drained
    stage.runtime.script = FOREVER
    run = RunRef(uid=uid, job="digits", namespace="default", controller="here", generation=9)
    late = InstanceRef(run=run, key=InstanceKey("worker", 0), attempt_id=AttemptId(attempt=1))
    await stage.runtime.create([InstanceSpec(ref=late, name="late", command=("true",))])
    assert stage.live(uid)
    await clean(stage, uid)
    assert not stage.live(uid)
    await clean(stage, uid)


class Unreachable(MemoryRuntime):
    """Has an instance on a node that nobody can see."""

    async def remove(self, run):
        raise StillAlive("worker 0 lives on n7")


async def test_cleanup_names_what_it_cannot_end_and_lets_others_try(stage):
    stage.runtime.script = Script(default=Behaviour(run_seconds=0.01))
    uid = stage.launch(job(runtime="memory"))
    await asyncio.wait_for(stage.supervisor(uid).run(), PATIENCE)
    with pytest.raises(StillAlive, match="n7"):
        await clean(stage, uid, runtime=Unreachable())
    assert stage.store.lease(uid) is None


async def test_a_run_that_the_store_does_not_know_is_nobodys(stage):
    await clean(stage, "never-heard-of")
