"""Time of day, for runs and simulated runtimes: the wall's, or a virtual one that moves when told to."""

from __future__ import annotations

import asyncio
import heapq
import selectors
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, Protocol, TypeVar

__all__ = ["Clock", "VirtualClock", "WallClock", "steady_now"]

T = TypeVar("T")
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def steady_now() -> float:
    """Return seconds of a clock that never jumps, is the same for every process of the machine and runs on while that sleeps."""
    return time.clock_gettime(_STEADY)


class Clock(Protocol):
    def now(self) -> float:
        """Return epoch seconds, which neither jump nor go back."""

    def time_of_day(self) -> float:
        """The machine's clock in epoch seconds; somebody may have set it meanwhile."""

    def call_at(self, at: float, callback: Callable[[], None]) -> None:
        """Call back once when the clock has reached `at`; never before this call returns."""

    async def sleep(self, seconds: float) -> None:
        """Return when so much time has passed; never where that is infinite."""


class WallClock:
    """Real time, whoever sets the machine's. All waiting lies in the event loop's own heap: no polling, no thread."""

    def __init__(self) -> None:
        self._offset = time.time() - steady_now()

    def now(self) -> float:
        return self._offset + steady_now()

    def time_of_day(self) -> float:
        return time.time()

    def call_at(self, at: float, callback: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(max(0.0, at - self.now()), callback)

    async def sleep(self, seconds: float) -> None:
        if seconds == float("inf"):  # not every loop knows that
            await asyncio.Event().wait()
        await asyncio.sleep(seconds)


class VirtualClock:
    """Time that stands still until `advance` or an idle loop of `run` moves it."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self._sequence = 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []

    def now(self) -> float:
        return self._now

    def time_of_day(self) -> float:
        return self._now

    def call_at(self, at: float, callback: Callable[[], None]) -> None:
        self._push(at, callback)

    def _push(
        self, at: float, callback: Callable[[], None]
    ) -> tuple[float, int, Callable[[], None]]:
        self._sequence += 1
        entry = (max(at, self._now), self._sequence, callback)
        heapq.heappush(self._heap, entry)
        return entry

    async def sleep(self, seconds: float) -> None:
        passed = asyncio.Event()
        entry = self._push(self._now + seconds, passed.set)
        try:
            await passed.wait()
        finally:
            if entry in self._heap:  # cancelled: that moment is nothing to jump to
                self._heap.remove(entry)
                heapq.heapify(self._heap)

    @property
    def next_at(self) -> float | None:
        """Return when the next callback is due, or None."""
        return self._heap[0][0] if self._heap and self._heap[0][0] < float("inf") else None

    def advance(self, seconds: float) -> None:
        """Move time forward; everything due on the way is called, in order, at its own time."""
        self.advance_to(self._now + seconds)

    def advance_to(self, end: float) -> None:
        """Move time forward to `end`, as `advance` does."""
        while self._heap and self._heap[0][0] <= end:
            at, _, callback = heapq.heappop(self._heap)
            self._now = at
            callback()
        self._now = max(self._now, end)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` as `asyncio.run` does, and jump to what is due next whenever all is idle.

        Idle: no task can go on, and no thread works for one. What others wait for in real time,
        such as the reader of the store, keeps its pace.
        """
        loop = _JumpingLoop(self)
        try:
            return loop.run_until_complete(_with_all_that_it_began(work))
        finally:
            loop.close()


async def _with_all_that_it_began(work: Coroutine[Any, Any, T]) -> T:
    try:
        return await work
    finally:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        loop = asyncio.get_running_loop()
        await loop.shutdown_asyncgens()
        await loop.shutdown_default_executor()


class _JumpingLoop(asyncio.SelectorEventLoop):
    """Where other loops wait, this one moves a clock, if anything is due on it."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(_Selector(self._jump))
        self._clock = clock
        self._threads = 0

    def run_in_executor(  # type: ignore[override]  # Python 3.10 cannot spell the types of any number of arguments
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        self._threads += 1
        working = super().run_in_executor(executor, func, *args)
        working.add_done_callback(self._back)
        return working

    def _back(self, _: object) -> None:
        self._threads -= 1

    def _jump(self) -> bool:
        """Return whether there is something to do now."""
        due = self._clock.next_at
        if due is None or self._threads:
            return False
        self.call_soon(self._clock.advance_to, due)
        return True


class _Selector(selectors.DefaultSelector):
    """Asks before it waits."""

    def __init__(self, jump: Callable[[], bool]) -> None:
        super().__init__()
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if found or (timeout is not None and timeout <= 0) or self._jump():
            return found
        return super().select(timeout)
