"""Whether the machine that shares this training's data has gone since the last save: a pause may follow, and no step after it.

Who fetches the data says so beside its socket: see `remote_data.fetching`.
"""

from __future__ import annotations

import os
import time

__all__ = ["DataOutage"]

_SOCKET = "TRAINING_DATA_SOCKET"
"""As `interception.protocol` has it."""
_SUFFIX = ".away"
_SAME_NS = 30 * 10**9
"""Nodes miss the data one after the other, as each has fetched ahead: so long it is one outage."""


class DataOutage:
    """Follows a file that is changed when an outage begins."""

    def __init__(self) -> None:
        """Those that began before are over, or the training would not have been started."""
        socket = os.environ.get(_SOCKET)
        self._mark = socket + _SUFFIX if socket else ""
        self._known = self._changed_at()
        self._same_until_ns = 0

    def asks_save(self) -> bool:
        """Whether one has begun since `saved`, but for the one that was answered already."""
        changed = self._changed_at()
        return changed not in (0, self._known) and changed >= self._same_until_ns

    def answered(self) -> None:
        """Take a save for what any rank has asked for: others may notice the same outage only later."""
        self._same_until_ns = time.time_ns() + _SAME_NS

    def saved(self) -> None:
        """Take a save for what is asked for."""
        self._known = self._changed_at()

    def _changed_at(self) -> int:
        try:
            return os.stat(self._mark).st_mtime_ns if self._mark else 0  # noqa: PTH116  # at each step
        except OSError:
            return 0
