"""When runs that a quota keeps out are told that there is more room, and for how long anybody looks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import pytest

from airflow_training.documents.instances import InstanceKey
from airflow_training.runtimes.kubernetes import quota_watch
from airflow_training.runtimes.kubernetes.api import Api
from airflow_training.runtimes.kubernetes.quota_watch import QuotaWatch
from tests.waiting import PATIENCE, until

WORKER = {InstanceKey("worker", 0)}
NEVER = 9999.0


def quota(used: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "small"},
        "status": {"hard": {"pods": "99"}, "used": {"pods": str(used)}},
    }


class Quotas:
    """A server with one quota, whose changes a test says."""

    def __init__(self) -> None:
        self.changes: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.lists = 0
        self.watches = 0

    async def list(self, *_: Any, **__: Any) -> Any:
        self.lists += 1
        return [quota(99)], "1"

    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        self.watches += 1
        try:
            while True:
                change = await self.changes.get()
                self.changes.task_done()
                yield "MODIFIED", change
        finally:
            self.watches -= 1

    async def uses(self, *amounts: Any) -> None:
        for each in amounts:
            self.changes.put_nowait(quota(each))
        await asyncio.wait_for(self.changes.join(), PATIENCE)


@pytest.fixture
def server() -> Quotas:
    return Quotas()


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def watch(server: Quotas, told: list[str]) -> QuotaWatch:
    return QuotaWatch(cast(Api, server), "default", on_room=told.append)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(quota_watch, "_PAUSES", (0.0, 0.0))
    return monkeypatch


@contextlib.contextmanager
def waiting(watch: QuotaWatch, *runs: str) -> Iterator[None]:
    for run in runs:
        watch.begin(run, WORKER)
    try:
        yield
    finally:
        for run in runs:
            watch.end(run)


async def test_of_much_that_begins_and_ends_runs_are_told_now_and_then_the_first_time_at_once(
    watch, server, told, patience
):
    patience.setattr(quota_watch, "_TELL_SECONDS", NEVER)
    with waiting(watch, "a", "b"):
        await until(lambda: server.watches == 1)
        await server.uses(98)
        await until(lambda: told == ["a", "b"])
        await server.uses(*range(97, 47, -1))
        await server.uses(99)
        assert told == ["a", "b"]


async def test_room_that_came_soon_after_other_is_told_of_later(watch, server, told, patience):
    patience.setattr(quota_watch, "_TELL_SECONDS", 0.2)
    with waiting(watch, "a"):
        await until(lambda: server.watches == 1)
        await server.uses(98, 97)
        await until(lambda: told == ["a", "a"])


async def test_what_nobody_asks_for_any_more_is_not_watched_for(watch, server, told, patience):
    patience.setattr(quota_watch, "_LAPSE_SECONDS", 0.1)
    for _ in range(2):  # it may be asked for again later
        with waiting(watch, "a"):
            await until(lambda: server.watches == 1)
            await until(lambda: server.watches == 0)
    assert server.lists == 2


async def test_of_two_only_the_one_that_is_refused_again_and_again_is_told(
    watch, server, told, patience
):
    patience.setattr(quota_watch, "_LAPSE_SECONDS", 0.3)
    patience.setattr(quota_watch, "_TELL_SECONDS", 0.0)

    def only_b_is_told() -> bool:
        watch.begin("b", WORKER)
        for used in (1, 0):
            server.changes.put_nowait(quota(used))
        return bool(told[-2:] == ["b", "b"])

    with waiting(watch, "a", "b"):
        await until(lambda: server.watches == 1)
        await until(only_b_is_told)
        assert "a" in told


async def test_a_quota_that_nobody_can_read_ends_no_watch(watch, server, told):
    with waiting(watch, "a"):
        await until(lambda: server.watches == 1)
        await server.uses("a few")
        await until(lambda: server.lists >= 2)
        await until(lambda: server.watches == 1)
        await server.uses(98)
        await until(lambda: told == ["a"])
