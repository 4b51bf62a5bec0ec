"""Tells runs whose objects a quota keeps out that there may be room by now. Asks nothing while none waits."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from airflow_training.control.model import InstanceKey
from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.kubernetes.api import Api, ApiError, Expired, Forbidden, NotFound
from airflow_training.runtimes.kubernetes.kinds import RESOURCE_QUOTAS
from airflow_training.runtimes.kubernetes.quotas import has_more_room

__all__ = ["QuotaWatch"]

log = logging.getLogger(__name__)

_WATCH_SECONDS = 300
_PAUSES = (1.0, 60.0)
"""Seconds before the next try: at first, and at most."""

_Quotas = dict[str, Mapping[str, Any]]
"""Name -> the quota."""


class QuotaWatch:
    """The quotas of one namespace. Belongs to one event loop.

    One watch for all runs that wait; where quotas are not ours to watch, nobody is told.
    """

    def __init__(self, api: Api, namespace: str, *, on_room: Callable[[str], None]) -> None:
        """`on_room` is called with the uid of each run that waits."""
        self._api = api
        self._namespace = namespace
        self._on_room = on_room
        self._waiting: dict[str, set[InstanceKey]] = {}
        """Run uid -> what of it is kept out."""
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def begin(self, run_uid: str, kept_out: Collection[InstanceKey]) -> None:
        """Tell a run from now on when there is more room, for these."""
        if not kept_out or self._closed:
            return
        self._waiting.setdefault(run_uid, set()).update(kept_out)
        if self._task is None:
            # in a context of its own: what it logs belongs to no run
            start = asyncio.get_running_loop().create_task
            self._task = contextvars.Context().run(start, self._watch_for_ever())

    def end(self, run_uid: str, let_in: Collection[InstanceKey] | None = None) -> None:
        """Tell a run no more, once none is kept out. `let_in`: these are not any more; None: all."""
        left = self._waiting.pop(run_uid, set()) - set(() if let_in is None else let_in)
        if left and let_in is not None:
            self._waiting[run_uid] = left
        if not self._waiting and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _watch_for_ever(self) -> None:
        pause, longest = _PAUSES
        known: _Quotas | None = None
        while True:
            try:
                known = await self._watch(known)
                pause = _PAUSES[0]
            except Expired:
                pass
            except (Forbidden, NotFound) as error:
                log.info("quotas of %s are not watched: %s", self._namespace, error)
                self._closed = True
                self._waiting.clear()
                return
            except (RuntimeUnavailable, ApiError) as error:
                log.info("the watch of the quotas of %s broke: %s", self._namespace, error)
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - jitter, no secret
            pause = min(pause * 2, longest)

    async def _watch(self, before: _Quotas | None) -> _Quotas:
        """Follow the quotas for a while; `before`: what they were when they were looked at last."""
        items, version = await self._api.list(RESOURCE_QUOTAS, self._namespace)
        known: _Quotas = {each["metadata"]["name"]: each for each in items}
        if before is not None:
            self._tell_of([(quota, known.get(name)) for name, quota in before.items()])
        async for kind, quota in self._api.watch(
            RESOURCE_QUOTAS,
            self._namespace,
            selector="",
            resource_version=version,
            timeout_seconds=_WATCH_SECONDS,
        ):
            if kind == "BOOKMARK":
                continue
            name = quota["metadata"]["name"]
            was = known.pop(name, None)
            if kind != "DELETED":
                known[name] = quota
            if was is not None:
                self._tell_of([(was, known.get(name))])
        return known

    def _tell_of(
        self, changes: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
    ) -> None:
        if any(has_more_room(before, after) for before, after in changes):
            for uid in list(self._waiting):
                self._on_room(uid)
