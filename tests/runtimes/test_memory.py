"""The memory runtime follows its script, on virtual time."""

from __future__ import annotations

import asyncio
import selectors
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_training.control.attempts import AttemptId
from airflow_training.control.observations import Observation
from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob, ResolvedRole, RunRef
from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.clock import VirtualClock
from airflow_training.runtimes.faults import parse_script
from airflow_training.runtimes.memory import MemoryRuntime
from airflow_training.runtimes.port import (
    Cursor,
    InstanceRef,
    InstanceRemoval,
    InstanceSpec,
    InstanceUpdate,
    ReleaseAnswer,
)
from tests.contracts.runtime import Seen, watching

RUN = RunRef(uid="1" * 20, job="job", namespace="default", controller="tests")
JOB = ResolvedJob(
    name="job", roles=tuple(ResolvedRole(name=n, replicas=2, ports={"p": 1}) for n in ("a", "b"))
)


@dataclass
class World:
    """A prepared run whose clock stands at 1000."""

    runtime: MemoryRuntime
    clock: VirtualClock

    async def create(self, role: str = "a", index: int = 0, **changes: Any) -> None:
        attempt = changes.pop("attempt", 0)
        ref = InstanceRef(
            run=RUN, key=InstanceKey(role, index), attempt_id=AttemptId(attempt=attempt)
        )
        spec = InstanceSpec(ref=ref, name=f"{role}-{index}", **changes)
        assert (await self.runtime.create([spec]))[0].result == "created"

    async def at(self, seconds: float, seen: Seen) -> dict[tuple[str, int], Observation]:
        """Return what a watcher knows `seconds` after the run was prepared."""
        end = 1000 + seconds
        while True:
            for _ in range(5):  # what is due lets other tasks go on
                await asyncio.sleep(0)
            due = self.clock.next_at
            self.clock.advance_to(end if due is None else min(due, end))
            if due is None or due > end:
                return seen.now


async def world(script: Any) -> World:
    clock = VirtualClock(1000)
    runtime = MemoryRuntime(script=parse_script(script), clock=clock)
    await runtime.prepare(RUN, JOB)
    return World(runtime, clock)


async def test_an_instance_starts_runs_and_ends_in_its_time() -> None:
    here = await world({"roles": {"a": {"startSeconds": 2, "readySeconds": 3, "runSeconds": 10}}})
    async with watching(here.runtime, RUN) as seen:
        await here.create()
        story = []
        for second in (1, 2, 4, 5, 11, 12):
            found = (await here.at(second, seen))["a", 0]
            story.append((found.state, found.ready))
        ended = seen.now["a", 0]
    assert story == [
        ("pending", False),
        ("running", False),
        ("running", False),
        ("running", True),
        ("running", True),
        ("succeeded", False),
    ]
    assert (ended.started_at, ended.finished_at) == (1002, 1012)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        pytest.param({"signal": 9}, ("failed", 137, 9, "Error"), id="signal"),
        pytest.param({}, ("failed", 137, 9, "Error"), id="a-kill-is-a-kill"),
        pytest.param({"exitCode": 3}, ("failed", 3, None, "Error"), id="exit-code"),
        pytest.param({"exitCode": 0}, ("succeeded", 0, None, "Completed"), id="early-success"),
        pytest.param({"reason": "OOMKilled"}, ("failed", 137, 9, "OOMKilled"), id="oom"),
    ],
)
async def test_a_kill_ends_an_instance_as_written(
    fault: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    here = await world([{"at": 20, "kill": "a", "index": 1, **fault}])
    async with watching(here.runtime, RUN) as seen:
        await here.create("a", 0)
        await here.create("a", 1)
        assert (await here.at(19.9, seen))["a", 1].state == "running"
        found = (await here.at(20, seen))["a", 1]
        assert (found.state, found.exit_code, found.signal, found.reason) == expected
        assert seen.now["a", 0].state == "running"


async def test_a_fault_after_each_start_hits_the_attempt_it_names() -> None:
    here = await world([{"after": 5, "kill": "a", "attempt": 0, "exitCode": 1}])
    async with watching(here.runtime, RUN) as seen:
        await here.create()
        assert (await here.at(5, seen))["a", 0].state == "failed"
        await here.create(attempt=1)
        assert (await here.at(30, seen))["a", 0].state == "running"
        assert (await here.at(35, seen))["a", 0].state == "succeeded"


async def test_what_waited_for_its_next_process_and_is_gone_does_not_come_back() -> None:
    here = await world([{"at": 5, "kill": "a", "signal": 9}])
    async with watching(here.runtime, RUN) as seen:
        await here.create(in_place_seconds=60)
        ended = (await here.at(5, seen))["a", 0]
        assert (ended.state, ended.in_place) == ("failed", True)
        here.runtime.vanish(RUN.uid, "a", 0)
        assert await here.at(6, seen) == {}
        assert await here.at(70, seen) == {}


async def test_a_disruption_is_told_as_one() -> None:
    here = await world([{"at": 1, "kill": "a", "reason": "Preempted", "disrupted": True}])
    async with watching(here.runtime, RUN) as seen:
        await here.create()
        found = (await here.at(1, seen))["a", 0]
        assert (found.reason, found.disrupted) == ("Preempted", True)


async def test_an_object_can_disappear() -> None:
    here = await world([{"at": 3, "delete": "a", "index": 0}])
    async with watching(here.runtime, RUN) as seen:
        await here.create()
        uid = (await here.at(1, seen))["a", 0].uid
        assert not await here.at(3, seen)
        assert seen.history[-1] == InstanceRemoval(key=InstanceKey("a", 0), uid=uid)


async def test_a_lost_instance_comes_back() -> None:
    here = await world([{"at": 3, "lose": "a", "seconds": 4}])
    async with watching(here.runtime, RUN) as seen:
        await here.create()
        assert (await here.at(3, seen))["a", 0].state == "unknown"
        assert (await here.at(6.9, seen))["a", 0].state == "unknown"
        assert (await here.at(7, seen))["a", 0].state == "running"


async def test_an_unreachable_runtime_answers_nothing_and_loses_nothing() -> None:
    here = await world([{"at": 3, "unreachable": 40}])
    seen = Seen()
    follow = asyncio.create_task(seen.follow(here.runtime, RUN))
    await here.create()
    assert (await here.at(2, seen))["a", 0].state == "running"
    await here.at(4, seen)
    with pytest.raises(RuntimeUnavailable):
        await follow
    for call in (
        here.runtime.prepare(RUN, JOB),
        here.runtime.create([]),
        here.runtime.delete([], grace_seconds=0),
        here.runtime.release([], ReleaseAnswer(kind="List")),
        here.runtime.remove(RUN),
        here.runtime.cluster_view(),
        here.runtime.read_log(InstanceRef(run=RUN, key=InstanceKey("a", 0)), Cursor(), limit=1),
    ):
        with pytest.raises(RuntimeUnavailable):
            await call
    await here.at(43, seen)
    async with watching(here.runtime, RUN) as again:
        assert again.now["a", 0].state == "succeeded"  # it went on meanwhile


async def test_a_deleted_instance_takes_its_time_but_no_longer_than_the_grace() -> None:
    here = await world({"roles": {"a": {"stopSeconds": 10}}})
    async with watching(here.runtime, RUN) as seen:
        for index, grace in ((0, 60.0), (1, 4.0)):
            await here.create("a", index)
            ref = InstanceRef(run=RUN, key=InstanceKey("a", index))
            await here.runtime.delete([ref], grace_seconds=grace)
        assert {i.state for i in (await here.at(3.9, seen)).values()} == {"terminating"}
        assert set(await here.at(4, seen)) == {("a", 0)}
        assert not await here.at(10, seen)


async def test_a_fault_for_an_ended_attempt_leaves_the_next_one_alone() -> None:
    here = await world({"roles": {"a": {"runSeconds": 3}}})
    async with watching(here.runtime, RUN) as seen:
        await here.create(deadline_seconds=5)
        await here.at(3, seen)
        await here.create(attempt=1)
        assert (await here.at(5, seen))["a", 0].state == "running"


async def test_tests_can_end_and_report_by_hand() -> None:
    here = await world({"roles": {"*": {"runSeconds": None}}})
    async with watching(here.runtime, RUN) as seen:
        await here.create("a", 0)
        await here.create("b", 1)
        here.runtime.report(RUN.uid, "a", 0, ProgressReport(step=3))
        here.runtime.finish(RUN.uid, "b", 1, exit_code=2, message="by hand")
        assert set(here.runtime.live(RUN.uid)) == {("a", 0)}
        here.runtime.vanish(RUN.uid, "a", 0)
        await here.at(1, seen)
        assert (seen.now["b", 1].exit_code, seen.now["b", 1].message) == (2, "by hand")
        told = [c.instance.progress for c in seen.history if isinstance(c, InstanceUpdate)]
        assert told.count(ProgressReport(step=3)) == 1
        assert ("a", 0) not in seen.now


class Selector(selectors.DefaultSelector):
    """Tells how long the loop would wait as soon as nothing is left to do; None: for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.wait: asyncio.Future[float | None] | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.wait and not self.wait.done() and (timeout is None or timeout > 0):
            self.wait.set_result(timeout)
            timeout = 0
        return super().select(timeout)


def test_many_idle_jobs_cost_nothing() -> None:
    """200 jobs of 5 instances: the loop waits for ever, as nobody wants to be woken."""
    clock = VirtualClock(1000.0)
    script = parse_script({"roles": {"*": {"runSeconds": None}}})
    runtime = MemoryRuntime(script=script, clock=clock)
    job = ResolvedJob(name="job", roles=(ResolvedRole(name="a", replicas=5, ports={"p": 1}),))
    selector = Selector()

    async def idle() -> float | None:
        follow = []
        for number in range(200):
            run = RunRef(uid=f"{number:020x}", job="job", namespace="default", controller="tests")
            await runtime.prepare(run, job)
            refs = [InstanceRef(run=run, key=InstanceKey("a", i)) for i in range(5)]
            await runtime.create([InstanceSpec(ref=ref, name="a") for ref in refs])
            follow.append(asyncio.create_task(Seen().follow(runtime, run)))
        clock.advance(60)
        selector.wait = asyncio.get_running_loop().create_future()
        found = await selector.wait
        for task in follow:
            assert not task.done()
            task.cancel()
        await asyncio.gather(*follow, return_exceptions=True)
        return found

    loop = asyncio.SelectorEventLoop(selector)
    assert loop.run_until_complete(idle()) is None
    loop.close()
    assert clock.next_at is None
