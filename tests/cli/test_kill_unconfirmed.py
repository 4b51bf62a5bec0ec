"""`kill` of a run that was told to stop while its runtime did not answer: it ends what is left."""

from __future__ import annotations

import asyncio

import pytest

from airflow_training.admission.launch import launch
from airflow_training.cli.context import open_store
from airflow_training.documents.resolved import RunKey
from airflow_training.errors import StopUnconfirmed
from airflow_training.runtimes.faults import Behaviour, Script
from airflow_training.runtimes.memory import MemoryRuntime
from airflow_training.supervise.loop import Supervisor
from airflow_training.supervise.owners import new_owner
from tests.builders import job, role
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.e2e


async def stop_without_runtime(uid: str) -> None:
    runtime = MemoryRuntime()
    runtime.script = Script(default=Behaviour(run_seconds=None))
    store = open_store()
    supervisor = Supervisor(store=store, runtime=runtime, run_uid=uid, owner=new_owner())
    driving = asyncio.ensure_future(supervisor.run())
    await until(lambda: store.ledger(uid).job.state == "Running")
    runtime.be_unreachable(1e9)
    supervisor.interrupt(by="SIGTERM")
    with pytest.raises(StopUnconfirmed):
        await asyncio.wait_for(driving, PATIENCE)


def test_a_stop_that_was_not_confirmed_is_no_end_for_kill(typed):
    record = launch(
        job(role("worker", 2), runtime="memory"),
        key=RunKey(source="cli", run_id="left"),
        store=open_store(),
        controller="here",
        activate_all=True,
    )
    asyncio.run(stop_without_runtime(record.uid))
    answer = typed("kill", "left")
    assert (answer.code, "is recorded" in answer.stdout) == (0, True), answer.stderr
