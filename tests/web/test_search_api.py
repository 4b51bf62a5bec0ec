"""Search in the logs of a run: hits come as they are found, and a search that nobody waits for ends."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from airflow_training.runtimes.port import Cursor, LogChunk
from airflow_training.state.store import RunRecord
from airflow_training.web.api import search
from tests.state.samples import START, a_ledger, worker
from tests.waiting import PATIENCE
from tests.web.conftest import FakeLogs, a_run


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def run(airflow_home: Any) -> RunRecord:
    alive = [worker(index, desired=True, state="running", started_at=START) for index in range(2)]
    return a_run(ledger=a_ledger(*alive, state="Running"))


def hits(client: Any, run: RunRecord, pattern: str, **query: Any) -> tuple[list[Any], Any]:
    path = f"/api/dags/digits/trainings/{run.uid}/log/search"
    answer = client.get(path, params={"pattern": pattern, **query})
    assert answer.status_code == 200, answer.text
    *found, end = [json.loads(line) for line in answer.text.splitlines()]
    assert end.pop("done") is True
    return found, end


def test_hits_of_all_instances_are_told_with_their_place(client, run, logs: FakeLogs):
    logs.text = b"one\nan error: \xff\ntwo\nError\n"
    found, end = hits(client, run, "error")
    assert [(each["index"], each["line"], each["offset"]) for each in found] == [
        (0, 2, 4),
        (1, 2, 4),
    ]
    assert found[0]["text"] == "an error: \ufffd"
    assert end == {"more": False, "problem": ""}
    found, _ = hits(client, run, "ERR.R", index=1, role="worker", ignore_case=True)
    assert [(each["index"], each["line"]) for each in found] == [(1, 2), (1, 4)]
    assert hits(client, run, "err.r", fixed=True)[0] == []


def test_hits_have_an_end(client, run, logs: FakeLogs, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(search, "_MOST_HITS", 5)
    logs.text = b"x\n" * 100
    found, end = hits(client, run, "x")
    assert (len(found), end["more"]) == (5, True)


def test_a_pattern_that_is_none_is_told(client, run):
    answer = client.get(f"/api/dags/digits/trainings/{run.uid}/log/search?pattern=(")
    assert answer.status_code == 422
    assert "pattern" in answer.json()["detail"]


class EndlessLogs:
    """A runtime whose logs never end, and that knows when nobody has read for a while."""

    def __init__(self) -> None:
        self.reads = 0

    async def read_log(self, instance: Any, cursor: Cursor, *, limit: int) -> LogChunk:
        self.reads += 1
        data = b"hit\n" * (limit // 4)
        return LogChunk(data=data, next=Cursor(offset=cursor.offset + len(data)), end=False)


async def test_a_search_ends_when_nobody_waits_for_it(
    app: FastAPI, run: RunRecord, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(search, "_MOST_HITS", 10**9)
    app.state.runtime_of = lambda _: EndlessLogs()
    ended = threading.Event()
    find = search._Hits._find

    def watched(self: Any) -> None:
        find(self)
        ended.set()

    monkeypatch.setattr(search._Hits, "_find", watched)
    sent = 0
    asked = asyncio.Event()

    async def receive() -> Any:
        await asked.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        nonlocal sent
        sent += len(message.get("body", b""))
        if sent > 10_000:
            asked.set()

    path = f"/api/dags/digits/trainings/{run.uid}/log/search"
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.0"},
        "http_version": "1.1",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "scheme": "http",
        "query_string": b"pattern=hit",
        "headers": [(b"user", b"op")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    await asyncio.wait_for(app(scope, receive, send), PATIENCE)
    assert await asyncio.to_thread(ended.wait, PATIENCE)


class ThreadedLogs(FakeLogs):
    """A runtime that reads in the threads that asyncio shares, as the local one does."""

    async def read_log(self, instance: Any, cursor: Cursor, *, limit: int) -> LogChunk:
        await asyncio.to_thread(lambda: None)
        return await super().read_log(instance, cursor, limit=limit)


async def test_many_readers_at_once_do_not_wait_for_each_other(app: FastAPI, run: RunRecord):
    runtime = ThreadedLogs()
    runtime.text = b"x\n" * 1000
    app.state.runtime_of = lambda _: runtime
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    transport = httpx.ASGITransport(app=app)
    base = f"http://test/api/dags/digits/trainings/{run.uid}/log"
    async with httpx.AsyncClient(transport=transport, headers={"user": "op"}) as client:
        paths = ["?role=worker&index=0", "/search?pattern=x", "/download?role=worker&index=0"] * 6
        asked = [client.get(base + path) for path in paths]
        answers = await asyncio.wait_for(asyncio.gather(*asked), PATIENCE)
    assert {each.status_code for each in answers} == {200}
