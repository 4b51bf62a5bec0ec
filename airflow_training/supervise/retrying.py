"""Trying again while something is away: for how long to wait, and calls of the store that wait for it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TypeVar

from airflow_training.errors import LeaseLost
from airflow_training.state.store import Store

__all__ = ["retry_delay", "retrying"]

T = TypeVar("T")


def retry_delay(failures: int) -> float:
    """Return seconds before the next try: 0.25 doubling to 10, with jitter, so many spread out."""
    return min(10.0, 0.25 * 2.0 ** min(failures, 8)) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret


async def retrying(store: Store, call: Callable[[], T]) -> T:
    """Call the store off the event loop and try again while it is away.

    Only LeaseLost gets through.
    """
    failures = 0
    while True:
        try:
            return await asyncio.to_thread(call)
        except LeaseLost:
            raise
        except Exception as error:  # noqa: BLE001  # told there, and tried again
            failures += 1
            store.outage.record_failure(error)
        await asyncio.sleep(retry_delay(failures))
