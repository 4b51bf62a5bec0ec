"""Tells once that the store does not answer, and once that it does again. Decides nothing."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from airflow_training.errors import TrainingError

__all__ = ["Outage"]

log = logging.getLogger(__name__)

_QUIET_SECONDS = 12.0
"""More than between two tries: a store that takes some writes and not others is not back."""


class Outage:
    """One for all who ask the same store again and again; safe for threads."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._began_at: float | None = None
        self._failed_at = 0.0

    @property
    def lasts(self) -> bool:
        """Whether something has failed, and nothing was written for a while since."""
        return self._began_at is not None

    def record_failure(self, error: Exception) -> None:
        """Say what failed, unless that was said in this outage."""
        with self._lock:
            self._failed_at = self._clock()
            begins = self._began_at is None
            if begins:
                self._began_at = self._failed_at
        if begins:
            a_bug = None if isinstance(error, TrainingError) else error
            log.warning("%s; training goes on, and this tries again", error, exc_info=a_bug)

    def wrote(self) -> None:
        """Say that the outage is over, where something failed and nothing has for a while."""
        began_at = self._began_at
        if began_at is None:  # the usual case costs no lock
            return
        with self._lock:
            quiet = self._clock() >= self._failed_at + _QUIET_SECONDS
            if not quiet or self._began_at != began_at:  # or another thread has said it
                return
            self._began_at = None
        log.warning("the store answers again, after %.0f s", self._failed_at - began_at)
