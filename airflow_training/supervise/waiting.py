"""Waiting for an event with a timeout, without the trap of `asyncio.wait_for`."""

from __future__ import annotations

import asyncio

__all__ = ["is_set_within"]


async def is_set_within(event: asyncio.Event, seconds: float) -> bool:
    """Return whether the event is set, waiting at most so long.

    Before Python 3.12 `asyncio.wait_for` swallows a cancellation that comes together with the
    event: a loop around it would never end.
    """
    if not event.is_set():
        waiter = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait({waiter}, timeout=seconds)
        finally:
            waiter.cancel()
    return event.is_set()
