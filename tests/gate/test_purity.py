"""What makes a test impure is noticed, also where something catches it."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.gate.purity import ImpureTestError, hold_pure
from tests.waiting import until, wait_until


def _listen() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))


def _connect() -> None:
    with socket.socket() as client:
        client.connect(("127.0.0.1", 9))


async def _await() -> None:
    await asyncio.sleep(0.06)


@pytest.mark.parametrize(
    "deed",
    [
        pytest.param(lambda: subprocess.run(["true"], check=True), id="process"),
        pytest.param(os.fork, id="fork"),
        pytest.param(_listen, id="listen"),
        pytest.param(_connect, id="connect"),
        pytest.param(lambda: time.sleep(0.06), id="sleep"),
        pytest.param(lambda: asyncio.run(_await()), id="await"),
    ],
)
def test_what_a_pure_test_may_not_do_raises(deed: Callable[[], object]):
    with pytest.raises(ImpureTestError), hold_pure():
        deed()


def test_what_was_caught_is_told_in_the_end():
    expected = pytest.raises(ImpureTestError, match=r"time.sleep\(0.2\)")
    with expected, hold_pure(), suppress(BaseException):
        time.sleep(0.2)


def test_a_timer_that_is_taken_back_and_a_wait_for_an_event_are_no_sleep():
    async def wait() -> None:
        timer = asyncio.create_task(asyncio.sleep(3600))
        answers = iter([False, False, True])
        await until(lambda: next(answers))
        timer.cancel()

    with hold_pure():
        asyncio.run(wait())
        answers = iter([False, True])
        wait_until(lambda: next(answers))
        time.sleep(0.01)
