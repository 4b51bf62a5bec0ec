"""SIGTERM sets a flag, and nothing else: training ends at a step boundary, where its state is whole."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType
from typing import Any

__all__ = ["EXIT_CODE", "Termination"]

EXIT_CODE = 128 + signal.SIGTERM
"""What a process ended by SIGTERM is said to exit with."""


class Termination:
    """Whether this process was asked to end, and how much of the grace is left."""

    def __init__(self, grace_seconds: float) -> None:
        self.grace_seconds = grace_seconds
        self._asked_at: float | None = None
        self._previous: Any = None
        self._watching = False

    def watch(self) -> None:
        """Take the signal over; in a thread, where Python allows no handler, it ends the process as ever."""
        if self._watching or threading.current_thread() is not threading.main_thread():
            return
        self._previous = signal.signal(signal.SIGTERM, self._note)
        self._watching = True

    def release(self) -> None:
        """Give the signal back to whoever had it."""
        if self._watching:
            signal.signal(signal.SIGTERM, self._previous or signal.SIG_DFL)
            self._watching = False

    @property
    def left_seconds(self) -> float | None:
        """Seconds of grace that are left, None where nobody asked."""
        if self._asked_at is None:
            return None
        return self._asked_at + self.grace_seconds - time.monotonic()

    def _note(self, _signal: int, _frame: FrameType | None) -> None:
        if self._asked_at is None:
            self._asked_at = time.monotonic()
