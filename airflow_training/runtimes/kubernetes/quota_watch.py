"""Tells runs whose objects a quota keeps out that there may be room by now. Asks nothing while none waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from airflow_training.documents.instances import InstanceKey
from airflow_training.runtimes.kubernetes.api import Api
from airflow_training.runtimes.kubernetes.api_errors import (
    Forbidden,
    NotFound,
)
from airflow_training.runtimes.kubernetes.kinds import RESOURCE_QUOTAS
from airflow_training.runtimes.kubernetes.quotas import has_more_room
from airflow_training.runtimes.kubernetes.watch_loop import ListWatch, detached

__all__ = ["QuotaWatch"]

log = logging.getLogger(__name__)

_PAUSES = (1.0, 60.0)
"""Seconds before the next try: at first, and at most."""
_TELL_SECONDS = 5.0
"""How often runs are told at most: in a namespace where much begins and ends there is always a little more room."""
_LAPSE_SECONDS = 120.0
"""What was refused is asked for again each minute: after two it is not wanted any more."""

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
        self._waiting: dict[str, dict[InstanceKey, float]] = {}
        """Run uid -> what of it is kept out, and when that was seen last."""
        self._known: _Quotas | None = None
        """What they were when they were looked at last; None: nothing to compare with."""
        self._task: asyncio.Task[None] | None = None
        self._told_at = float("-inf")
        self._telling: asyncio.TimerHandle | None = None
        """There has been more room since then."""
        self._lapsing: asyncio.TimerHandle | None = None
        self._closed = False

    def begin(self, run_uid: str, kept_out: Collection[InstanceKey]) -> None:
        """Tell a run from now on when there is more room, for these; each time that they are refused."""
        if not kept_out or self._closed:
            return
        loop = asyncio.get_running_loop()
        self._waiting.setdefault(run_uid, {}).update(dict.fromkeys(kept_out, loop.time()))
        if self._lapsing is None:
            self._lapsing = loop.call_later(_LAPSE_SECONDS, self._lapse)
        if self._task is None:
            self._task = detached(self._watch_for_ever())

    def end(self, run_uid: str, let_in: Collection[InstanceKey] | None = None) -> None:
        """Tell a run no more, once none is kept out. `let_in`: these are not any more; None: all."""
        left = self._waiting.pop(run_uid, {})
        if let_in is not None:
            left = {key: at for key, at in left.items() if key not in let_in}
            if left:
                self._waiting[run_uid] = left
        self._stop_unless_awaited()

    def _lapse(self) -> None:
        """Forget what nobody asks for any more: it was scaled away, or its run is paused."""
        loop = asyncio.get_running_loop()
        self._lapsing, oldest = None, loop.time() - _LAPSE_SECONDS
        kept = {
            uid: {key: at for key, at in keys.items() if at > oldest}
            for uid, keys in self._waiting.items()
        }
        self._waiting = {uid: keys for uid, keys in kept.items() if keys}
        if self._waiting:
            first = min(at for keys in self._waiting.values() for at in keys.values())
            self._lapsing = loop.call_at(first + _LAPSE_SECONDS, self._lapse)
        self._stop_unless_awaited()

    def _stop_unless_awaited(self) -> None:
        if self._waiting:
            return
        for each in (self._task, self._telling, self._lapsing):
            if each is not None:
                each.cancel()
        self._task = self._telling = self._lapsing = None

    async def _watch_for_ever(self) -> None:
        self._known = None
        watch = ListWatch(
            self._api,
            RESOURCE_QUOTAS,
            self._namespace,
            on_list=self._on_list,
            on_change=self._on_change,
            on_break=self._forget,
            pauses=_PAUSES,
            final=(Forbidden, NotFound),
        )
        try:
            await watch.run()
        except (Forbidden, NotFound) as error:
            log.info("quotas of %s are not watched: %s", self._namespace, error)
            self._closed = True
            self._waiting.clear()
            self._stop_unless_awaited()

    async def _on_list(self, items: Sequence[Mapping[str, Any]], _: str) -> None:
        before, known = self._known, {each["metadata"]["name"]: each for each in items}
        self._known = known
        if before is not None:
            self._tell_of([(quota, known.get(name)) for name, quota in before.items()])

    def _on_change(self, kind: str, quota: Mapping[str, Any]) -> None:
        known = self._known = {} if self._known is None else self._known
        name = quota["metadata"]["name"]
        was = known.pop(name, None)
        if kind != "DELETED":
            known[name] = quota
        if was is not None:
            self._tell_of([(was, known.get(name))])

    def _forget(self, _: Exception) -> None:
        """Compare with nothing that cannot be read, or it fails again."""
        self._known = None

    def _tell_of(
        self, changes: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
    ) -> None:
        if not any(has_more_room(before, after) for before, after in changes):
            return
        loop = asyncio.get_running_loop()
        due_at = self._told_at + _TELL_SECONDS
        if loop.time() >= due_at:
            self._tell()
        elif self._telling is None:
            self._telling = loop.call_at(due_at, self._tell)

    def _tell(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
        self._telling, self._told_at = None, asyncio.get_running_loop().time()
        for uid in list(self._waiting):
            self._on_room(uid)
