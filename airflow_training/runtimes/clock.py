"""Time for simulated runtimes: the wall's, or a virtual one that only moves when it is told to."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable
from typing import Protocol

__all__ = ["Clock", "VirtualClock", "WallClock"]


class Clock(Protocol):
    def now(self) -> float:
        """Return epoch seconds."""

    def call_at(self, at: float, callback: Callable[[], None]) -> None:
        """Call back once when the clock has reached `at`; never before this call returns."""


class WallClock:
    """Real time. All waiting lies in the event loop's own heap: no polling, no thread."""

    def now(self) -> float:
        return time.time()

    def call_at(self, at: float, callback: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(max(0.0, at - time.time()), callback)


class VirtualClock:
    """Time that stands still until `advance` or `run_until` moves it."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self._sequence = 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []

    def now(self) -> float:
        return self._now

    def call_at(self, at: float, callback: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (max(at, self._now), self._sequence, callback))

    @property
    def next_at(self) -> float | None:
        """Return when the next callback is due, or None."""
        return self._heap[0][0] if self._heap else None

    def advance(self, seconds: float) -> None:
        """Move time forward; everything due on the way is called, in order, at its own time."""
        end = self._now + seconds
        while self._heap and self._heap[0][0] <= end:
            at, _, callback = heapq.heappop(self._heap)
            self._now = at
            callback()
        self._now = end

    async def run_until(self, end: float, *, turns: int = 5) -> None:
        """Move time to `end`, giving other tasks `turns` turns of the loop after each step."""
        while True:
            for _ in range(turns):
                await asyncio.sleep(0)
            due = self.next_at
            if due is None or due > end:
                break
            self.advance(due - self._now)
        self._now = max(self._now, end)
