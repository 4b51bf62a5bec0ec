"""What a decision is shown when things happen faster than decisions are taken."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest

from airflow_training.control.observations import Observations
from airflow_training.control.reports import ProgressReport, ReportedValue
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import RunRef
from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.port import InstanceRemoval, InstanceUpdate, Runtime, Snapshot
from airflow_training.supervise.watcher import Watcher
from tests.builders import seen
from tests.waiting import PATIENCE, until

RUN = RunRef(uid="u", job="j", namespace="n", controller="c", generation=0)
WORKER = seen("worker", 0, "running", uid="1")
FAILED = seen("worker", 0, "failed", uid="1", exit_code=9)
GONE = InstanceRemoval(key=InstanceKey("worker", 0), uid="1")


class Told:
    """A runtime that tells what it is given."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Any] = asyncio.Queue()
        self.watches = 0

    async def watch(
        self, run: RunRef
    ) -> AsyncIterator[Snapshot | InstanceUpdate | InstanceRemoval]:
        self.watches += 1
        while True:
            change = await self.queue.get()
            if isinstance(change, Exception):
                raise change
            yield change
            self.queue.task_done()


@contextlib.asynccontextmanager
async def watching() -> AsyncIterator[tuple[Watcher, Any, list[str]]]:
    runtime, wakes = Told(), []
    watcher = Watcher(cast(Runtime, runtime), RUN, on_change=lambda: wakes.append("woken"))
    task = asyncio.create_task(watcher.run())

    async def tell(*changes: Snapshot | InstanceUpdate | InstanceRemoval) -> None:
        for change in changes:
            runtime.queue.put_nowait(change)
        await asyncio.wait_for(runtime.queue.join(), PATIENCE)

    try:
        await tell(Snapshot(instances=(WORKER,)))
        yield watcher, tell, wakes
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def states(found: Observations | None) -> Sequence[str]:
    return [each.state for each in cast(Observations, found).instances]


async def test_an_end_is_seen_although_the_object_went_at_once():
    async with watching() as (watcher, tell, wakes):
        await tell(InstanceUpdate(instance=FAILED), GONE)
        wakes.clear()
        assert states(watcher.poll()) == ["failed"]
        assert wakes, "that it is gone asks for another look"
        assert states(watcher.poll()) == []


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param((GONE,), id="while-running"),
        pytest.param((InstanceUpdate(instance=FAILED), None, GONE), id="after-a-look"),
    ],
)
async def test_what_was_seen_or_never_ended_is_simply_gone(changes):
    async with watching() as (watcher, tell, _):
        watcher.poll()
        for change in changes:
            if change is None:
                assert states(watcher.poll()) == ["failed"]
            else:
                await tell(change)
        assert states(watcher.poll()) == []


async def test_a_new_snapshot_is_the_truth():
    async with watching() as (watcher, tell, _):
        await tell(InstanceUpdate(instance=FAILED), GONE, Snapshot(instances=()))
        assert states(watcher.poll()) == []


async def test_what_the_platform_took_away_failed_by_that():
    leaving = seen("worker", 0, "terminating", uid="1", reason="Preempted", disrupted=True)
    async with watching() as (watcher, tell, _):
        await tell(InstanceUpdate(instance=leaving))
        assert states(watcher.poll()) == ["terminating"]
        await tell(GONE)
        found = cast(Observations, watcher.poll()).instances[0]
        assert (found.state, found.reason, found.disrupted) == ("failed", "Preempted", True)
        assert states(watcher.poll()) == []


async def test_reports_that_come_before_any_is_taken_keep_all_their_points():
    async with watching() as (watcher, tell, _):
        for step in range(3):
            points = {"loss": [ReportedValue(step, float(step), 0.5)]}
            report = ProgressReport(step=step, points=points)
            await tell(InstanceUpdate(instance=dataclasses.replace(WORKER, progress=report)))
        taken = watcher.pop_progress()[InstanceKey("worker", 0)]
        assert taken.step == 2
        assert [each.step for each in taken.points["loss"]] == [0, 1, 2]
        assert watcher.pop_progress() == {}


async def test_where_only_writes_fail_the_runtime_still_answers():
    runtime, pauses = Told(), []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    watcher = Watcher(cast(Runtime, runtime), RUN, on_change=lambda: None, sleep=sleep)

    def reachable() -> bool:
        return cast(Observations, watcher.glance()).reachable

    def begun(times: int) -> bool:
        return runtime.watches == times

    task = asyncio.create_task(watcher.run())
    runtime.queue.put_nowait(Snapshot(instances=(WORKER,)))
    await asyncio.wait_for(runtime.queue.join(), PATIENCE)
    try:
        for failures in range(1, 9):
            for _ in range(2):  # one that is asked for already is not asked for again
                watcher.distrust(failures=failures)
            await until(functools.partial(begun, failures + 1))
            watcher.distrust(failures=failures)
            runtime.queue.put_nowait(Snapshot(instances=(WORKER,)))
            await asyncio.wait_for(runtime.queue.join(), PATIENCE)
            assert reachable()
        assert len(pauses) == 8
        assert pauses[-1] >= 5.0, "ever less often"
        runtime.queue.put_nowait(RuntimeUnavailable("away"))
        await until(lambda: not reachable())
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
