"""Rounds of a loop, counted: a test that nothing happens waits for some of them, not for a time."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

__all__ = ["Rounds"]


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
