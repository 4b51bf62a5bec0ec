"""Somebody sets the clock of the machine while a run is driven: nothing waits for it, nothing jumps."""

from __future__ import annotations

import asyncio
import time

import pytest

from airflow_training.control.model import Ledger
from airflow_training.documents.instances import InstanceKey
from airflow_training.runtimes.clock import WallClock
from airflow_training.runtimes.faults import Behaviour, Script
from airflow_training.supervise.run_clock import RunClock, newest_time
from tests.builders import entry, job, role, seen
from tests.waiting import PATIENCE, until

HOUR = 3600.0


class Wall:
    """The time of day, which can be set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.off = 0.0
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + self.off)


@pytest.fixture
def wall(monkeypatch):
    return Wall(monkeypatch)


@pytest.mark.parametrize("off", [-HOUR, HOUR])
def test_time_goes_on_as_if_nobody_had_set_the_clock(wall, off):
    clock = RunClock(WallClock())
    before = clock.now()
    wall.off = off
    assert 0 <= clock.now() - before < 60


def test_a_holder_goes_on_where_the_one_before_was(wall):
    ledger = Ledger(
        instances={InstanceKey("worker", 0): entry("worker", 0, last_transition_at=time.time())}
    )
    wall.off = -HOUR
    clock = RunClock(WallClock())
    clock.not_before(newest_time(ledger))
    assert clock.now() >= newest_time(ledger)


def test_a_state_that_begins_in_the_future_is_waited_for_from_its_first_sight(wall):
    clock = RunClock(WallClock())
    late = seen("worker", 0, "terminating", state_since=clock.now() + HOUR)
    (first,) = clock.by_this_clock([late])
    assert first.state_since <= clock.now()
    assert clock.by_this_clock([late]) == (first,)
    past = seen("worker", 0, "terminating", state_since=clock.now() - 5)
    assert clock.by_this_clock([past]) == (past,)


@pytest.mark.e2e
@pytest.mark.parametrize("off", [-HOUR, HOUR])
async def test_a_restart_is_not_held_by_a_clock_that_is_set(stage, wall, off):
    stage.runtime.script = Script(default=Behaviour(run_seconds=0.3, exit_code=1))
    worker = role("worker", 1, backoff_limit=2)
    uid = stage.launch(job(worker, max_restarts=9, backoff_initial_seconds=0.5, runtime="memory"))
    async with stage.driving(uid) as driving:
        await until(lambda: stage.live(uid))
        wall.off = off
        assert await asyncio.wait_for(driving, PATIENCE) == "Failed"
    assert stage.store.ledger(uid).instances["worker", 0].attempt == 2
