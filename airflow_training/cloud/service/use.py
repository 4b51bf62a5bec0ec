"""Whether an app is in use: requests that are answered, and how long ago the last one was."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["AppUse"]

_LOOK_SECONDS = 2.0


class AppUse:
    """An app that knows how long nobody has asked it for anything."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._asked = threading.Lock()
        self._requests = 0
        self._last = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer by the app."""
        if scope["type"] == "lifespan":  # as long as the server runs
            await self._app(scope, receive, send)
            return
        self._count(1)
        try:
            await self._app(scope, receive, send)
        finally:
            self._count(-1)

    def wait_idle(self, seconds: float, *, wanted: Callable[[], bool]) -> None:
        """Return when there was no request for so long, or it is not wanted any more; blocks."""
        while (left := self._left(seconds)) > 0 and wanted():
            time.sleep(min(left, _LOOK_SECONDS))

    def _count(self, change: int) -> None:
        with self._asked:
            self._requests += change
            self._last = time.monotonic()

    def _left(self, seconds: float) -> float:
        with self._asked:
            return seconds if self._requests else self._last + seconds - time.monotonic()
