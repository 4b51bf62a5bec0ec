"""The shared reader: first state at once, then changes only, however many listen."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_training.runtimes.clock import steady_now
from airflow_training.runtimes.faults import Behaviour, Script
from airflow_training.state.store import Store
from airflow_training.supervise.hub import Hub, get_hub
from tests.builders import job, role
from tests.rounds import Rounds
from tests.waiting import PATIENCE, until


class CountingStore(Store):
    reads = 0

    def __init__(self, url):
        super().__init__(url)
        self.asked_at = []

    def versions(self, uids):
        self.asked_at.append(steady_now())
        return super().versions(uids)

    def read(self, uids):
        self.reads += 1
        return super().read(uids)


@pytest.fixture
def store(tmp_path):
    opened = CountingStore(f"sqlite:///{tmp_path / 'hub.db'}")
    yield opened
    opened.close()


async def test_the_first_state_comes_at_once_and_then_only_changes(stage, monkeypatch):
    polls = Rounds(monkeypatch, stage.store, "versions")
    uid = stage.launch(job(runtime="memory"))
    hub = Hub(stage.store, poll_seconds=0.05)
    async with hub.subscription(uid) as sub:
        first = await asyncio.wait_for(sub.next(), PATIENCE)
        assert first.record.uid == uid
        assert first.lease is None
        await until(polls.more())
        assert not await sub.changed_within(0)
        stage.store.acquire(uid, owner="a/b/1/1/c")
        assert (await asyncio.wait_for(sub.next(), PATIENCE)).lease.generation == 1
        stage.store.add_request(uid, "pause")
        await asyncio.wait_for(sub.next(), PATIENCE)


async def test_a_lease_that_runs_out_is_a_change(stage):
    uid = stage.launch(job(runtime="memory"))
    stage.store.acquire(uid, owner="a/b/1/1/c", seconds=0.4)
    async with Hub(stage.store, poll_seconds=0.05).subscription(uid) as sub:
        held = await asyncio.wait_for(sub.next(), PATIENCE)
        assert held.lease.expires_at > stage.store.now()
        await asyncio.wait_for(sub.next(), PATIENCE)
        assert held.lease.expires_at <= stage.store.now()


async def test_an_unknown_run_is_none(stage):
    async with Hub(stage.store, poll_seconds=0.05).subscription("nobody") as sub:
        assert await asyncio.wait_for(sub.next(), PATIENCE) is None


async def test_many_subscribers_of_many_runs_share_one_read(stage):
    uids = [stage.launch(job(runtime="memory"), run_id=str(i)) for i in range(20)]
    hub = Hub(stage.store, poll_seconds=0.1)

    async def listen(uid):
        async with hub.subscription(uid) as sub:
            await sub.next()
            ready.append(uid)
            await stop.wait()

    ready: list[str] = []
    stop = asyncio.Event()
    tasks = [asyncio.ensure_future(listen(uid)) for uid in uids * 5]
    await until(lambda: len(ready) == 100)
    assert stage.store.reads <= 3
    asked = len(stage.store.asked_at)
    await until(lambda: len(stage.store.asked_at) >= asked + 11)
    first, last = stage.store.asked_at[asked], stage.store.asked_at[asked + 10]
    assert last - first > 10 * 0.1 / 2, "a busy machine asks less often, never more"
    assert stage.store.reads <= 3
    stop.set()
    await asyncio.gather(*tasks)


async def test_a_poke_is_faster_than_the_poll(stage):
    uid = stage.launch(job(runtime="memory"))
    hub = Hub(stage.store, poll_seconds=60.0)
    async with hub.subscription(uid) as sub:
        await sub.next()
        stage.store.add_request(uid, "pause")
        hub.notify(uid)
        await asyncio.wait_for(sub.next(), PATIENCE)


async def test_reads_do_not_wait_for_a_thread_that_others_hold(stage):
    """Whoever waits for processes to end may hold all of asyncio's threads for long."""
    uid = stage.launch(job(runtime="memory"))
    over = threading.Event()
    with ThreadPoolExecutor(1) as busy:
        asyncio.get_running_loop().set_default_executor(busy)
        holding = asyncio.ensure_future(asyncio.to_thread(over.wait, 2 * PATIENCE))
        try:
            hub = Hub(stage.store)
            async with hub.subscription(uid) as sub:
                assert (await asyncio.wait_for(sub.next(), PATIENCE)).record.uid == uid
            assert await asyncio.wait_for(hub.now(), PATIENCE) > 0
        finally:
            over.set()
            await holding


async def test_a_store_that_fails_for_a_while_is_read_again(stage, monkeypatch):
    uid = stage.launch(job(runtime="memory"))
    versions, failures = stage.store.versions, iter(range(3))

    def broken(uids):
        if next(failures, None) is not None:
            raise OSError("away")
        return versions(uids)

    monkeypatch.setattr(stage.store, "versions", broken)
    async with Hub(stage.store, poll_seconds=0.05).subscription(uid) as sub:
        assert await asyncio.wait_for(sub.next(), PATIENCE) is not None


async def test_the_hub_is_shared_within_a_loop(stage):
    assert get_hub(stage.store) is get_hub(stage.store)


@pytest.mark.parametrize(
    "jobs", [pytest.param(50, id="sample"), pytest.param(200, id="all", marks=pytest.mark.soak)]
)
async def test_hundreds_of_supervisors_in_one_process(stage, jobs):
    """Jobs of 5 instances start, run and end; nobody polls for any of them alone."""
    stage.runtime.script = Script(default=Behaviour(run_seconds=None))
    uids = [
        stage.launch(job(role("worker", 5), runtime="memory"), run_id=str(i)) for i in range(jobs)
    ]
    tasks = [asyncio.ensure_future(stage.supervisor(uid).run()) for uid in uids]
    await until(lambda: all(len(stage.live(uid)) == 5 for uid in uids))
    for uid in uids:
        for index in range(5):
            stage.runtime.finish(uid, "worker", index)
    assert set(await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)) == {"Succeeded"}


async def test_leases_are_renewed_together_and_a_lost_one_is_told(stage):
    uids = [stage.launch(job(runtime="memory"), run_id=str(i)) for i in range(5)]
    held = [stage.store.acquire(uid, owner="a/b/1/1/c", seconds=5.0) for uid in uids]
    taken = stage.store.acquire(uids[2], owner="d/e/1/1/f", dead_owners=["a/b/1/1/c"])
    renewed = stage.store.renew_all(held, seconds=60.0)
    assert [each is None for each in renewed] == [False, False, True, False, False]
    for uid, lease in zip(uids, renewed, strict=True):
        assert stage.store.lease(uid) == (lease or taken)
    assert stage.store.renew_all([]) == []
