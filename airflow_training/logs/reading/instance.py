"""The log of a live instance: a source over a runtime's cursors, which need not be byte offsets."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple, Protocol

from airflow_training.logs.reading.source import LogSlice, UnrotatedLog

__all__ = ["Fetch", "FetchResult", "InstanceLog"]

_SPACING = 4 << 20
_POINTS = 1024


class FetchResult(NamedTuple):
    """What a runtime answered: bytes, and its cursor after them."""

    data: bytes
    offset: int
    token: str
    """Empty: the offset alone says where to read on."""
    end: bool
    """The attempt is over and everything was read."""
    missing: str = ""
    """What of the log could not be kept, and why."""


class Fetch(Protocol):
    def __call__(self, offset: int, token: str, limit: int) -> FetchResult:
        """Return up to `limit` bytes after a cursor; blocks."""


class InstanceLog(UnrotatedLog):
    """One attempt of one instance, through the runtime's port; it only grows.

    Where cursors are opaque, an offset that was passed is reached from the nearest known cursor
    before it.
    """

    def __init__(
        self, name: str, fetch: Fetch, *, close: Callable[[], None] = lambda: None
    ) -> None:
        """`close` is called once, when the log is."""
        self.name = name
        self._fetch = fetch
        self._close: Callable[[], None] | None = close
        self._points: list[tuple[int, str]] = [(0, "")]
        self._next = (0, "")
        """The newest cursor: reading on continues here, whether it is kept as a point or not."""
        self._opaque = False
        self.missing = ""
        """What of it could not be kept, and why, as far as it was read."""

    @property
    def cursor(self) -> tuple[int, str]:
        """Return offset and token after what was read last."""
        return self._next

    def read(self, offset: int, limit: int) -> LogSlice:
        """Read from the runtime; `end` says that the attempt is over."""
        while True:
            at, token = self._nearest(offset)
            skipping = min(offset - at, _SPACING)
            fetched = self._fetch(at, token, skipping or limit)
            self._keep(fetched)
            start = fetched.offset - len(fetched.data)
            if not fetched.data or fetched.offset > offset:
                fresh = fetched.data[max(0, offset - start) :]
                return LogSlice(fresh, max(fetched.offset, offset), fetched.end)

    def _nearest(self, offset: int) -> tuple[int, str]:
        if self._next[0] == offset:
            return self._next
        if not self._opaque and self._next != (0, ""):
            return offset, ""
        known = bisect_right(self._points, offset, key=lambda point: point[0])
        nearest = self._points[known - 1]
        return self._next if nearest[0] < self._next[0] <= offset else nearest

    def _keep(self, fetched: FetchResult) -> None:
        self._next = (fetched.offset, fetched.token)
        self.missing = fetched.missing or self.missing
        self._opaque = self._opaque or bool(fetched.token)
        if fetched.offset >= self._points[-1][0] + _SPACING:
            self._points.append(self._next)
            if len(self._points) > _POINTS:
                self._points = self._points[::2]

    def size(self) -> int | None:
        """Return how many bytes there are now, found by trying; None where cursors are opaque."""
        if not self._next[0]:
            self.read(0, 1)
        if self._opaque:
            return None
        if not self._next[0]:
            return 0
        low, step = self._next[0], _SPACING
        while self._fetch(low + step, "", 1).data:
            low, step = low + step + 1, 2 * step
        high = low + step
        while low < high:  # bytes before `low` are there, from `high` on there are none
            middle = (low + high) // 2
            if self._fetch(middle, "", 1).data:
                low = middle + 1
            else:
                high = middle
        return low

    def close(self) -> None:
        """Give back what fetching needs."""
        if self._close is not None:
            self._close()
            self._close = None
