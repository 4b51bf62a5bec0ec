"""Pages follow a run: one look at the store for all of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.errors import RuntimeUnavailable
from airflow_training.state.store import Store, open_store
from airflow_training.web.api.live import stream
from airflow_training.web.live import RunFeeds
from tests.state.samples import an_event
from tests.waiting import PATIENCE
from tests.web.conftest import a_run


class CountingStore:
    """The store, with how often the versions of runs were asked for, and a way to be away."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.looks = 0
        self.away = False
        self.failed = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def versions(self, uids: Any) -> Any:
        self.looks += 1
        if self.away:
            self.failed.set()
            raise RuntimeUnavailable("the store does not answer")
        return self._store.versions(uids)


@pytest.fixture
def store(airflow_home: Path) -> CountingStore:
    return CountingStore(open_store())


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def following(store: Any, uid: str, **options: Any) -> AsyncGenerator[str, None]:
    options = {"seen": "", "may_act": True, "seconds": PATIENCE, **options}
    return stream(RunFeeds(store, poll_seconds=0.05), uid, **options)


async def detail(events: AsyncIterator[str]) -> tuple[str, Any]:
    """Return id and data of the next event."""
    async for text in events:
        if "event: detail" in text:
            lines = dict(line.split(": ", 1) for line in text.strip().splitlines())
            return lines["id"], json.loads(lines["data"])
    raise AssertionError("the stream ended")


async def test_a_page_gets_the_run_at_once_and_each_change(store: CountingStore):
    run = a_run()
    events = following(store, run.uid)
    first, told = await asyncio.wait_for(detail(events), PATIENCE)
    assert told["summary"]["uid"] == run.uid
    assert told["actions"] == ["pause", "stop", "kill", "scale"]
    store.progress.save(
        run.uid, {InstanceKey("worker", 0): ProgressReport(step=7)}
    )  # which no version counts
    second, told = await asyncio.wait_for(detail(events), PATIENCE)
    assert told["progress"]["step"] == 7
    store.add_events(run.uid, [an_event()])
    third, _ = await asyncio.wait_for(detail(events), PATIENCE)
    store.environments.save(
        run.uid, {InstanceKey("worker", 0): ['{"at": 7, "usage": {"rss_bytes": 1}}']}
    )
    fourth, told = await asyncio.wait_for(detail(events), PATIENCE)
    assert told["usage"]["worker-0"]["memory_bytes"] == 1
    assert len({first, second, third, fourth}) == 4
    await events.aclose()


async def test_a_page_that_comes_back_gets_only_what_is_new_to_it(store: CountingStore):
    run = a_run()
    seen, _ = await asyncio.wait_for(detail(following(store, run.uid)), PATIENCE)
    again = following(store, run.uid, seen=seen, heartbeat_seconds=0.3)
    assert [await anext(again), await anext(again)] == ["retry: 1000\n\n", ": still there\n\n"]
    store.add_events(run.uid, [an_event()])
    assert (await asyncio.wait_for(detail(again), PATIENCE))[0] != seen


async def test_who_may_not_act_is_offered_nothing(store: CountingStore):
    run = a_run()
    _, told = await asyncio.wait_for(detail(following(store, run.uid, may_act=False)), PATIENCE)
    assert told["actions"] == []


async def test_many_pages_share_one_look(store: CountingStore):
    run = a_run()
    feeds = RunFeeds(store, poll_seconds=3600)  # type: ignore[arg-type]  # what they use of it
    pages = [stream(feeds, run.uid, seen="", may_act=True, seconds=PATIENCE) for _ in range(200)]
    told = await asyncio.wait_for(asyncio.gather(*(detail(page) for page in pages)), PATIENCE)
    assert len({each for each, _ in told}) == 1
    assert store.looks == 1
    for page in pages:
        await page.aclose()
    assert feeds._feeds == {}


async def test_nobody_looks_when_nobody_follows(store: CountingStore):
    run = a_run()
    feeds = RunFeeds(store, poll_seconds=0.01)  # type: ignore[arg-type]  # what they use of it
    page = stream(feeds, run.uid, seen="", may_act=True, seconds=PATIENCE)
    await asyncio.wait_for(detail(page), PATIENCE)
    await page.aclose()
    assert feeds._task is not None
    await asyncio.wait_for(feeds._task, PATIENCE)


async def test_a_stream_outlives_an_outage_of_the_store(store: CountingStore):
    run = a_run()
    events = following(store, run.uid)
    await asyncio.wait_for(detail(events), PATIENCE)
    store.away = True
    assert await asyncio.to_thread(store.failed.wait, PATIENCE)
    store.away = False
    store.add_events(run.uid, [an_event()])
    await asyncio.wait_for(detail(events), PATIENCE)


async def test_a_stream_ends_after_its_time_with_when_to_come_back(store: CountingStore):
    run = a_run()
    texts = [text async for text in following(store, run.uid, seconds=0.2, heartbeat_seconds=0.05)]
    assert texts[-1] == "retry: 1000\n\n"
    assert ": still there\n\n" in texts


async def test_a_stream_of_a_run_that_is_gone_ends(store: CountingStore):
    texts = [text async for text in following(store, "gone")]
    assert texts == ["retry: 1000\n\n"] * 2


async def test_a_server_that_ends_waits_for_no_page(store: CountingStore):
    class Server:
        should_exit = False

        def handle_exit(self, *_: object) -> None:
            self.should_exit = True

    run, server = a_run(), Server()
    before = signal.signal(signal.SIGTERM, server.handle_exit)
    try:
        events = following(store, run.uid)
        await asyncio.wait_for(detail(events), PATIENCE)
        server.handle_exit()
        with contextlib.suppress(StopAsyncIteration):
            while True:
                await asyncio.wait_for(anext(events), PATIENCE)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_route_streams(client):
    run = a_run()
    path = f"/api/dags/digits/trainings/{run.uid}/live"
    assert client.get(path, headers={"user": ""}).status_code == 401
    assert client.get(path.replace("digits", "other"), headers={"user": "op"}).status_code == 403
