"""The first pass of a run by one process, all the rest by another: nothing twice, nothing lost.

TRAINING_SEED gives the same moments again.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from airflow_training.control import reasons
from airflow_training.runtimes.faults import Behaviour, Script
from airflow_training.state.store import Store
from tests.builders import after, job, role
from tests.supervise.first_pass import SEAMS, Beginner, local_runtime, supervisor
from tests.supervise.test_kill_run import check_marks
from tests.waiting import PATIENCE

SEED = int(os.environ.get("TRAINING_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
BRIEF = Script(default=Behaviour(run_seconds=0.05))
PASS_SECONDS = 0.4
"""About how long a first pass takes; kills spread over it, some come after it."""


# one process -------------------------------------------------------------------------------------
async def test_it_starts_what_may_start_and_gives_the_lease_up(stage):
    roles = role("master"), role("worker", 2, after("master", "Complete"))
    uid = stage.launch(job(*roles, runtime="memory"))
    assert await stage.supervisor(uid).first_pass()
    assert stage.live(uid) == {("master", 0)}
    assert stage.store.lease(uid) is None
    assert not stage.store.run(uid).queued
    stage.runtime.script = BRIEF
    stage.runtime.finish(uid, "master", 0)
    async with stage.driving(uid) as driven:
        assert await driven == "Succeeded"
    assert stage.reasons(uid).count(reasons.JOB_STARTED) == 1
    assert stage.store.ledger(uid).job.restarts == ()


CHAIN = (
    role("master"),
    role("worker", 2, after("master", "Running")),
    role("evaluator", 1, after("worker", "Running")),
)


async def test_roles_that_wait_only_for_others_to_be_up_start_with_them(stage):
    uid = stage.launch(job(*CHAIN, runtime="memory"))
    assert await stage.supervisor(uid).first_pass()
    assert stage.live(uid) == {("master", 0), ("worker", 0), ("worker", 1), ("evaluator", 0)}
    assert stage.store.lease(uid) is None


async def test_what_takes_its_time_to_start_is_not_waited_for(stage):
    stage.runtime.script = Script(default=Behaviour(start_seconds=3600))
    uid = stage.launch(job(*CHAIN, runtime="memory"))
    assert await stage.supervisor(uid).first_pass()
    assert stage.live(uid) == {("master", 0)}
    assert stage.store.lease(uid) is None


async def test_a_role_that_nobody_asked_for_waits(stage):
    uid = stage.launch(job(role("a"), role("b"), runtime="memory"), activate=False)
    stage.store.add_request(uid, "activate", role="a")
    assert await stage.supervisor(uid).first_pass()
    assert stage.live(uid) == {("a", 0)}


async def test_a_run_whose_turn_has_not_come_is_left_in_the_queue(stage):
    first, second = (
        stage.launch(job(role("worker"), runtime="memory"), run_id=name) for name in "ab"
    )
    assert await stage.supervisor(first, max_running_jobs=1).first_pass()
    assert not await stage.supervisor(second, max_running_jobs=1).first_pass()
    assert stage.live(second) == set()
    assert stage.store.run(second).queued
    assert stage.store.lease(second) is None


async def test_a_run_that_somebody_drives_is_left_to_them(stage):
    uid = stage.launch(job(role("worker"), runtime="memory"))
    lease = stage.store.acquire(uid, owner="elsewhere/b/1/1/x", seconds=60)
    assert not await stage.supervisor(uid).first_pass()
    assert stage.live(uid) == set()
    assert stage.store.lease(uid) == lease


async def test_a_run_that_is_over_is_not_begun_again(stage):
    stage.runtime.script = BRIEF
    uid = stage.launch(job(role("worker"), runtime="memory"))
    await stage.supervisor(uid).run()
    assert not await stage.supervisor(uid).first_pass()


# two processes, of which the first is killed -------------------------------------------------------
def go_on(home: Path) -> None:
    """Drive the run to its end as the reconciler does, and check that all is as if undisturbed."""
    store = Store(f"sqlite:///{home / 'store.db'}")
    holder = supervisor(home, store, local_runtime(home))
    assert asyncio.run(asyncio.wait_for(holder.run(), PATIENCE)) == "Succeeded"
    [record] = store.runs()
    ledger = store.ledger(record.uid)
    assert [(each.role, each.index) for each in ledger.job.restarts] == [("worker", 0)]
    assert store.lease(record.uid) is None
    told = [each.event.reason for each in store.events(record.uid)]
    assert (told.count(reasons.JOB_STARTED), told.count(reasons.INSTANCE_RESTARTED)) == (1, 1)
    assert sorted(
        (each.role, each.index, each.attempt) for each in store.usage.of_run(record.uid)
    ) == [
        ("master", 0, 0),
        ("worker", 0, 0),
        ("worker", 0, 1),
        ("worker", 1, 0),
    ]
    store.close()
    check_marks(home / "marks")


@pytest.mark.e2e
@pytest.mark.parametrize("seam", SEAMS)
def test_killed_after_a_call_the_reconciler_goes_on_as_if_nothing_had_happened(tmp_path, seam):
    home = tmp_path / "home"
    beginner = Beginner(home, seam=seam)
    assert beginner.end(), f"{seam} was not called"
    go_on(home)


@pytest.mark.e2e
@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(4, id="sample"),
        pytest.param(200, id="all", marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
    ],
)
def test_killed_at_any_moment_the_reconciler_goes_on_as_if_nothing_had_happened(tmp_path, kills):
    moments = random.Random(SEED)
    print(f"TRAINING_SEED={SEED}")
    killed = number = 0
    while killed < kills:
        number += 1
        home = tmp_path / f"run{number}"
        beginner = Beginner(home)
        beginner.wait_until_it_begins()
        killed += beginner.end(after_seconds=moments.uniform(0.0, PASS_SECONDS))
        go_on(home)
