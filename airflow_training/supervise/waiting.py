"""Waiting for events with a timeout, without the trap of `asyncio.wait_for`; work that ends with a block."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

__all__ = ["alongside", "any_within", "is_set_within"]


@asynccontextmanager
async def alongside(*work: Coroutine[Any, Any, Any]) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Let work go on while the body does; cancel what is left of it then, and wait for its end."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def is_set_within(event: asyncio.Event, seconds: float) -> bool:
    """Return whether the event is set, waiting at most so long.

    Before Python 3.12 `asyncio.wait_for` swallows a cancellation that comes together with the
    event: a loop around it would never end.
    """
    if not event.is_set():
        await any_within(seconds, event.wait())
    return event.is_set()


async def any_within(seconds: float, *waits: Coroutine[Any, Any, object]) -> None:
    """Return when the first of these is through, waiting at most so long; cancel the others."""
    waiting = {asyncio.ensure_future(each) for each in waits}
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()
