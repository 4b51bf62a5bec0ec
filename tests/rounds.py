"""Rounds of a loop, counted: a test that nothing happens waits for some of them, not for a time."""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Reads", "Rounds"]

_CLOSED = 0x10
"""IN_CLOSE_NOWRITE of inotify."""
_EVENT_BYTES = 16
"""Of one event about a file, which has no name in it."""


class Rounds:
    """Counts how often a method has come to its end, whatever came of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, method: str) -> None:
        """`owner`: an object, or a class for all of its objects."""
        self.over = 0
        original = getattr(owner, method)

        def counted(*arguments: Any, **named: Any) -> Any:
            try:
                return original(*arguments, **named)
            finally:
                self.over += 1

        async def awaited(*arguments: Any, **named: Any) -> Any:
            try:
                return await original(*arguments, **named)
            finally:
                self.over += 1

        waits = inspect.iscoroutinefunction(original)
        monkeypatch.setattr(owner, method, awaited if waits else counted)

    def more(self, count: int = 3) -> Callable[[], bool]:
        """Return whether so many more have begun and ended: what a test can wait for."""
        enough = self.over + count + 1  # the one that is on its way now has begun before
        return lambda: self.over >= enough


class Reads:
    """Counts how often a file was read, by whichever process: rounds of a loop elsewhere."""

    def __init__(self, path: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._events = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._events < 0 or libc.inotify_add_watch(self._events, bytes(path), _CLOSED) < 0:
            raise OSError(ctypes.get_errno(), "inotify", str(path))
        self._over = 0

    def __enter__(self) -> Reads:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._events)

    def more(self, count: int = 3) -> Callable[[], bool]:
        """Return whether it was read so many more times: what a test can wait for."""
        enough = self._count() + count + 1  # one may have begun before
        return lambda: self._count() >= enough

    def _count(self) -> int:
        with contextlib.suppress(BlockingIOError):
            self._over += len(os.read(self._events, 1 << 16)) // _EVENT_BYTES
        return self._over
