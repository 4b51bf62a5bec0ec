"""Lists objects and follows what happens to them, for ever: one loop for all that is watched.

It goes on from the last resource version across broken connections, and lists again where that is too old,
where the server stayed away, or where somebody could not read what it said.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.kubernetes.api import Api
from airflow_training.runtimes.kubernetes.api_errors import ApiError, ResourceVersionExpired
from airflow_training.runtimes.kubernetes.kinds import ResourceKind

__all__ = ["ListWatch", "detached"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_WATCH_SECONDS = (270, 330)
"""How long one watch request lasts; spread, so that many processes do not come back together."""
_LEAST_SILENT_SECONDS = 10.0
"""A server that is busy answers no sooner, however little patience somebody has."""
_BRIEF_SECONDS = 1.0
"""A connection that ended sooner says nothing about how the server is."""


def _ignore(error: Exception) -> None:
    pass


class ListWatch:
    """One kind of object in one namespace, or everywhere."""

    def __init__(
        self,
        api: Api,
        kind: ResourceKind,
        namespace: str = "",
        *,
        selector: str = "",
        on_list: Callable[[Sequence[Mapping[str, Any]], str], Awaitable[None]],
        on_change: Callable[[str, Mapping[str, Any]], None],
        on_unreachable: Callable[[Exception], None] = _ignore,
        on_break: Callable[[Exception], None] = _ignore,
        pauses: tuple[float, float],
        silent_seconds: float = math.inf,
        is_compared: bool = True,
        final: tuple[type[ApiError], ...] = (),
    ) -> None:
        """`on_list`: all objects, and their resource version. `on_change`: type of the event, and its object.

        `on_unreachable`: the server refuses, or was away for `silent_seconds`; said at each try from then on.
        `on_break`: a handler could not read what the server said.
        `pauses`: seconds before the next try, at first and at most. `is_compared`: everything is listed
        again after each request. `final`: what is raised by `run`, as it will not pass.
        """
        self._api = api
        self._kind = kind
        self._namespace = namespace
        self._selector = selector
        self._on_list = on_list
        self._on_change = on_change
        self._on_unreachable = on_unreachable
        self._on_break = on_break
        self._pauses = pauses
        self._silent_seconds = silent_seconds
        self._is_compared = is_compared
        self._final = final
        self._is_away = False

    async def run(self) -> None:
        """Watch until cancelled; raises only what is `final`."""
        version, pause, heard_at = "", self._pauses[0], time.monotonic()
        while True:
            opened_at = time.monotonic()
            try:
                if not version:
                    items, version = await self._api.list(
                        self._kind, self._namespace, selector=self._selector
                    )
                    await self._on_list(items, version)
                    self._is_away = False
                    heard_at = opened_at = time.monotonic()
                version, heard_at = await self._watch(version)
                pause = self._pauses[0]
                if self._is_compared:
                    version = ""
                continue
            except self._final:
                raise
            except ResourceVersionExpired:
                log.info("the watch of %s fell behind; listing again", self._what)
            except (RuntimeUnavailable, ApiError) as error:
                self._note_away(error)
                if not isinstance(error, RuntimeUnavailable) or self._is_silent(heard_at):
                    self._on_unreachable(error)
            except Exception as error:
                log.exception("the watch of %s broke", self._what)
                self._on_break(error)
            version = ""
            if time.monotonic() - opened_at > _BRIEF_SECONDS:
                pause = self._pauses[0]
            pause = await self._rest(pause)

    async def _watch(self, version: str) -> tuple[str, float]:
        """Follow what happens after `version` for the time of one request, across broken connections.

        Returns up to which version, and when the server was last heard.
        Raises ResourceVersionExpired, and RuntimeUnavailable when the server stays away.
        """
        until = time.monotonic() + random.uniform(*_WATCH_SECONDS)  # noqa: S311 - jitter, no secret
        pause, heard_at = self._pauses[0], time.monotonic()
        while (left := int(until - time.monotonic())) > 0:  # a server counts in seconds
            opened_at = time.monotonic()
            try:
                async for kind, found in self._api.watch(
                    self._kind,
                    self._namespace,
                    selector=self._selector,
                    resource_version=version,
                    timeout_seconds=left,
                    silent_seconds=max(self._silent_seconds, _LEAST_SILENT_SECONDS),
                ):
                    version = found["metadata"].get("resourceVersion", version)
                    if kind != "BOOKMARK":
                        self._on_change(kind, found)
                self._is_away, heard_at = False, time.monotonic()
            except RuntimeUnavailable as error:
                if self._is_silent(heard_at):
                    raise
                self._note_away(error)
            if time.monotonic() - opened_at > _BRIEF_SECONDS:
                pause = self._pauses[0]
            pause = await self._rest(pause)
        return version, heard_at

    async def _rest(self, pause: float) -> float:
        """Wait before the next try; return how long to wait before the one after."""
        await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - jitter, no secret
        return min(pause * 2, self._pauses[1])

    @property
    def _what(self) -> str:
        return f"{self._kind} of {self._namespace}" if self._namespace else str(self._kind)

    def _is_silent(self, heard_at: float) -> bool:
        return time.monotonic() - heard_at > self._silent_seconds

    def _note_away(self, error: Exception) -> None:
        """Say so once, however often it is tried."""
        say = log.debug if self._is_away else log.info
        say("%s cannot be watched now: %s", self._what, error)
        self._is_away = True


def detached(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start what belongs to nobody who is served now: in a context of its own, so that its logs do not either."""
    return contextvars.Context().run(asyncio.get_running_loop().create_task, work)
