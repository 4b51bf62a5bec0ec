"""What tests wait with: it hands on what came, and says what it saw where nothing comes."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests import waiting
from tests.waiting import until, wait_until


@pytest.fixture(params=[wait_until, until])
def wait(request, monkeypatch) -> Callable[..., Any]:
    """Return either way to wait, without its pauses and with no patience."""

    async def pause(seconds: float) -> None:
        assert 0.01 <= seconds <= 0.3

    monkeypatch.setattr(asyncio, "sleep", pause)
    monkeypatch.setattr(time, "sleep", lambda seconds: asyncio.run(pause(seconds)))
    monkeypatch.setattr(waiting, "PATIENCE", 0.0)

    def call(*words: Any, **more: Any) -> Any:
        answer = request.param(*words, **more)
        return asyncio.run(answer) if inspect.iscoroutine(answer) else answer

    return call


def test_the_first_true_answer_is_returned(wait):
    answers = iter([None, 0, "it", "more"])
    assert wait(lambda: next(answers), patience=60) == "it"


def test_what_was_awaited_and_what_was_there_is_said(wait):
    with pytest.raises(AssertionError, match=r"^two ranks: not within 0 s; seen: \[\]$"):
        wait(list, "two ranks")
    with pytest.raises(AssertionError, match=r"seen: \{'worker-0': 'pending'\}$"):
        wait(list, "two ranks", seen=lambda: {"worker-0": "pending"})


def test_a_probe_without_a_name_is_told_by_its_source(wait):
    folder: list[str] = []
    with pytest.raises(AssertionError, match=r"\"go-on\" in folder.*: not within 0 s; seen: False"):
        wait(lambda: "go-on" in folder)
    with pytest.raises(AssertionError, match=r"<class 'list'>: not within"):
        wait(list)


def test_nobody_waits_for_the_dead(wait):
    looks = iter(["", "too late"])
    with pytest.raises(
        AssertionError, match=r"^a file: who should cause it is gone; seen: exit 3$"
    ):
        wait(lambda: next(looks), "a file", alive=bool, seen=lambda: "exit 3", patience=60)


def test_what_was_done_before_dying_counts(wait):
    assert wait(lambda: "done", alive=bool) == "done"


def test_a_probe_that_fails_ends_the_wait(wait):
    answers = iter([0])
    with pytest.raises(AssertionError, match=r"^a row: StopIteration: ; seen: 0$"):
        wait(lambda: next(answers), "a row", patience=60)
