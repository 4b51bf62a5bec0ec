"""The loop on the simulated runtime: it ends jobs, survives trouble, and never acts without a lease."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from airflow_training.control.model import Elapsed, InstanceEntry, JobEntry, Ledger
from airflow_training.control.reports import ProgressReport
from airflow_training.control.run_output import RunOutput
from airflow_training.documents.instances import InstanceKey
from airflow_training.errors import LeaseLost, RuntimeUnavailable
from airflow_training.runtimes.faults import Behaviour, Fault, Script
from airflow_training.runtimes.memory import MemoryRuntime
from airflow_training.runtimes.port import InstanceRef, InstanceSpec, InstanceUpdate, Outcome
from airflow_training.state.store import Store
from airflow_training.supervise.effects import remaining_seconds
from airflow_training.supervise.followers.failures import FailureFollower
from tests.builders import job, role
from tests.supervise.conftest import Stage
from tests.waiting import PATIENCE, until

FOREVER = Script(default=Behaviour(run_seconds=None))


def quick(*faults: Fault, run_seconds: float | None = 0.05) -> Script:
    return Script(default=Behaviour(run_seconds=run_seconds), faults=faults)


@pytest.mark.parametrize(
    ("script", "state", "restarts"),
    [
        pytest.param(quick(), "Succeeded", 0, id="all-succeed"),
        pytest.param(
            quick(Fault(kind="kill", role="worker", index=1, attempt=0, after=0.01, signal=9)),
            "Succeeded",
            1,
            id="one-is-killed-and-replaced",
        ),
        pytest.param(Script(default=Behaviour(run_seconds=0.01, exit_code=3)), "Failed", 2, id="all-fail"),
        pytest.param(quick(Fault(kind="unreachable", at=0.02, seconds=0.3)), "Succeeded", 0, id="unreachable"),
    ],
)  # fmt: skip
async def test_a_job_ends_as_its_instances_do(stage, script, state, restarts):
    stage.runtime.script = script
    uid = stage.launch(job(role("worker", 2, backoff_limit=1), max_restarts=2, runtime="memory"))
    assert await asyncio.wait_for(stage.supervisor(uid).run(), PATIENCE) == state
    ledger = stage.store.ledger(uid)
    assert ledger.job.state == state
    assert ledger.job.drained
    assert len(ledger.job.restarts) == restarts
    assert not stage.live(uid)
    assert stage.store.lease(uid) is None
    told = [(each.reason, each.role, each.index) for each in stage.events]
    stored = [(e.event.reason, e.event.role, e.event.index) for e in stage.store.events(uid)]
    assert told == stored


async def test_a_stop_before_the_lease_is_held_ends_the_run_before_anything_begins(stage):
    uid = stage.launch(job(role("worker"), runtime="memory"))
    supervisor = stage.supervisor(uid)
    supervisor.interrupt(by="SIGINT")
    assert await asyncio.wait_for(supervisor.run(), PATIENCE) == "Stopped"
    assert "InstancesCreated" not in stage.reasons(uid)
    assert stage.store.lease(uid) is None


async def test_who_asks_to_stop_does_not_wait_for_why_it_failed(stage, monkeypatch):
    asked = asyncio.Event()

    async def never(*_: Any, **__: Any) -> None:
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(FailureFollower, "explain", never)
    stage.runtime.script = Script(default=Behaviour(run_seconds=0.01, exit_code=3))
    uid = stage.launch(job(max_restarts=0, runtime="memory"))
    supervisor = stage.supervisor(uid)
    running = asyncio.ensure_future(supervisor.run())
    await asyncio.wait_for(asked.wait(), PATIENCE)
    supervisor.interrupt(by="SIGINT")
    assert await asyncio.wait_for(running, PATIENCE) == "Failed"
    assert stage.store.ledger(uid).job.drained
    assert stage.store.lease(uid) is None


async def test_a_finished_run_is_not_driven_again(stage):
    stage.runtime.script = quick()
    uid = stage.launch(job(runtime="memory"))
    await stage.supervisor(uid).run()
    told = list(stage.events)
    assert await stage.supervisor(uid).run() == "Succeeded"
    assert stage.events == told


async def test_roles_start_when_they_are_asked_for(stage):
    stage.runtime.script = FOREVER
    uid = stage.launch(job(role("a"), role("b"), runtime="memory"), activate=False)
    async with stage.driving(uid):
        stage.store.add_request(uid, "activate", role="b")
        await until(lambda: stage.live(uid) == {("b", 0)})
        stage.store.add_request(uid, "activate", role="a")
        await until(lambda: stage.live(uid) == {("a", 0), ("b", 0)})


async def test_requests_reach_a_running_job(stage):
    stage.runtime.script = FOREVER
    uid = stage.launch(job(role("worker", 2), runtime="memory"))
    async with stage.driving(uid) as task:
        await until(lambda: len(stage.live(uid)) == 2)
        stage.store.add_request(uid, "pause")
        await until(lambda: not stage.live(uid))
        stage.store.add_request(uid, "resume")
        await until(lambda: len(stage.live(uid)) == 2)
        stage.store.add_request(uid, "stop", reason="enough")
        assert await asyncio.wait_for(task, PATIENCE) == "Stopped"
    assert not stage.live(uid)


async def test_scaling_up_fixes_new_addresses(stage):
    stage.runtime.script = FOREVER
    uid = stage.launch(
        job(role("worker", 1, min_replicas=1, ports={"p": 1}), elastic=True, runtime="memory")
    )
    async with stage.driving(uid):
        await until(lambda: len(stage.live(uid)) == 1)
        stage.store.add_request(uid, "scale", role="worker", replicas=3)
        await until(lambda: len(stage.live(uid)) == 3)
        await until(lambda: len(stage.store.read([uid])[uid].addresses["worker"]) == 3)


async def test_progress_reaches_the_store(stage):
    stage.runtime.script = FOREVER
    uid = stage.launch(job(runtime="memory"))
    async with stage.driving(uid):
        await until(lambda: "InstancesCreated" in stage.reasons(uid))
        before = len(stage.reasons(uid))
        for step in range(1, 50):
            stage.runtime.report(uid, "worker", 0, ProgressReport(step=step, metrics={"loss": 0.5}))
        await until(
            lambda: stage.store.progress.newest(uid).get(("worker", 0), ProgressReport()).step == 49
        )
        assert len(stage.reasons(uid)) <= before + 3


async def test_a_report_that_meets_the_stop_condition_needs_no_other_reason_for_a_pass(stage):
    stage.runtime.script = FOREVER
    uid = stage.launch(job(runtime="memory", stop_until="loss < 0.1", reconcile_seconds=1e9))
    async with stage.driving(uid) as task:
        await until(lambda: stage.store.ledger(uid).job.state == "Running")
        stage.runtime.report(uid, "worker", 0, ProgressReport(step=1, metrics={"loss": 0.05}))
        assert await asyncio.wait_for(task, PATIENCE) == "Succeeded"


@pytest.mark.e2e
async def test_an_unreachable_runtime_is_said_and_waited_for(stage):
    stage.runtime.script = FOREVER
    uid = stage.launch(job(runtime="memory"))
    async with stage.driving(uid):
        await until(lambda: stage.live(uid))
        stage.runtime.be_unreachable(0.5)
        await until(lambda: stage.store.ledger(uid).job.condition == "RuntimeUnknown")
        assert stage.store.ledger(uid).job.state in {"Running", "Starting"}
        await until(lambda: stage.store.ledger(uid).job.condition == "Running")
    assert not stage.store.ledger(uid).job.restarts


async def test_a_cancelled_loop_leaves_the_training_alone_and_the_next_adopts_it(stage):
    stage.runtime.script = FOREVER
    uid = stage.launch(job(role("worker", 2), runtime="memory"))
    async with stage.driving(uid):
        await until(lambda: stage.store.ledger(uid).job.state == "Running")
    before = {each.uid for each in stage.runtime.live(uid).values()}
    assert len(before) == 2
    async with stage.driving(uid):
        await until(lambda: (lease := stage.store.lease(uid)) and lease.generation == 2)
        stage.runtime.finish(uid, "worker", 0)
        await until(lambda: stage.store.ledger(uid).instances["worker", 0].final)
        assert {each.uid for each in stage.runtime.live(uid).values()} < before
    assert not stage.store.ledger(uid).job.restarts


class FlakyStore(Store):
    """A store whose commits sometimes happen without the caller hearing of it, sometimes not at all."""

    trouble: Sequence[str] = ()

    def commit(self, uid, **rest):
        what, *left = self.trouble or ("fine",)
        self.trouble = left
        if what == "lost-request":
            raise RuntimeUnavailable("the store is away")
        super().commit(uid, **rest)
        if what == "lost-answer":
            raise RuntimeUnavailable("the store went away after the commit")


@pytest.mark.parametrize("trouble", [["lost-request"], ["lost-answer"], ["fine", "lost-answer", "lost-request", "lost-answer"]])  # fmt: skip
async def test_a_store_that_fails_neither_ends_nor_doubles_anything(tmp_path, trouble):
    store = FlakyStore(f"sqlite:///{tmp_path / 'flaky.db'}")
    stage = Stage(store=store, runtime=MemoryRuntime(script=quick()))
    uid = stage.launch(job(role("worker", 3), runtime="memory"))
    store.trouble = trouble
    assert await asyncio.wait_for(stage.supervisor(uid).run(), PATIENCE) == "Succeeded"
    assert all(each.attempt == 0 for each in store.ledger(uid).instances.values())
    assert not store.ledger(uid).job.restarts
    assert [stage.reasons(uid).count(each) for each in ("JobStarted", "InstancesCreated")] == [1, 1]
    store.close()


class AwayStore(Store):
    """A store that takes nothing any more once it is told to be away."""

    away = False

    def commit(self, uid, **rest):
        if self.away:
            raise RuntimeUnavailable("the store is away")
        super().commit(uid, **rest)

    def renew_all(self, held, *, seconds=15.0):
        if self.away:
            raise RuntimeUnavailable("the store is away")
        return super().renew_all(held, seconds=seconds)


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("lease_seconds", "runs_out"), [pytest.param(15.0, False), pytest.param(0.3, True)]
)
async def test_a_stop_does_not_wait_for_the_store(tmp_path, lease_seconds, runs_out, caplog):
    """Also once the lease has run out. Nothing begins any more, whatever fails meanwhile."""
    store = AwayStore(f"sqlite:///{tmp_path / 'away.db'}")
    stage = Stage(store=store, runtime=MemoryRuntime(script=FOREVER))
    uid = stage.launch(job(role("worker", 3), runtime="memory"))
    supervisor = stage.supervisor(uid, lease_seconds=lease_seconds)
    driving = asyncio.ensure_future(supervisor.run())
    await until(lambda: store.ledger(uid).job.state == "Running")
    store.away = True
    if runs_out:
        await until(lambda: store.lease(uid).expires_at < store.now())
    supervisor.interrupt(by="test")
    stage.runtime.finish(uid, "worker", 0, exit_code=75)
    with pytest.raises(RuntimeUnavailable):
        await asyncio.wait_for(driving, PATIENCE)
    assert not stage.live(uid)
    assert store.ledger(uid).job.state == "Running", "of that it knows nothing"
    assert caplog.text.count("the store is away") == 1
    assert "Traceback" not in caplog.text
    store.away = False
    assert stage.reasons(uid).count("InstancesCreated") == 1
    store.close()


async def test_a_stop_that_the_store_takes_is_recorded_before_it_is_acted_on(store):
    runtime = Witness(script=FOREVER)
    runtime.store = store
    stage = Stage(store=store, runtime=runtime)
    uid = stage.launch(job(role("worker", 2), runtime="memory"))
    supervisor = stage.supervisor(uid)
    driving = asyncio.ensure_future(supervisor.run())
    await until(lambda: store.ledger(uid).job.state == "Running")
    supervisor.interrupt(by="test")
    assert await asyncio.wait_for(driving, PATIENCE) == "Stopped"
    assert runtime.unannounced == []
    ended = store.ledger(uid).job
    assert (ended.reason, ended.message) == ("Interrupted", "test to the process that drove it")
    assert not stage.live(uid)


class Witness(MemoryRuntime):
    """Looks into the store at the moment of every effect."""

    store: Store

    def __init__(self, **options) -> None:
        super().__init__(**options)
        self.effects: list[str] = []
        self.unannounced: list[str] = []

    def _see(self, kind: str, ref: InstanceRef) -> InstanceEntry:
        self.effects.append(f"{kind} {ref.role}-{ref.index}")
        return self.store.ledger(ref.run.uid).instances[InstanceKey(ref.role, ref.index)]

    async def create(self, instances):
        for ref in (each.ref for each in instances):
            known = self._see("create", ref)
            wanted = (known.epoch, known.job_attempt, known.attempt)
            if not known.desired or wanted != (ref.epoch, ref.job_attempt, ref.attempt):
                self.unannounced.append(self.effects[-1])
        return await super().create(instances)

    async def release(self, instances, answer):
        for ref in instances:
            if not self._see("release", ref).phase.released:
                self.unannounced.append(self.effects[-1])
        await super().release(instances, answer)

    async def delete(self, instances, *, grace_seconds, dump_stacks=False):
        for ref in instances:
            known = self._see("delete", ref)
            if known.uid == ref.uid and not known.final:
                self.unannounced.append(self.effects[-1])
        await super().delete(instances, grace_seconds=grace_seconds)


class StoppingStore(Store):
    """A store that has its run stopped at the moment when it takes an order to create."""

    on_order: Callable[[], object] | None = None

    def commit(self, uid, *, new, **rest):
        super().commit(uid, new=new, **rest)
        if self.on_order is not None and any(each.desired for each in new.instances.values()):
            told, self.on_order = self.on_order, None
            told()


async def test_what_was_ordered_before_a_stop_does_not_begin_after_it(tmp_path):
    store = StoppingStore(f"sqlite:///{tmp_path / 'stopping.db'}")
    runtime = Witness(script=FOREVER)
    runtime.store = store
    stage = Stage(store=store, runtime=runtime)
    uid = stage.launch(job(role("worker", 2), runtime="memory"))
    supervisor = stage.supervisor(uid)
    loop, stop = asyncio.get_running_loop(), partial(supervisor.interrupt, by="test")
    store.on_order = partial(loop.call_soon_threadsafe, stop)
    driving = asyncio.ensure_future(supervisor.run())
    await until(lambda: store.ledger(uid).job.state == "Stopped")
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)
    assert runtime.effects == []
    store.close()


async def test_the_store_knows_of_every_effect_before_it_happens(store):
    """So whoever is killed in between is continued by a holder that expects what it may find."""
    killed = Fault(kind="kill", role="worker", index=0, attempt=0, after=0.01, signal=9)
    runtime = Witness(script=dataclasses.replace(FOREVER, faults=(killed,)))
    runtime.store = store
    stage = Stage(store=store, runtime=runtime)
    roles = (role("master"), role("worker", 2, "master"))
    uid = stage.launch(job(*roles, scope="Job", startup="createAllHold", runtime="memory"))

    def runs_again() -> bool:
        entries = store.ledger(uid).instances.values()
        return all((each.state, each.job_attempt) == ("running", 1) for each in entries)

    async with stage.driving(uid):
        await until(runs_again)
    assert {"create master-0", "release worker-1", "delete worker-0"} <= set(runtime.effects)
    assert runtime.unannounced == []


async def test_every_instance_carries_a_deadline_of_its_own(stage):
    """It ends itself though nobody is left to tell it, a grace after the loop would have."""
    stage.runtime.script = FOREVER
    uid = stage.launch(job(runtime="memory", active_deadline_seconds=1000, grace_seconds=30))
    async with stage.driving(uid):
        await until(lambda: stage.live(uid))
    assert 1000 < stage.runtime.spec(uid, "worker", 0).deadline_seconds <= 1030


@pytest.mark.parametrize(
    ("deadline", "ran", "waits", "expected"),
    [
        pytest.param(None, {"at": 40.0, "runs": True}, False, None, id="none"),
        pytest.param(100, {}, False, 105.0, id="the-first-instance"),
        pytest.param(100, {"at": 40.0, "runs": True}, False, 45.0, id="a-later-attempt-has-less"),
        pytest.param(100, {"at": 40.0, "seconds": 40.0}, False, 65.0, id="what-stands-counts-not"),
        pytest.param(100, {"at": -900.0, "runs": True}, False, 6.0, id="never-nothing"),
        pytest.param(100, {}, True, 165.0, id="held-while-others-look-for-a-place"),
    ],
)
def test_what_is_left_of_the_deadline(deadline, ran, waits, expected):
    spec = job(active_deadline_seconds=deadline, grace_seconds=5, schedule_timeout_seconds=60)
    ledger = Ledger(job=JobEntry(started_at=0.0, active_time=Elapsed(**ran)))
    assert remaining_seconds(spec, ledger, now=100.0, waits=waits) == expected


class Uploading(MemoryRuntime):
    """Tells with each success where the output was uploaded to."""

    async def watch(self, run):
        async for change in super().watch(run):
            if isinstance(change, InstanceUpdate) and change.instance.state == "succeeded":
                uploaded = RunOutput(uri="s3://models/x", bytes=1, digest="sha256:0")
                change = InstanceUpdate(
                    instance=dataclasses.replace(change.instance, output=uploaded)
                )
            yield change


class OutputFirst(Store):
    """Notes whether the output was there when the end was stored."""

    had_output: bool | None = None

    def commit(self, uid, **rest):
        if self.had_output is None and rest["new"].instances["worker", 0].final:
            self.had_output = self.output(uid) is not None
        super().commit(uid, **rest)


async def test_the_output_is_recorded_before_the_end_that_nobody_looks_behind(tmp_path):
    store = OutputFirst(f"sqlite:///{tmp_path / 'output.db'}")
    stage = Stage(store=store, runtime=Uploading(script=quick()))
    uid = stage.launch(job(runtime="memory", output_role="worker"))
    assert await asyncio.wait_for(stage.supervisor(uid).run(), PATIENCE) == "Succeeded"
    assert store.had_output
    store.close()


class BrokenRuntime(MemoryRuntime):
    """A runtime that cannot create some instances at all."""

    def _create(self, spec: InstanceSpec, **how: Any) -> Outcome:
        if spec.ref.attempt == 0 and spec.ref.index == 1:
            return Outcome(ref=spec.ref, result="error", message="no such image")
        return super()._create(spec, **how)


async def test_what_cannot_be_created_is_a_failure_like_any_other(store):
    stage = Stage(store=store, runtime=BrokenRuntime(script=quick()))
    uid = stage.launch(job(role("worker", 2), runtime="memory"))
    assert await asyncio.wait_for(stage.supervisor(uid).run(), PATIENCE) == "Succeeded"
    ledger = store.ledger(uid)
    assert ledger.instances["worker", 1].attempt == 1
    assert [each.index for each in ledger.job.restarts] == [1]


# two holders -------------------------------------------------------------------------------------
async def test_only_one_of_many_holders_drives_a_run(stage):
    stage.runtime.script = quick(run_seconds=0.3)
    uid = stage.launch(job(role("worker", 2), runtime="memory"))
    states = await asyncio.wait_for(
        asyncio.gather(*(stage.supervisor(uid).run() for _ in range(4))), 30
    )
    assert set(states) == {"Succeeded"}
    assert all(each.attempt == 0 for each in stage.store.ledger(uid).instances.values())
    assert stage.reasons(uid).count("JobSucceeded") == 1


class StalledRuntime:
    """What a holder sees that is stopped by SIGSTOP in the middle of an effect, and woken later."""

    def __init__(self, inner: MemoryRuntime) -> None:
        self._inner = inner
        self.stalled = asyncio.Event()
        self.wake = asyncio.Event()
        self.outcomes: list[Outcome] = []

    def __getattr__(self, name: str):
        return getattr(self._inner, name)

    async def create(self, instances):
        self.stalled.set()
        # nothing interrupts a stopped process: no lease check, no cancellation
        while not self.wake.is_set():
            try:
                await self.wake.wait()
            except asyncio.CancelledError:  # noqa: PERF203 - that is what it is to be stopped
                continue
        self.outcomes += await self._inner.create(instances)
        return self.outcomes


async def test_a_holder_that_stalls_in_an_effect_is_fenced_in_store_and_runtime(stage):
    """It wakes up after another has taken over: its create is refused, its commit raises."""
    stage.runtime.script = FOREVER
    uid = stage.launch(job(role("worker", 2), runtime="memory"))
    slow = StalledRuntime(stage.runtime)
    first = asyncio.ensure_future(
        stage.supervisor(uid, runtime=slow, lease_seconds=0.3, owner="elsewhere/0/1/1/x").run()
    )
    await slow.stalled.wait()
    stale = stage.store.lease(uid)
    # renewing goes on in this process, as it would not in a stopped one: no wait for the lease's end
    stage.store.release(stage.store.acquire(uid, owner="next", dead_owners=[stale.owner]))
    async with stage.driving(uid):
        await until(lambda: len(stage.live(uid)) == 2)
        before = {each.uid for each in stage.runtime.live(uid).values()}
        slow.wake.set()
        with pytest.raises(LeaseLost):
            await asyncio.wait_for(first, PATIENCE)
        assert [each.result for each in slow.outcomes] == ["refused", "refused"]
        assert {each.uid for each in stage.runtime.live(uid).values()} == before
        ledger = stage.store.ledger(uid)
        with pytest.raises(LeaseLost):
            stage.store.commit(uid, lease=stale, old=ledger, new=ledger, events=())


async def test_a_holder_whose_lease_was_taken_acts_on_nothing_any_more(stage):
    stage.runtime.script = FOREVER
    uid = stage.launch(job(role("worker", 1), runtime="memory"))
    async with stage.driving(uid, lease_seconds=0.6) as first:
        await until(lambda: stage.store.ledger(uid).job.state == "Running")
        mine = stage.store.lease(uid)
        taken = stage.store.acquire(uid, owner="b/b/1/1/b", dead_owners=[mine.owner])
        assert taken.generation == mine.generation + 1
        stage.runtime.finish(uid, "worker", 0, exit_code=1)
        with pytest.raises(LeaseLost):
            await asyncio.wait_for(first, PATIENCE)
    ledger = stage.store.ledger(uid)
    assert ledger.job.state == "Running"
    assert not ledger.job.restarts
    assert not stage.live(uid)
    assert stage.store.lease(uid) == dataclasses.replace(
        taken, expires_at=pytest.approx(taken.expires_at)
    )


async def test_a_lease_that_ran_out_but_that_nobody_took_is_taken_up_again(stage):
    stage.runtime.script = FOREVER
    uid = stage.launch(job(role("worker", 1), runtime="memory"))
    async with stage.driving(uid, lease_seconds=0.6) as task:
        await until(lambda: stage.store.ledger(uid).job.state == "Running")
        lease = stage.store.lease(uid)
        stage.store.renew_all([lease], seconds=-5.0)
        stage.runtime.finish(uid, "worker", 0)
        assert await asyncio.wait_for(task, PATIENCE) == "Succeeded"
