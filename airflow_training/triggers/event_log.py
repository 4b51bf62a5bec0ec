"""A run's events as the lines of a task log: each once, in order, with the tail of a failed log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from airflow_training.control import reasons
from airflow_training.control.model import Event
from airflow_training.state.store import Store, StoredEvent
from airflow_training.triggers.epochs import STARTED

__all__ = ["EventLogger", "line_of"]

_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_PAGE = 500

_FAILURES = frozenset(
    {
        reasons.INSTANCE_FAILED,
        reasons.INSTANCE_RESTARTED,
        reasons.ROLE_RESTARTED,
        reasons.JOB_RESTARTED,
    }
)

Tail = Callable[[str, int, int], Awaitable[str]]
"""Returns the last lines of (role, index, attempt); empty where there are none."""


def line_of(event: Event) -> str:
    """Return one line: who, what, why."""
    who = event.role if event.index is None else f"{event.role}-{event.index}"
    attempt = f" (attempt {event.attempt})" if event.attempt else ""
    rule = f" [rule {event.rule}]" if event.rule else ""
    text = f"{event.reason}: {event.message}" if event.message else event.reason
    return f"{who}{attempt}: {text}{rule}" if who else f"{text}{rule}"


class EventLogger:
    """Tells the events of one run, or of one role of it, to a logger."""

    def __init__(
        self,
        store: Store,
        uid: str,
        *,
        tell: Callable[[int, str], None],
        role: str | None = None,
        tail: Tail | None = None,
    ) -> None:
        """`tell(level, text)`; `tail` is asked once for each attempt that failed."""
        self._store = store
        self._uid = uid
        self._tell = tell
        self._role = role
        self._tail = tail
        self._seq = 0
        self._told_tails: set[tuple[str, int, int]] = set()

    async def catch_up(self) -> None:
        """Tell what happened since the last call."""
        while True:
            page = await asyncio.to_thread(
                self._store.events, self._uid, after=self._seq, role=self._role, limit=_PAGE
            )
            for stored in page:
                await self._log_event(stored)
            if len(page) < _PAGE:
                return

    async def _log_event(self, stored: StoredEvent) -> None:
        event = stored.event
        if event.reason != STARTED:
            self._tell(_LEVELS[event.level], line_of(event))
        if event.reason in _FAILURES and event.index is not None:
            await self.log_tail(event.role, event.index, event.attempt or 0)
        self._seq = stored.seq

    async def log_tail(self, role: str, index: int, attempt: int) -> None:
        """Tell the last lines of one attempt, once."""
        if self._tail is None or (role, index, attempt) in self._told_tails:
            return
        self._told_tails.add((role, index, attempt))
        text = await self._tail(role, index, attempt)
        if text:
            self._tell(logging.ERROR, f"last lines of {role}-{index} (attempt {attempt}):\n{text}")
