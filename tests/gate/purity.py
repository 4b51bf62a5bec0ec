"""Holds pure tests to what makes them pure: no process, no socket, no sleep.

A test that breaks this can fail though nothing is broken, so it belongs to another tier. What is
forbidden raises where it is tried, so that the traceback names it, and fails the test once more at
its end, in case that something caught it.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any, SupportsIndex

from tests import waiting

__all__ = ["ImpureTestError", "hold_pure"]

LONGEST_SLEEP = 0.05
"""Seconds: a loop that yields to others may sleep, waiting for what is to happen is another thing."""
_PROCESSES = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec"}
_SOCKETS = {"socket.bind", "socket.connect"}  # not socketpair, of which every event loop has one


def _name(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))


def _imports(frame: FrameType | None) -> bool:
    """Return whether a module is being imported: whichever test is first makes it ask the machine for facts."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _is_wait(frame: FrameType) -> bool:
    """Return whether who sleeps looks for an event: how long that takes is no matter."""
    return _name(frame) == waiting.__name__


class ImpureTestError(BaseException):
    """A pure test did what only tests of the other tiers may; no `except Exception` hides it."""


class _Watch:
    """What the test that runs now did; an audit hook can never be taken away, so there is one."""

    def __init__(self) -> None:
        self.deeds: list[str] | None = None
        self.others: set[int] = set()
        """The threads that were there before the test, which are not its doing."""
        self.hooked = False

    def audit(self, event: str, values: tuple[Any, ...]) -> None:
        if self.deeds is None:
            return
        if (event in _PROCESSES or event in _SOCKETS) and not _imports(sys._getframe(1)):
            self.forbid(f"{event}{values!r:.200}")

    def forbid(self, deed: str) -> None:
        if self.deeds is None or threading.get_ident() in self.others:
            return
        self.deeds.append(deed)
        raise ImpureTestError(f"a pure test may not: {deed}; see tests/gate/tiers.py")


_watch = _Watch()
_sleep = time.sleep
_await = asyncio.sleep


def _sleep_shortly(seconds: float | SupportsIndex) -> None:
    if float(seconds) > LONGEST_SLEEP and not _is_wait(sys._getframe(1)):
        _watch.forbid(f"time.sleep({seconds})")
    _sleep(seconds)


async def _await_shortly(delay: float, result: Any = None) -> Any:
    """Sleep as asyncio does; a test may set a timer and take it back, but not wait for it.

    Loops of the product have their pace, and run on beside a test that is slow.
    """
    caller = sys._getframe(1)
    value = await _await(delay, result)
    if delay > LONGEST_SLEEP and _name(caller).startswith("tests.") and not _is_wait(caller):
        _watch.forbid(f"asyncio.sleep({delay})")
    return value


@contextmanager
def hold_pure() -> Generator[None]:
    """Raise `ImpureTestError` for each process, socket and sleep of what runs inside."""
    if not _watch.hooked:
        sys.addaudithook(_watch.audit)
        _watch.hooked = True
    before = (_watch.deeds, _watch.others, asyncio.sleep, time.sleep)
    main = threading.main_thread()
    deeds: list[str] = []
    _watch.deeds = deeds
    _watch.others = {
        each.ident for each in threading.enumerate() if each is not main and each.ident
    }
    asyncio.sleep, time.sleep = _await_shortly, _sleep_shortly
    try:
        yield
    finally:
        _watch.deeds, _watch.others, asyncio.sleep, time.sleep = before
    if deeds:
        raise ImpureTestError("a pure test did what it may not: " + "; ".join(deeds))
