"""How tests wait: for an event that is told, with one patience for all that only a hang uses up.

`wait_until(...)` blocks, `await until(...)` lets the event loop go on meanwhile.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import textwrap
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
Probe = Callable[[], T | None]
Told = Callable[[], object]

PATIENCE = float(os.environ.get("TEST_PATIENCE", "120"))
"""Seconds. A safety net, never an assertion: a short one makes nothing faster, so it is not tuned."""


def wait_until(probe: Probe[T], what: str = "", **more: Any) -> T:
    """Return the first true answer of `probe`; `what` names it, else its source does. See `_looks` for more."""
    for found, pause in _looks(probe, what, **more):
        if found:
            return found
        time.sleep(pause)
    raise AssertionError("unreachable: the last look fails")


async def until(probe: Probe[T], what: str = "", **more: Any) -> T:
    """Do as `wait_until` does, while the event loop goes on."""
    for found, pause in _looks(probe, what, **more):
        if found:
            return found
        await asyncio.sleep(pause)
    raise AssertionError("unreachable: the last look fails")


def _looks(
    probe: Probe[T],
    what: str,
    *,
    alive: Told = lambda: True,
    seen: Told | None = None,
    patience: float | None = None,
) -> Iterator[tuple[T | None, float]]:
    """Yield what each look found and how long to pause then.

    Raises at once where `probe` does, or `alive` says that whoever should cause the event is gone, and when
    the patience is over; the message tells what was awaited, and `seen()`, or else what was found last.
    """
    patience = PATIENCE if patience is None else patience
    end = time.monotonic() + patience
    found: T | None = None

    def failure(why: str) -> AssertionError:
        name = what or _source(probe)
        return AssertionError(f"{name}: {why}; seen: {seen() if seen else repr(found)}")

    while True:
        lives = alive()  # before the look: who ends meanwhile may just have done what is awaited
        began = time.monotonic()
        try:
            found = probe()
        except Exception as error:
            raise failure(f"{type(error).__name__}: {error}") from error
        # looking takes at most a tenth of the time, however much one look costs
        yield found, min(max(10 * (time.monotonic() - began), 0.01), 0.3)
        if not lives or began > end:
            raise failure(f"not within {patience:g} s" if lives else "who should cause it is gone")


def _source(probe: Told) -> str:
    try:
        return textwrap.shorten(inspect.getsource(probe), 300)
    except (OSError, TypeError):
        return repr(probe)
