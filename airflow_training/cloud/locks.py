"""Locks on files that say whether a process is there: they end with it, however it ends."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path
from typing import IO, Any

__all__ = ["is_locked", "take_lock", "try_lock"]

_TRIES = 20
_PAUSE_SECONDS = 0.05


def take_lock(file: IO[Any]) -> bool:
    """Lock an open file for as long as it is open; False where another process has it.

    Whoever only asks by `is_locked` has it for an instant: that is waited for.
    """
    for _ in range(_TRIES):
        if try_lock(file):
            return True
        time.sleep(_PAUSE_SECONDS)
    return False


def is_locked(path: Path) -> bool:
    """Whether a process has the lock of a file."""
    with path.open("a") as file:
        return not try_lock(file)


def try_lock(file: IO[Any] | int) -> bool:
    """Lock an open file (or descriptor) at once; False where another process has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
