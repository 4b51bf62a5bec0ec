"""The loop behind all watches, against a server that goes and comes back."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.kubernetes import watch_loop
from airflow_training.runtimes.kubernetes.api_errors import (
    ApiError,
    Forbidden,
    ResourceVersionExpired,
)
from airflow_training.runtimes.kubernetes.kinds import NODES
from airflow_training.runtimes.kubernetes.watch_loop import ListWatch
from tests.waiting import until

AWAY = RuntimeUnavailable("nobody answers")
BROKEN_OFF = "the connection ends"


def an_object(version: int) -> dict[str, Any]:
    return {"metadata": {"name": "a", "resourceVersion": str(version)}}


class Server:
    """Answers what a test says: each list and each watch takes the next answers."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.lists: list[Exception] = []
        """What lists raise, one after another; then they succeed."""
        self.events: asyncio.Queue[tuple[str, dict[str, Any]] | Exception | str] = asyncio.Queue()

    async def list(self, *_: Any, **__: Any) -> tuple[list[dict[str, Any]], str]:
        self.asked.append("list")
        if self.lists:
            raise self.lists.pop(0)
        return [an_object(7)], "7"

    async def watch(
        self, *_: Any, resource_version: str, **__: Any
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        self.asked.append(f"watch {resource_version}")
        while (said := await self.events.get()) != BROKEN_OFF:
            if isinstance(said, Exception):
                raise said
            assert not isinstance(said, str)
            yield said


class Seen:
    """What a loop told its owner."""

    def __init__(self) -> None:
        self.lists: list[str] = []
        self.changes: list[str] = []
        self.unreachable: list[str] = []
        self.broke: list[str] = []

    async def listed(self, items: Sequence[Mapping[str, Any]], version: str) -> None:
        self.lists.append(version)

    def changed(self, kind: str, found: Mapping[str, Any]) -> None:
        if kind == "ODD":
            raise KeyError(kind)
        self.changes.append(f"{kind} {found['metadata']['resourceVersion']}")


@contextlib.asynccontextmanager
async def watching(server: Server, **keys: Any) -> AsyncIterator[Seen]:
    seen = Seen()
    loop = ListWatch(
        server,  # type: ignore[arg-type]  # only what it asks for
        NODES,
        on_list=seen.listed,
        on_change=seen.changed,
        on_unreachable=lambda error: seen.unreachable.append(str(error)),
        on_break=lambda error: seen.broke.append(repr(error)),
        pauses=(0.0, 0.0),
        **keys,
    )
    task = asyncio.create_task(loop.run())
    try:
        yield seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_connection_that_breaks_is_gone_on_with_from_what_was_seen_last():
    server = Server()
    async with watching(server) as seen:
        server.events.put_nowait(("MODIFIED", an_object(8)))
        server.events.put_nowait(("BOOKMARK", an_object(9)))
        server.events.put_nowait(BROKEN_OFF)
        server.events.put_nowait(AWAY)
        server.events.put_nowait(("DELETED", an_object(10)))
        await until(lambda: len(seen.changes) == 2)
    assert seen.changes == ["MODIFIED 8", "DELETED 10"]
    assert server.asked == ["list", "watch 7", "watch 9", "watch 9"]
    assert seen.unreachable == []


async def test_what_is_compared_is_watched_by_one_request_between_two_lists(monkeypatch):
    now = 0.0
    monkeypatch.setattr(watch_loop, "time", SimpleNamespace(monotonic=lambda: now))

    class IdleServer(Server):
        async def watch(
            self, *_: Any, resource_version: str, **keys: Any
        ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
            nonlocal now
            self.asked.append(f"watch {resource_version}")
            now += keys["timeout_seconds"] + 0.01
            nothing: tuple[Any, ...] = ()
            for each in nothing:
                yield each

    server = IdleServer()
    async with watching(server):
        await until(lambda: len(server.asked) >= 4)
    assert server.asked[:4] == ["list", "watch 7", "list", "watch 7"]


@pytest.mark.parametrize(
    ("trouble", "broke"),
    [
        (ResourceVersionExpired(410, "Expired", "too old"), []),
        (("ODD", an_object(8)), ["KeyError('ODD')"]),
    ],
    ids=["too-old", "odd"],
)
async def test_after_a_gap_everything_is_listed_again(trouble, broke):
    server = Server()
    async with watching(server, is_compared=False) as seen:
        server.events.put_nowait(trouble)
        await until(lambda: server.asked[2:] == ["list", "watch 7"])
    assert (seen.lists, seen.broke) == (["7", "7"], broke)


async def test_what_is_refused_at_once_is_tried_ever_less_often(monkeypatch):
    """Though lists succeed in between, which may be of all nodes of a large cluster."""
    rests: list[float] = []

    async def rest(self: ListWatch, pause: float) -> float:
        rests.append(pause)
        return min(pause + 1, 5.0)

    monkeypatch.setattr(ListWatch, "_rest", rest)
    server = Server()
    async with watching(server):
        for _ in range(6):
            server.events.put_nowait(ApiError(405, "MethodNotAllowed", "no watch here"))
        await until(lambda: len(rests) == 6)
    assert rests == [0, 1, 2, 3, 4, 5]


async def test_a_server_that_is_away_is_logged_once_each_time(caplog):
    caplog.set_level(logging.INFO)
    server = Server()
    server.lists = [AWAY] * 5
    async with watching(server) as seen:
        await until(lambda: bool(seen.lists))
        server.lists = [AWAY] * 5
        server.events.put_nowait(ResourceVersionExpired(410, "Expired", "too old"))
        await until(lambda: len(seen.lists) == 2)
    said = [each.getMessage() for each in caplog.records if "cannot be watched" in each.message]
    assert said == ["nodes cannot be watched now: nobody answers"] * 2


@pytest.mark.parametrize(
    ("error", "patience", "told"),
    [
        pytest.param(AWAY, 1e9, False, id="not-for-long"),
        pytest.param(AWAY, 0.0, True, id="for-too-long"),
        pytest.param(ApiError(500, "", "odd"), 1e9, True, id="it-refuses"),
    ],
)
async def test_who_follows_hears_of_an_outage_at_each_try_once_it_is_one(error, patience, told):
    server = Server()
    server.lists = [error] * 3
    async with watching(server, silent_seconds=patience) as seen:
        await until(lambda: bool(seen.lists))
    assert seen.unreachable == ([str(error)] * 3 if told else [])


async def test_what_will_not_pass_ends_it():
    server = Server()
    server.lists = [Forbidden(403, "Forbidden", "nodes is forbidden")]
    loop = ListWatch(
        server,  # type: ignore[arg-type]  # as above
        NODES,
        on_list=Seen().listed,
        on_change=Seen().changed,
        pauses=(0.0, 0.0),
        final=(Forbidden,),
    )
    with pytest.raises(Forbidden):
        await loop.run()
    assert server.asked == ["list"]
