"""A loop on a virtual clock: it jumps where nothing is left to do, and only there."""

from __future__ import annotations

import asyncio
import threading

import pytest

from airflow_training.runtimes.clock import VirtualClock
from tests.waiting import PATIENCE


def test_an_idle_loop_jumps_from_moment_to_moment():
    clock = VirtualClock(1_000_000_000.0)
    woken = []

    async def sleeper(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((seconds, clock.now()))

    async def work() -> str:
        await asyncio.gather(sleeper(86400.0), sleeper(0.1), sleeper(3600.0))
        return "done"

    assert clock.run(work()) == "done"
    assert woken == [(each, 1_000_000_000.0 + each) for each in (0.1, 3600.0, 86400.0)]


def test_time_stands_still_while_a_thread_works():
    clock = VirtualClock()
    go = threading.Event()

    def thread() -> float:
        assert go.wait(PATIENCE)
        return clock.now()

    async def work() -> tuple[float, float]:
        other = asyncio.ensure_future(clock.sleep(60.0))
        asking = asyncio.ensure_future(asyncio.to_thread(thread))
        asyncio.get_running_loop().call_later(0.05, go.set)  # idle until then, but for the thread
        seen = await asking
        await other
        return seen, clock.now()

    assert clock.run(work()) == (0.0, 60.0)


def test_a_wait_that_was_given_up_is_no_moment_to_jump_to():
    clock = VirtualClock()

    async def work() -> None:
        task = asyncio.ensure_future(clock.sleep(86400.0))
        never = asyncio.ensure_future(clock.sleep(float("inf")))
        await asyncio.sleep(0)
        task.cancel()
        await clock.sleep(1.0)
        await asyncio.sleep(0.01)
        never.cancel()

    clock.run(work())
    assert clock.now() == 1.0


def test_what_the_work_left_behind_is_cancelled_and_its_error_gets_through():
    left = []

    async def work() -> None:
        left.append(asyncio.ensure_future(asyncio.Event().wait()))
        await asyncio.sleep(0)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        VirtualClock().run(work())
    assert left[0].cancelled()
